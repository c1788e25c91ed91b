"""Verbs that a signal ends in a way of their own: after what they are doing, or in the middle of a library's work."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from threading import Event, Thread
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
        """A second signal does not end at once: a JVM that nobody has a connection to would stay behind."""
        self._sentence = sentence

    def watch(self) -> None:
        """Have SIGINT and SIGTERM ask for the end; again after Spark, which takes SIGINT for itself when it starts."""
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
    with handled(ending._note):
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

    with handled(leave), ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result()


@contextmanager
def handled(handler: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    """Have a handler take both signals meanwhile."""
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


CANCEL_AGAIN_S = 0.2


@contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """Let SIGTERM unwind the verb, so that Spark and what it started end with it.

    Where the verb waits for the JVM, an exception would leave half an answer unread, and Spark would wait for the rest
    of its job all the same. So there the jobs are cancelled, until that has unwound the verb.
    """
    requested, unwound = Event(), Event()

    def leave(number: int, frame: FrameType | None) -> None:
        requested.set()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if not _waits_for_the_jvm(frame):
            raise SystemExit(ExitCode.TERMINATED)
        Thread(target=_cancel_until, args=(unwound,), daemon=True).start()

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    except Exception:
        if not requested.is_set():
            raise
    finally:
        unwound.set()
        signal.signal(signal.SIGTERM, before)
    if requested.is_set():
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
