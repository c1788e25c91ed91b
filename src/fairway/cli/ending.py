"""A verb that runs until it is told to end: SIGINT and SIGTERM let it finish what it is doing."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event
from types import FrameType

from fairway.cli.exits import ExitCode

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Ending:
    """Remembers which signal asked for the end. A second one of the same kind ends at once."""

    def __init__(self) -> None:
        self.wanted = Event()
        self.code = ExitCode.DONE

    def watch(self) -> None:
        """Has SIGINT and SIGTERM ask for the end; again after Spark, which takes SIGINT for itself when it starts."""
        for number in SIGNALS:
            signal.signal(number, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.code = ExitCode.INTERRUPTED if number == signal.SIGINT else ExitCode.DONE
        self.wanted.set()
        signal.signal(number, signal.SIG_DFL)


@contextmanager
def ending_by_signals() -> Iterator[Ending]:
    """Gives what remembers the signals that come meanwhile."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    ending = Ending()
    ending.watch()
    try:
        yield ending
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
