"""What the verbs that use Spark share on the command line."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from threading import Event, Thread
from types import FrameType

from fairway.cli.exits import ExitCode
from fairway.core.errors import BadOption

CANCEL_AGAIN_S = 0.2


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
    """Lets SIGTERM unwind the verb, so that Spark and what it started end with it.

    Where the verb waits for the JVM, an exception would leave half an answer unread, and Spark would wait for the rest
    of its job all the same. So there the jobs are cancelled, until that has unwound the verb.
    """
    asked, unwound = Event(), Event()

    def leave(number: int, frame: FrameType | None) -> None:
        asked.set()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if not _waits_for_the_jvm(frame):
            raise SystemExit(ExitCode.TERMINATED)
        Thread(target=_cancel_until, args=(unwound,), daemon=True).start()

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    except Exception:
        if not asked.is_set():
            raise
    finally:
        unwound.set()
        signal.signal(signal.SIGTERM, before)
    if asked.is_set():
        raise SystemExit(ExitCode.TERMINATED)


def _waits_for_the_jvm(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_globals["__name__"].startswith("py4j."):
            return True
        frame = frame.f_back
    return False


def _cancel_until(unwound: Event) -> None:
    from fairway.lake.session import cancel_jobs

    while not unwound.is_set():
        with suppress(Exception):  # the session may end meanwhile
            cancel_jobs()
        unwound.wait(CANCEL_AGAIN_S)
