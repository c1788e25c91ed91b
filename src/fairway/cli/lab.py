"""`fairway lab`: many simulated runs on Spark, and one of them again."""

from __future__ import annotations

import sys
import time
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from fairway.cli.exits import ExitCode
from fairway.cli.loop import complain

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

lab = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

_GRID = typer.Argument(
    ..., metavar="GRID.toml", show_default=False, help="A file, or the name of a grid: small, standard."
)
_OUT = typer.Option(..., metavar="DIR", help="The sweep's folder.", show_default=False)
_MASTER = typer.Option("local[*,4]", help="Where Spark runs.")
_CONF = typer.Option([], "--conf", metavar="KEY=VALUE", help="A setting of Spark.", show_default=False)
_JSON = typer.Option(False, "--json", help="One JSON object at the end.")
_DIR = typer.Argument(..., metavar="DIR", show_default=False, help="The sweep's folder.")
_CELL = typer.Option(..., min=0, help="The number of the cell.", show_default=False)
_TRACE = typer.Option(None, metavar="FILE.pcapng", help="Record every datagram.", show_default=False)


@lab.command()
def run(
    grid: str = _GRID,
    out: Path = _OUT,
    master: str = _MASTER,
    conf: list[str] = _CONF,
    json: bool = _JSON,
) -> int:
    """Run every cell of a grid that is not in the folder yet.

    \b
    Example:
      fairway lab run small --out out/lab
    """
    from fairway.cli.spark import ended_by_sigterm, settings_of
    from fairway.lake.lab.folder import LabFolder
    from fairway.lake.lab.grid import parse
    from fairway.lake.lab.sweep import sweep
    from fairway.lake.session import started

    text, name = _grid(grid)
    cells = parse(text, name)
    folder = LabFolder(out)
    folder.prepare()
    folder.add(cells)
    began_s = time.monotonic()
    ran = 0
    settings = settings_of(conf)
    if folder.pending():
        try:
            with ended_by_sigterm(), started("fairway lab", master=master, settings=settings) as spark, _Bar() as bar:
                began_s = time.monotonic()
                ran = sweep(spark, folder, bar.show)
        except (KeyboardInterrupt, SystemExit) as ending:
            left = sum(len(chunk.cells) for chunk in folder.pending())
            print(f"stopped; {left:,} of {folder.count():,} cells are left for the same command", file=sys.stderr)
            return ExitCode.TERMINATED if isinstance(ending, SystemExit) else ExitCode.INTERRUPTED
    _tell(folder.count(), ran, time.monotonic() - began_s, folder.runs, as_json=json)
    return ExitCode.DONE


def _grid(name: str) -> tuple[str, str]:
    """Return the text of a grid: a file, or one of those that come with Fairway."""
    from importlib.resources import files

    from fairway.lake.lab.grid import BadGrid

    path = Path(name)
    shipped = files("fairway.lake.lab") / "grids" / f"{name}.toml"
    try:
        return (shipped.read_text(), name) if shipped.is_file() and not path.exists() else (path.read_text(), path.name)
    except (OSError, UnicodeDecodeError) as error:
        raise BadGrid(f"{name} cannot be read: {getattr(error, 'strerror', None) or 'it is not text'}.") from error


def _tell(cells: int, ran: int, seconds: float, runs: Path, *, as_json: bool) -> None:
    if as_json:
        print(dumps({"cells": cells, "ran": ran, "seconds": round(seconds, 3), "table": str(runs)}))
        return
    rate = f", {ran / seconds:,.1f} a second" if ran and seconds else ""
    print(
        f"{cells:,} cells, {ran:,} run now in {seconds:.1f} s{rate}, {cells - ran:,} there before; the table is {runs}"
    )


class _Bar:
    """Shows cells done, their rate and the time left, on a terminal."""

    def __init__(self) -> None:
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._began_s = time.monotonic()

    def __enter__(self) -> _Bar:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

            columns = (
                BarColumn(),
                TextColumn("{task.completed:,.0f} of {task.total:,.0f} runs, {task.fields[rate]:,.1f}/s"),
                TimeRemainingColumn(),
            )
            self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def show(self, done: int, total: int) -> None:
        """Takes what the sweep reports."""
        if self._bar is None:
            return
        if self._task is None:
            self._task = self._bar.add_task("runs", total=total, rate=0.0)
        self._bar.update(self._task, completed=done, rate=done / (time.monotonic() - self._began_s))


@lab.command()
def replay(folder: Path = _DIR, cell: int = _CELL, trace: Path | None = _TRACE, json: bool = _JSON) -> int:
    """Run one cell again, here, and compare its digest with the table's.

    \b
    Example:
      fairway lab replay out/lab --cell 17 --trace cell.pcapng
    """
    from fairway.lake.lab.folder import LabFolder

    found = LabFolder(folder)
    chosen = found.cell(cell)
    row = found.row(cell)
    if trace is None:
        result = chosen.run()
    else:
        from fairway.sim.trace import tracer

        points = ["server", *(f"client {number}" for number in range(1, chosen.load.flows + 1)), "hostile"]
        with trace.open("wb") as file:
            result = chosen.run(tracer(file.write, points))
    same = row is None or row["digest"] == result.digest
    if json:
        print(dumps({"cell": cell, "same": same, "plan": chosen.plain(), **result.as_dict()}))
    else:
        from fairway.sim.summary import summary

        print(f"cell {cell}: {chosen.text()}")
        print(summary(result))
        print(
            "  the table has no row of this cell yet"
            if row is None
            else "  the table has the same digest"
            if same
            else ""
        )
    if not same:
        return complain(
            f"cell {cell} has the digest {result.digest}, the table has {row and row['digest']}.", ExitCode.FAILED
        )
    return ExitCode.DONE if result.passed else ExitCode.FAILED
