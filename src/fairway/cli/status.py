"""One line at the bottom of a terminal that is drawn again and again while something takes its time."""

from __future__ import annotations

import shutil
import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self

if TYPE_CHECKING:
    from fairway.lake.session import Session as SparkSession

REFRESH_S = 0.2
AFTER_S = 1.0
"""What takes less needs no line."""
ERASE = "\r\x1b[K"

Unit = Literal["bytes", "messages"]


class Status:
    """Shows on standard error what `line` makes of the seconds that have passed, from `after_s` on to the end.

    Nothing where nobody watches.
    """

    def __init__(self, line: Callable[[float], str], *, after_s: float = 0.0) -> None:
        self.shown = sys.stderr.isatty()
        self._line = line
        self._after_s = after_s
        self._began_s = time.monotonic()
        self._drawn = False
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
            self._erase()

    def print(self, text: str) -> None:
        """Print a line to standard output, above this one."""
        with self._drawing:
            self._erase()
            print(text, flush=True)

    def _erase(self) -> None:
        if self._drawn:
            draw("")

    def _show(self) -> None:
        ended = self._over.wait(self._after_s)
        while not ended:
            with self._drawing:
                draw(self._line(time.monotonic() - self._began_s))
                self._drawn = True
            ended = self._over.wait(REFRESH_S)


def draw(text: str) -> None:
    """Replace the line at the bottom; an empty text removes it."""
    print(f"{ERASE}{text[: shutil.get_terminal_size().columns - 1]}", end="", file=sys.stderr, flush=True)


def waiting(url: str) -> Status:
    return Status(lambda seconds: f"waiting for {url}  {seconds:.0f} s", after_s=AFTER_S)


class Progress(Status):
    """Shows how far it is, at which rate, and how long it will take.

    `unless_printing` leaves the terminal to what is printed on standard output.
    """

    def __init__(
        self, what: str, position: Callable[[], int], total: int | None, *, unit: Unit, unless_printing: bool = False
    ) -> None:
        super().__init__(self._text, after_s=AFTER_S)
        self.shown = self.shown and not (unless_printing and sys.stdout.isatty())
        self._what = what
        self._position = position
        self._total = total
        self._unit = unit

    def _text(self, seconds: float) -> str:
        now, total = self._position(), self._total
        rate = now / seconds
        speed = f"{self._amount(rate)}/s"
        words = [self._amount(now), speed]
        if total is not None:
            left = [f"{(total - now) / rate:.0f} s left"] if rate else []
            words = [f"{now / max(total, 1):4.0%} of {self._amount(total)}", speed, *left]
        return "  ".join([self._what, *words, f"{seconds:.0f} s"])

    def _amount(self, count: float) -> str:
        for name, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)) if self._unit == "bytes" else ():
            if count >= size:
                return f"{count / size:,.1f} {name}"
        return f"{count:,.0f} {self._unit}"


class Stages(Status):
    """Shows the step of a piece of work on Spark: rows, rate and what is left.

    What is left is guessed from the share of the steps that is done: a step counts by its tasks.
    """

    def __init__(self, spark: SparkSession, steps: int) -> None:
        super().__init__(self._text)
        self._tracker = spark.sparkContext.statusTracker()
        self._steps = steps
        self._done = -1
        self._what = ""
        self._records = 0

    def __call__(self, what: str, records: int) -> None:
        """Begin the next step; `records` is how many there are in all."""
        self._done += 1
        self._what, self._records = what, records

    def _text(self, seconds: float) -> str:
        share = min(1.0, (max(self._done, 0) + self._share_of_step()) / self._steps)
        words = [f"{share:4.0%}", self._what]
        if self._records and seconds:
            words.append(f"{self._records:,} records ({share * self._records / seconds:,.0f}/s)")
        if share > 0.05:
            words.append(f"{seconds * (1 - share) / share:.0f} s left")
        return "  ".join(words)

    def _share_of_step(self) -> float:
        stages = [self._tracker.getStageInfo(stage) for stage in self._tracker.getActiveStageIds()]
        tasks = sum(stage.numTasks for stage in stages if stage is not None)
        return sum(stage.numCompletedTasks for stage in stages if stage is not None) / tasks if tasks else 0.0
