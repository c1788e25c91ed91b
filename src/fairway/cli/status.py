"""One line at the bottom of a terminal that is drawn again and again while something takes its time."""

from __future__ import annotations

import shutil
import sys
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

REFRESH_S = 0.25
ERASE = "\r\x1b[K"


class Status:
    """Shows on standard error what `line` returns, from when it is entered to when it is left.

    Nothing where nobody watches.
    """

    def __init__(self, line: Callable[[], str]) -> None:
        self.shown = sys.stderr.isatty()
        self._line = line
        self._drawing = threading.RLock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._show, daemon=True)

    def __enter__(self) -> Self:
        if self.shown:
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._over.set()
        if self.shown:
            self._thread.join()
            draw("")

    def print(self, text: str) -> None:
        """Print a line to standard output, above this one."""
        with self._drawing:
            if self.shown:
                draw("")
            print(text, flush=True)

    def _show(self) -> None:
        while True:
            with self._drawing:
                draw(self._line())
            if self._over.wait(REFRESH_S):
                return


def draw(text: str) -> None:
    """Replace the line at the bottom; an empty text removes it."""
    print(f"{ERASE}{text[: shutil.get_terminal_size().columns - 1]}", end="", file=sys.stderr, flush=True)
