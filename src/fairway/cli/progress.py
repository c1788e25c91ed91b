"""How far it is, on one line of the terminal, for what takes longer than a second."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Literal

from fairway.cli.status import draw

BEGIN_S = 1.0
REFRESH_S = 0.1

Unit = Literal["bytes", "messages", "seconds"]


@asynccontextmanager
async def progress(
    what: str, position: Callable[[], int], total: int | None, *, unit: Unit, unless_printing: bool = False
) -> AsyncIterator[None]:
    """Show how far it is, at which rate, and how long it will take, from the second second on.

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
    await asyncio.sleep(BEGIN_S)
    loop = asyncio.get_running_loop()
    began_s, began_at = loop.time(), position()
    try:
        while True:
            await asyncio.sleep(REFRESH_S)
            spent_s, now = loop.time() - began_s, position()
            draw("  ".join([what, *_words(now, total, unit, (now - began_at) / spent_s), f"{spent_s + BEGIN_S:.0f} s"]))
    finally:
        draw("")


def _words(now: int, total: int | None, unit: Unit, rate: float) -> list[str]:
    if unit == "seconds":
        return []
    speed = f"{_amount(rate, unit)}/s"
    if total is None:
        return [_amount(now, unit), speed]
    left = [f"{(total - now) / rate:.0f} s left"] if rate else []
    return [f"{now / max(total, 1):4.0%} of {_amount(total, unit)}", speed, *left]


def _amount(count: float, unit: Unit) -> str:
    for name, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)) if unit == "bytes" else ():
        if count >= size:
            return f"{count / size:,.1f} {name}"
    return f"{count:,.0f} {unit}"
