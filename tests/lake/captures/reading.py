"""Captures read in the test's own process, as tasks read them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa

from fairway.core.tables import DATAGRAMS, RECORDS
from fairway.lake.captures.files import Capture, identity, number_of, seen
from fairway.lake.captures.parts import batches, exact_parts
from fairway.lake.captures.readings import SCHEMA, Readings
from fairway.lake.captures.rows import arrow_batch


def records_of(path: Path, *, part_bytes: int = 1 << 30, payload: bool = True) -> pa.Table:
    """Return the rows of `RECORDS` of one capture."""
    file = seen(str(path))
    parts = exact_parts(file, identity(file), part_bytes)
    read = [
        arrow_batch(batch, RECORDS.names, payload=payload) for part in parts for batch in batches(part, pieces=True)
    ]
    return pa.Table.from_batches(read)


def datagrams_of(paths: Iterable[Path], *, part_bytes: int = 1 << 30, payload: bool = True) -> pa.Table:
    """Return the rows of `DATAGRAMS` of captures, with plain texts."""
    found = []
    for path in paths:
        file_id = identity(seen(str(path)))
        sources = {number_of(file_id): Capture(file_id, path.name, payload)}
        rows = Readings(records_of(path, part_bytes=part_bytes, payload=payload).combine_chunks(), sources)
        found.append(pa.table([rows.array(name).cast(SCHEMA.field(name).type) for name in DATAGRAMS.names], SCHEMA))
    return pa.concat_tables(found)


def datagrams(captures: Iterable[tuple[str, bytes]]) -> pa.Table:
    """Return the rows of `DATAGRAMS` of captures, each a name and the bytes of its file."""
    found = [SCHEMA.empty_table()]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "capture")
        for name, data in captures:
            path.write_bytes(data)
            rows = datagrams_of([path])
            for column, text in (("file", name), ("file_id", f"id of {name}")):
                index = rows.column_names.index(column)
                rows = rows.set_column(index, rows.field(column), pa.array([text] * len(rows), pa.string()))
            found.append(rows.cast(found[0].schema))
    return pa.concat_tables(found)
