"""`fairway reconcile`: is everything that was acknowledged in the table, once."""

from __future__ import annotations

import time
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING

from fairway.cli import options
from fairway.cli.ending import until_signal
from fairway.cli.exits import ExitCode
from fairway.cli.status import Status

if TYPE_CHECKING:
    from fairway.lake.landing.reconcile import Account

FIGURES = ("acknowledged", "on_the_way", "in_tables", "missing", "double")


def reconcile(
    lake: Path = options.LAKE,
    journal: Path | None = options.option(
        None, metavar="DIR", help="Where gateways keep their journals, if not in the lake."
    ),
    json: bool = options.json("One JSON object per gateway, and one at the end."),
) -> int:
    """Count whether everything that was acknowledged is in the table, once.

    Works while gateways and stream run, and needs no Spark. Leaves with 0 only if nothing is missing, double or
    unexplained (in the table, but acknowledged by no journal). A gateway whose journal is out of reach is counted from
    its segments and the table.
    """

    def work() -> list[Account]:
        from fairway.lake.landing.reconcile import reconcile as account
        from fairway.store.lakes import Lake

        return account(Lake(lake, create=False), journal)

    began_s = time.monotonic()
    with Status(lambda: f"counting  {time.monotonic() - began_s:.0f} s"):
        accounts = until_signal(work, "stopped; nothing was counted to the end")
    names = (*FIGURES, "unexplained")
    total = {name: sum(getattr(one, name) for one in accounts) for name in names}
    rows: list[dict[str, object]] = [*(one.as_row() for one in accounts), {"gateway": None, **total}]
    for row in rows:
        print(dumps(row) if json else _line(row, alone=len(rows) == 1))
    return ExitCode.DONE if all(one.balanced for one in accounts) else ExitCode.FAILED


def _line(row: dict[str, object], *, alone: bool) -> str:
    figures = ", ".join(f"{row[name]:,} {name.replace('_', ' ')}" for name in FIGURES)
    if row["unexplained"]:
        figures += f", {row['unexplained']:,} unexplained"
    return f"{row['gateway'] or ('no gateway yet' if alone else 'all')}: {figures}"
