"""`fairway lab`: many simulated runs on Spark, and one of them again."""

from __future__ import annotations

import sys
import time
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from fairway.cli import options
from fairway.cli.exits import ExitCode
from fairway.cli.loop import complain
from fairway.cli.options import argument, option
from fairway.cli.sim import traced
from fairway.cli.status import AFTER_S, Status

if TYPE_CHECKING:
    from fairway.lake.lab.sweep import LabFolder

lab = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

_JSON = options.json("One JSON object at the end.")


@lab.command()
def run(
    grid: str = argument(..., "GRID.toml", "A file, or the name of a grid: small, standard."),
    out: Path = option(..., metavar="DIR", help="The sweep's folder."),
    master: str = option("local[*,4]", help="Where Spark runs."),
    conf: list[str] = options.CONF,
    json: bool = _JSON,
) -> int:
    """Run every cell of a grid that is not in the folder yet.

    \b
    Example:
      fairway lab run small --out out/lab
    """
    from fairway.cli.ending import ended_by_sigterm
    from fairway.cli.options import settings_of
    from fairway.lake.lab.grid import parse
    from fairway.lake.lab.sweep import LabFolder, sweep
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
            with (
                ended_by_sigterm(),
                started("fairway lab", master=master, settings=settings) as spark,
                _progress(folder),
            ):
                began_s = time.monotonic()
                ran = sweep(spark, folder)
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


def _progress(folder: LabFolder) -> Status:
    """Return the line that shows cells done, their rate and the time left."""
    sizes = {chunk.name: len(chunk.cells) for chunk in folder.pending()}
    total = sum(sizes.values())

    def line(seconds: float) -> str:
        done = sum(sizes[name] for name in folder.done() & sizes.keys())
        left = f", {(total - done) * seconds / done:.0f} s left" if done else ""
        return f"{done:,} of {total:,} runs, {done / seconds:,.1f}/s{left}"

    return Status(line, after_s=AFTER_S)


@lab.command()
def replay(
    folder: Path = argument(..., "DIR", "The sweep's folder."),
    cell: int = option(..., min=0, help="The number of the cell."),
    trace: Path | None = options.TRACE,
    json: bool = _JSON,
) -> int:
    """Run one cell again, here, and compare its digest with the table's.

    \b
    Example:
      fairway lab replay out/lab --cell 17 --trace cell.pcapng
    """
    from fairway.lake.lab.sweep import LabFolder

    found = LabFolder(folder)
    chosen = found.cell(cell)
    row = found.row(cell)
    with traced(trace, chosen.load.flows) as keep:
        result = chosen.run(keep)
    same = row is None or row["digest"] == result.digest
    if json:
        print(dumps({"cell": cell, "same": same, "plan": chosen.plain(), **result.as_dict()}))
    else:
        from fairway.sim.result import summary

        print(f"cell {cell}: {chosen.text()}")
        print(summary(result))
        if same:
            print(f"  the table has {'no row of this cell yet' if row is None else 'the same digest'}")
    if not same:
        return complain(
            f"cell {cell} has the digest {result.digest}, the table has {row and row['digest']}.", ExitCode.FAILED
        )
    return ExitCode.DONE if result.passed else ExitCode.FAILED
