"""What the benchmarks share: rounds of cells, goals, tables, and the files that a run leaves."""

from __future__ import annotations

import json
import os
import platform
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple, NoReturn

import typer

from fairway.cli.ending import SIGNALS, handled
from fairway.cli.exits import ExitCode
from fairway.core.errors import BadOption

Row = Mapping[str, object]
"""One line of a table: plain values by column name, in the order of the columns."""
Report = Callable[[str, int, int], None]
"""Called with the name of what is being measured, its number, and how many there are."""
INSTALL = "pip install --require-hashes -r requirements/bench.txt"


class CellFailed(Exception):
    """A cell has no result: it took too long, broke, or what arrived was wrong."""


class Key(NamedTuple):
    where: str
    load: str
    peer: str


class Task(NamedTuple):
    """A cell that is still to be measured."""

    key: Key
    title: str
    measure: Callable[[], dict[str, Any]]
    """Raises `CellFailed`."""


@dataclass(slots=True)
class Results:
    """What was measured, round by round; a round that failed is None."""

    rounds: int
    seconds: float
    cells: dict[Key, list[dict[str, Any] | None]] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    """How to install what could not be measured, by the name of the peer."""
    notes: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    more: dict[str, Any] = field(default_factory=dict)
    """What only one of the benchmarks finds."""

    def figures(self, where: str, load: str, peer: str, figure: str = "rate") -> list[float | None]:
        return [one.get(figure) if one else None for one in self.cells.get(Key(where, load, peer), [])]

    def run(self, turns: Sequence[Sequence[Task]], report: Report) -> None:
        """Measure the cells of each round, backwards in every other one: nobody always follows the same neighbour."""
        total, number = sum(map(len, turns)), 0
        for turn, tasks in enumerate(turns):
            for task in tasks if turn % 2 == 0 else tasks[::-1]:
                number += 1
                report(task.title, number, total)
                result: dict[str, Any] | None = None
                try:
                    result = task.measure()
                except CellFailed as reason:
                    self.failures.append(f"round {turn + 1}, {task.title}: {reason}")
                self.cells.setdefault(task.key, []).append(result)

    def remarks(self, *own: str) -> list[str]:
        machine = f"{platform.system()} {platform.release()}, Python {platform.python_version()}"
        plan = f"{self.rounds} rounds of {self.seconds:g} s, interleaved"
        return [
            f"{machine}, {os.cpu_count()} cores; {plan}; medians, and how far from them any round was.",
            *own,
            *self.notes,
            *(f"{name} is missing, install: {how}" for name, how in self.missing.items()),
            *(f"FAILED {failure}" for failure in self.failures),
        ]


@dataclass(frozen=True, slots=True)
class Goal:
    """What is wanted and what each round found, judged by the median."""

    goal: str
    against: str
    wanted: float
    values: Sequence[float]
    at_most: bool = False

    @property
    def met(self) -> bool:
        """Whether the median reaches what is wanted."""
        found = median(self.values)
        return found <= self.wanted if self.at_most else found >= self.wanted

    def row(self) -> Row:
        low, found, high = (_short(one) for one in (min(self.values), median(self.values), max(self.values)))
        return {
            "goal": self.goal,
            "against": self.against,
            "wanted": f"{'at most' if self.at_most else 'at least'} {_short(self.wanted)}",
            "found": f"{found} ({low}..{high})" if len(self.values) > 1 else found,
            "verdict": "met" if self.met else "missed",
        }


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 1_000 else f"{value:.3g}"


def ratios(ours: Sequence[float | None], theirs: Sequence[float | None]) -> list[float]:
    """Return our figure as a multiple of theirs, in each round that has both."""
    return [our / their for our, their in zip(ours, theirs, strict=False) if our and their]


def measured(goals: Iterator[Goal]) -> list[Goal]:
    """Return the goals that a run can judge."""
    return [goal for goal in goals if goal.values]


def spread(values: Sequence[float | None]) -> str:
    """Return the median, how far from it any round was, and how many rounds failed."""
    good = [value for value in values if value is not None]
    if not good:
        return "failed" if values else "-"
    middle = median(good)
    away = f" ±{max(max(good) - middle, middle - min(good)) / middle:.0%}" if len(good) > 1 and middle else ""
    return number(middle) + away + (f", {len(values) - len(good)} failed" if len(good) < len(values) else "")


def number(value: float) -> str:
    """Return three digits, thousands as k and millions as M."""
    for unit, size, scale in (("M", 1e6, 1e6), ("k", 1e4, 1e3)):
        if value >= size:
            scaled = value / scale
            return f"{scaled:.3g}{unit}" if scaled < 100 else f"{scaled:.0f}{unit}"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def chosen(only: str, *kinds: Sequence[str]) -> list[list[str]]:
    """Return the names of each kind that a text joined by commas holds; all of a kind of which it holds none."""
    names = [name.strip() for name in only.split(",") if name.strip()]
    known = [name for kind in kinds for name in kind]
    if unknown := [name for name in names if name not in known]:
        raise BadOption(f"there is nothing called {unknown[0]!r} to measure; known are {', '.join(known)}")
    return [[name for name in kind if name in names] or list(kind) for kind in kinds]


