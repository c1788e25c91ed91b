"""What is done with landed tables without Spark: `fairway reconcile` counts, `fairway compact` merges small files."""

from __future__ import annotations

from dataclasses import asdict
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING

from fairway.cli import options
from fairway.cli.ending import until_signal
from fairway.cli.exits import ExitCode
from fairway.cli.status import Status

if TYPE_CHECKING:
    from fairway.lake.landing.reconcile import Account
    from fairway.store.tending import Compacted

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

    with Status(lambda seconds: f"counting  {seconds:.0f} s"):
        accounts = until_signal(work, "stopped; nothing was counted to the end")
    names = (*FIGURES, "unexplained")
    total = {name: sum(getattr(one, name) for one in accounts) for name in names}
    rows: list[dict[str, object]] = [*(asdict(one) for one in accounts), {"gateway": None, **total}]
    for row in rows:
        print(dumps(row) if json else _line(row, alone=len(rows) == 1))
    return ExitCode.DONE if all(one.balanced for one in accounts) else ExitCode.FAILED


def _line(row: dict[str, object], *, alone: bool) -> str:
    figures = ", ".join(f"{row[name]:,} {name.replace('_', ' ')}" for name in FIGURES)
    if row["unexplained"]:
        figures += f", {row['unexplained']:,} unexplained"
    return f"{row['gateway'] or ('no gateway yet' if alone else 'all')}: {figures}"


def compact(
    lake: Path = options.LAKE, json: bool = options.json("One JSON object per table, and one at the end.")
) -> None:
    """Merge the small files of all tables, and remove files that were replaced long ago.

    Needs no Spark. Refused while a stream runs, which compacts the tables itself.
    """
    done: list[Compacted] = []

    def tell(table: Compacted) -> None:
        done.append(table)
        row = {"table": table.table, "before": table.files_before, "after": table.files_after}
        status.print(dumps(row) if json else "{table}: {before:,} files to {after:,}".format(**row))

    def work() -> None:
        from fairway.lake.landing.tables import compact as compact_lake
        from fairway.store.lakes import Lake

        compact_lake(Lake(lake, create=False), tell)

    with Status(lambda seconds: f"compacting  {seconds:.0f} s  {len(done):,} tables done") as status:
        until_signal(work, "stopped; the tables hold what they held")
    before, after = (sum(getattr(one, name) for one in done) for name in ("files_before", "files_after"))
    total = {"tables": len(done), "before": before, "after": after}
    print(dumps(total) if json else "{tables:,} tables compacted, {before:,} files to {after:,}".format(**total))
