"""The tables of a lake, read batch by batch: a report never holds a table whole."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from fairway.core.errors import BadOption
from fairway.core.tables import CAPTURE_TABLES, Table
from fairway.store.analyses import datasets
from fairway.store.locations import location_of
from fairway.store.parquet import arrow_schema

BATCH_ROWS = 65_536
READ_AHEAD_BATCHES = 4
"""Arrow would read sixteen batches of four files ahead of us: a gigabyte for wide rows."""


Key = tuple[str, str]
"""Session and point."""
Row = dict[str, Any]


class LakeTables:
    """The capture tables of one lake, all at the newest run that all of them hold; any of them may be missing."""

    def __init__(self, lake: Path | str) -> None:
        location = location_of(lake)
        if location.is_folder and not location.folder.is_dir():
            raise BadOption(f"{lake} is no folder; name the lake that `fairway analyze` has written")
        found = datasets(location)
        self._sets = {
            table.name: _checked(table, found[table.name]) if table.name in found else None for table in CAPTURE_TABLES
        }
        if not any(one is not None for one in self._sets.values()):
            raise BadOption(f"{lake} holds no tables of captures; `fairway analyze FILE... --lake {lake}` writes them")

    def missing(self) -> list[str]:
        """Return the names of the tables that are not there."""
        return [name for name, found in self._sets.items() if found is None]

    def batches(
        self, table: Table, columns: Sequence[str], sessions: Sequence[Row] | None = None
    ) -> Iterator[pa.Table]:
        """Return the asked columns of a table piece by piece, of all or of some rows of the sessions table."""
        found = self._sets[table.name]
        names = None if sessions is None else sorted({row["session"] for row in sessions})
        if found is None or names == []:
            return
        kinds = arrow_schema(table)
        schema = pa.schema([(name, kinds.field(name).type) for name in columns])
        wanted = None if names is None else pc.field("session").isin(pa.array(names, pa.string()))
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


def key_of(row: Row) -> Key:
    return row["session"], row["point"]


def by_session(batch: pa.Table, known: Collection[Key]) -> Iterator[tuple[Key, pa.Table]]:
    """Cut a batch by session and point, and return the pieces of those that are known."""
    for key in map(key_of, batch.group_by(["session", "point"]).aggregate([]).to_pylist()):
        if key in known:
            yield key, batch.filter(pc.and_(pc.equal(batch["session"], key[0]), pc.equal(batch["point"], key[1])))


def rows_of(table: pa.Table, columns: Iterable[str]) -> list[Row]:
    """Return plain rows; times in microseconds since 1970."""
    found = table.select(list(columns))
    plain = [pa.int64() if pa.types.is_timestamp(field.type) else field.type for field in found.schema]
    rows: list[Row] = found.cast(pa.schema(zip(found.column_names, plain, strict=True))).to_pylist()
    return rows


def _checked(table: Table, found: ds.Dataset) -> ds.Dataset:
    lacking = [name for name in table.names if name not in (*found.schema.names, *table.partitions)]
    if lacking:
        raise BadOption(
            f"the table {table.name} has no column {lacking[0]}: another version of Fairway wrote it; analyse the "
            "captures again"
        )
    return found
