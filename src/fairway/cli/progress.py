"""A progress bar on standard error, for what takes longer than a second on a terminal.

`rich` is loaded when the second is over, so that a quick command never pays for it.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from rich.progress import Progress

PATIENCE_S = 1.0
REFRESH_S = 0.1

Unit = Literal["bytes", "messages", "seconds"]


@asynccontextmanager
async def progress(
    what: str, position: Callable[[], int], total: int | None, *, unit: Unit, unless_printing: bool = False
) -> AsyncIterator[None]:
    """Shows how far it is, at which rate, and how long it will take, from the second second on.

    `unless_printing` leaves the terminal to what is printed on standard output.
    """
    if not sys.stderr.isatty() or (unless_printing and sys.stdout.isatty()):
        yield
        return
    task = asyncio.get_running_loop().create_task(_show(what, position, total, unit))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def _show(what: str, position: Callable[[], int], total: int | None, unit: Unit) -> None:
    await asyncio.sleep(PATIENCE_S)
    with _bar(unit, total) as bar:
        loop = asyncio.get_running_loop()
        began_s, began_at = loop.time(), position()
        line = bar.add_task(what, total=total, completed=began_at, rate="")
        while True:
            await asyncio.sleep(REFRESH_S)
            now = position()
            rate = round((now - began_at) / (loop.time() - began_s))
            bar.update(line, completed=now, rate=_shown_rate(rate, unit))
            bar.refresh()


def _shown_rate(rate: int, unit: Unit) -> str:
    from rich.filesize import decimal

    return f"{decimal(rate)}/s" if unit == "bytes" else f"{rate:,}/s"


def _bar(unit: Unit, total: int | None) -> Progress:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        ProgressColumn,
        SpinnerColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns: list[ProgressColumn] = [
        SpinnerColumn() if total is None else BarColumn(),
        TextColumn("{task.description}"),
    ]
    if unit == "bytes":
        columns.append(DownloadColumn())
    elif unit == "messages":
        columns.append(TextColumn("{task.completed:,.0f} messages"))
    if unit != "seconds":
        columns.append(TextColumn("{task.fields[rate]}"))
    columns += [TimeElapsedColumn() if total is None else TimeRemainingColumn()]
    return Progress(*columns, console=Console(stderr=True), transient=True, auto_refresh=False)
