"""A command on a terminal of its own, as a person sees it."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from select import select
from typing import IO

from tests.acceptance.raw import PATIENCE_S


class Screen:
    """What a command has written to its terminal so far."""

    def __init__(self, process: subprocess.Popen[bytes], terminal: int) -> None:
        self.process = process
        self._terminal = terminal
        self.text = ""

    def until(self, wanted: str) -> str:
        """Read until the text is there."""
        end = time.monotonic() + PATIENCE_S
        while wanted not in self.text:
            left_s = end - time.monotonic()
            assert left_s > 0, f"{wanted!r} never came, but {self.text!r}"
            self._read(left_s)
        return self.text

    def rest(self) -> str:
        """Read until the command has ended."""
        with suppress(OSError):  # the terminal is gone when its last writer is
            while self._read(PATIENCE_S):
                pass
        self.process.wait(PATIENCE_S)
        return self.text

    def _read(self, within_s: float) -> bool:
        if not select([self._terminal], [], [], within_s)[0]:
            return False
        chunk = os.read(self._terminal, 65_536)
        self.text += chunk.decode()
        return bool(chunk)


@contextmanager
def on_terminal(*arguments: str, stdin: int | IO[bytes] = subprocess.DEVNULL) -> Iterator[Screen]:
    """Run `fairway` with both outputs on a terminal."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "fairway", *arguments],
        stdin=stdin,
        stdout=theirs,
        stderr=theirs,
        env=os.environ | {"TERM": "xterm", "COLUMNS": "120"},
    )
    os.close(theirs)
    try:
        yield Screen(process, ours)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        os.close(ours)
