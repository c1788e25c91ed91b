"""What the verbs that use Spark share on the command line."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from fairway.core.errors import BadOption

TERMINATED = 128 + signal.SIGTERM


def settings_of(pairs: Sequence[str]) -> dict[str, str]:
    """Turns `--conf key=value` into Spark's settings; raises `BadOption` for anything else."""
    settings = {}
    for pair in pairs:
        name, sign, value = pair.partition("=")
        if not sign or not name:
            raise BadOption(f"--conf is {pair!r}; it must be KEY=VALUE, such as spark.driver.memory=4g")
        settings[name] = value
    return settings


@contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """Lets SIGTERM unwind the verb, so that Spark and what it started end with it."""

    def leave(number: int, frame: FrameType | None) -> None:
        raise SystemExit(TERMINATED)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
