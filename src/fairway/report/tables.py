"""The tables of a lake, read batch by batch: a report never holds a table whole."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from fairway.core.errors import BadOption
from fairway.core.tables import CAPTURE_TABLES, Table
from fairway.store.analyses import datasets
from fairway.store.places import place_of

BATCH_ROWS = 65_536
READ_AHEAD_BATCHES = 4
"""Arrow would read sixteen batches of four files ahead of us: a gigabyte for wide rows."""

_ARROW: dict[str, pa.DataType] = {
    "string": pa.string(),
    "long": pa.int64(),
    "int": pa.int32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "date": pa.date32(),
    "binary": pa.binary(),
}


class LakeTables:
    """The capture tables of one lake, all at the newest run that all of them hold; any of them may be missing."""

    def __init__(self, lake: Path | str) -> None:
        place = place_of(lake)
        if place.is_folder and not place.folder.is_dir():
            raise BadOption(f"{lake} is no folder; name the lake that `fairway analyze` has written")
        found = datasets(place)
        self._sets = {
            table.name: _checked(table, found[table.name]) if table.name in found else None for table in CAPTURE_TABLES
        }
        if not any(one is not None for one in self._sets.values()):
            raise BadOption(f"{lake} holds no tables of captures; `fairway analyze FILE... --lake {lake}` writes them")

    def missing(self) -> list[str]:
        """Names the tables that are not there."""
        return [name for name, found in self._sets.items() if found is None]

    def batches(
        self, table: Table, columns: Sequence[str], sessions: Sequence[str] | None = None
    ) -> Iterator[pa.Table]:
        """Return the asked columns of a table piece by piece, those of some sessions only if they are named."""
        found = self._sets[table.name]
        if found is None:
            return
        schema = pa.schema([(name, _ARROW[table.column(name).type]) for name in columns])
        wanted = None if sessions is None else pc.field("session").isin(pa.array(sessions, pa.string()))
        scanner = found.scanner(
            columns=list(columns),
            filter=wanted,
            batch_size=BATCH_ROWS,
            batch_readahead=READ_AHEAD_BATCHES,
            fragment_readahead=1,
        )
        for batch in scanner.to_batches():
            if batch.num_rows:
                yield pa.Table.from_batches([batch]).cast(schema, safe=False)


def _checked(table: Table, found: ds.Dataset) -> ds.Dataset:
    lacking = [name for name in table.names if name not in (*found.schema.names, *table.partitions)]
    if lacking:
        raise BadOption(
            f"the table {table.name} has no column {lacking[0]}: another version of Fairway wrote it; analyse the "
            "captures again"
        )
    return found
