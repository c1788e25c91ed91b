"""`fairway compact`: fewer, larger files, where no stream runs that would do it itself."""

from __future__ import annotations

import time
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING

from fairway.cli import options
from fairway.cli.ending import until_signal
from fairway.cli.status import Status

if TYPE_CHECKING:
    from fairway.store.tending import Compacted


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
        from fairway.lake.landing.housekeeping import compact as compact_lake
        from fairway.store.lakes import Lake

        compact_lake(Lake(lake, create=False), tell)

    began_s = time.monotonic()
    with Status(lambda: f"compacting  {time.monotonic() - began_s:.0f} s  {len(done):,} tables done") as status:
        until_signal(work, "stopped; the tables hold what they held")
    before, after = (sum(getattr(one, name) for one in done) for name in ("files_before", "files_after"))
    total = {"tables": len(done), "before": before, "after": after}
    print(dumps(total) if json else "{tables:,} tables compacted, {before:,} files to {after:,}".format(**total))
