"""`fairway compact`: fewer, larger files, where no stream runs that would do it itself."""

from __future__ import annotations

from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from fairway.lake.landing.compaction import Compacted

_LAKE = typer.Option(..., "--lake", metavar="DIR", show_default=False, help="The lake's folder.")
_JSON = typer.Option(False, "--json", help="One JSON object per folder, and one at the end.")


def compact(lake: Path = _LAKE, json: bool = _JSON) -> None:
    """Merge the small files of the landed tables, a folder at a time.

    Needs no Spark. Refused while a stream runs, which compacts closed days itself.
    """
    from fairway.lake.landing.stream import compact as compact_lake
    from fairway.lake.store import Lake

    opened = Lake(lake, create=False)
    done: list[Compacted] = []

    def tell(folder: Compacted) -> None:
        done.append(folder)
        place = folder.folder.relative_to(opened.tables)
        row = {"folder": str(place), "before": folder.files_before, "after": folder.files_after, "rows": folder.rows}
        print(
            dumps(row) if json else "{folder}: {before:,} files to {after:,}, {rows:,} rows".format(**row), flush=True
        )

    compact_lake(opened, tell)
    before, after = (sum(getattr(one, name) for one in done) for name in ("files_before", "files_after"))
    total = {"folders": len(done), "before": before, "after": after}
    print(dumps(total) if json else "{folders:,} folders compacted, {before:,} files to {after:,}".format(**total))
