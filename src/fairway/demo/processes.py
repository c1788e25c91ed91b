"""Processes that are started here end here: by their id, also on failure and on Ctrl-C."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

END_S = 5.0
ENDING = (signal.SIGINT, signal.SIGTERM)


class HeldSignals:
    """Holds back Ctrl-C and SIGTERM: one between the fork and the line that notes the child would leave it running.

    Only the main thread is interrupted by signals; elsewhere there is nothing to hold.
    """

    def __init__(self) -> None:
        self._came: list[int] = []
        in_main = threading.current_thread() is threading.main_thread()
        numbers = ENDING if in_main else ()
        self._earlier = {number: signal.signal(number, self._hold) for number in numbers}

    def _hold(self, number: int, frame: object) -> None:
        self._came.append(number)

    def release(self) -> None:
        """Lets signals through again, those that came meanwhile first."""
        for number, handler in self._earlier.items():
            signal.signal(number, handler)
        for came in self._came:
            signal.raise_signal(came)


@contextmanager
def process(command: Sequence[str], environment: Mapping[str, str] | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """Runs a program in a session of its own, so that Ctrl-C reaches this process alone, and ends it at the end."""
    everything = {**os.environ, **(environment or {})}
    pipe = subprocess.PIPE
    held = HeldSignals()
    try:
        child = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True, env=everything)
    except BaseException:
        held.release()
        raise
    try:
        held.release()
        yield child
    finally:
        child.kill()
        child.wait(END_S)
        for stream in (child.stdin, child.stdout, child.stderr):
            if stream is not None:
                stream.close()