class Tables(NamedTuple):
    """What a benchmark shows: rows by title, among them `Goals`, remarks, and a picture in SVG where it draws one."""

    rows: dict[str, list[Row]]
    remarks: list[str]
    picture: str = ""


def perform(
    name: str,
    results: Results,
    run: Callable[[Report], None],
    show: Callable[[], Tables],
    out: Path,
    *,
    as_json: bool,
) -> None:
    """Run a benchmark to its end, or until it is stopped; print what was measured, write it to `out`, and leave."""
    code = ExitCode.DONE
    try:
        with progress() as report, handled(_stop):
            run(report)
    except Stopped as stopped:
        code = ExitCode.TERMINATED if stopped.signal == signal.SIGTERM else ExitCode.INTERRUPTED
        results.notes.append("The run was stopped before its end.")
    tables, remarks, picture = show()
    out.mkdir(parents=True, exist_ok=True)
    if picture:
        (out / f"{name}.svg").write_text(picture)
    (out / f"{name}.json").write_text(json.dumps(_plain(results, tables), indent=1) + "\n")
    (out / f"{name}.md").write_text(_markdown(tables, remarks))
    for title, rows in tables.items():
        print_rows(({"table": title, **row} for row in rows) if as_json else rows, title=title, as_json=as_json)
    if not as_json:
        print("\n".join([*remarks, f"written: {out}/{name}.json, {name}.md{f', {name}.svg' if picture else ''}"]))
    raise typer.Exit(code or (ExitCode.FAILED if results.failures else ExitCode.DONE))


def _plain(results: Results, tables: Mapping[str, list[Row]]) -> dict[str, Any]:
    return {
        "machine": {"system": platform.platform(), "python": platform.python_version(), "cores": os.cpu_count()},
        "rounds": results.rounds,
        "seconds": results.seconds,
        "missing": results.missing,
        "notes": results.notes,
        "failures": results.failures,
        **results.more,
        "tables": {title: [dict(row) for row in rows] for title, rows in tables.items()},
        "cells": [{**key._asdict(), "rounds": rounds} for key, rounds in results.cells.items()],
    }


def _markdown(tables: Mapping[str, list[Row]], remarks: Sequence[str]) -> str:
    parts = [f"## {title}\n\n{_markdown_table(rows)}" for title, rows in tables.items()]
    return "\n\n".join([*parts, "\n".join(f"- {line}" for line in remarks)]) + "\n"


def _markdown_table(rows: Sequence[Row]) -> str:
    if not rows:
        return "(nothing)"
    lines = ["| " + " | ".join(rows[0]) + " |", "|" + "---|" * len(rows[0])]
    return "\n".join([*lines, *("| " + " | ".join(map(str, row.values())) + " |" for row in rows)])


class Stopped(Exception):
    """Ctrl-C, or SIGTERM: what was measured so far is shown."""

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by signal {number}")
        self.signal = number


def _stop(number: int, _: object) -> NoReturn:
    """End the run by either signal in the same way, so that processes and namespaces are removed."""
    for one in SIGNALS:
        signal.signal(one, signal.SIG_IGN)  # what is being removed is removed
    raise Stopped(number)


@contextmanager
def progress() -> Iterator[Report]:
    """Show which cell is being measured, and how long the rest will take."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda what, number, total: bar.update(task, description=what, completed=number - 1, total=total)


def print_rows(rows: Iterable[Row], *, title: str, as_json: bool) -> None:
    """Print rows as they come with JSON, or all at once as a table."""
    if as_json:
        for row in rows:
            print(json.dumps(row), flush=True)
    else:
        print_table(list(rows), title)


def print_table(rows: list[Row], title: str) -> None:
    """Print a table whose columns are those of its first row; numbers stand on the right."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    table = Table(
        title=title, title_justify="left", box=SIMPLE_HEAD, show_edge=False, collapse_padding=True, pad_edge=False
    )
    for name, value in (rows[0] if rows else {}).items():
        number = isinstance(value, int | float) and not isinstance(value, bool)
        table.add_column(name.replace("_", " "), justify="right" if number else "left")
    for row in rows:
        table.add_row(*(_shown(value) for value in row.values()))
    Console(highlight=False).print(table)


def _shown(value: object) -> str:
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case float():
            return f"{value:,.3g}" if abs(value) < 100 else f"{value:,.0f}"
    return str(value)
