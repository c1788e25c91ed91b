"""Verbs that a signal ends in a way of their own: after what they are doing, or in the middle of a library's work."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event
from types import FrameType
from typing import NoReturn, TypeVar

from fairway.cli.exits import ExitCode
from fairway.cli.status import ERASE

SIGNALS = (signal.SIGINT, signal.SIGTERM)
_PROCESS = os.getpid()

Result = TypeVar("Result")


class Ending:
    """Remembers which signal asked for the end, and says so at once. A second one of the same kind ends at once."""

    def __init__(self, sentence: str = "") -> None:
        self.wanted = Event()
        self.code = ExitCode.DONE
        self.starting = False
        """A second signal does not end at once: a JVM that nobody has spoken to would stay behind."""
        self._sentence = sentence

    def watch(self) -> None:
        """Has SIGINT and SIGTERM ask for the end; again after Spark, which takes SIGINT for itself when it starts."""
        for number in SIGNALS:
            signal.signal(number, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.code = ExitCode.INTERRUPTED if number == signal.SIGINT else ExitCode.DONE
        said = self.wanted.is_set()
        self.wanted.set()  # before anything is said: the next signal may answer that
        if self._sentence and not said:
            _say(self._sentence)
        if not self.starting:
            signal.signal(number, signal.SIG_DFL)


@contextmanager
def ending_by_signals(sentence: str = "") -> Iterator[Ending]:
    """Return what remembers the signals that come meanwhile."""
    ending = Ending(sentence)
    with _handled(ending._note):
        yield ending


def until_signal(work: Callable[[], Result], sentence: str, *, terminated: int = ExitCode.TERMINATED) -> Result:
    """Do work that may be cut off anywhere; a signal ends the process at once, with a sentence.

    `terminated` is what it leaves with on SIGTERM.

    The work has a thread of its own: a call into a library may take minutes, and holds back signals of its thread.
    """

    def leave(number: int, frame: FrameType | None) -> NoReturn:
        _say(sentence)
        # Whoever unwinds would wait for the library.
        os._exit(terminated if number == signal.SIGTERM else ExitCode.INTERRUPTED)

    with _handled(leave), ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result()


@contextmanager
def _handled(handler: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    before = {number: signal.signal(number, handler) for number in SIGNALS}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


def _say(sentence: str) -> None:
    """Write a line to standard error, past Python's buffers: the signal may have come while one was being filled."""
    if os.getpid() != _PROCESS:
        return  # a child of the same group, before it becomes a Java process: its parent says it
    os.write(2, f"{ERASE if sys.stderr.isatty() else ''}fairway: {sentence}\n".encode())
