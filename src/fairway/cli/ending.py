"""A verb that runs until it is told to end: SIGINT and SIGTERM let it finish what it is doing."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event
from types import FrameType

from fairway.cli.exits import ExitCode


class Ending:
    """Remembers which signal asked for the end. A second one of the same kind ends at once."""

    def __init__(self) -> None:
        self.wanted = Event()
        self.code = ExitCode.DONE

    def note(self, number: int, frame: FrameType | None) -> None:
        """Takes a signal."""
        self.code = ExitCode.INTERRUPTED if number == signal.SIGINT else ExitCode.DONE
        self.wanted.set()
        signal.signal(number, signal.SIG_DFL)


@contextmanager
def ending_by_signals() -> Iterator[Ending]:
    """Gives what remembers the signals that come meanwhile."""
    ending = Ending()
    before = {number: signal.signal(number, ending.note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield ending
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
