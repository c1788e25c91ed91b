"""Captures that are bytes as rows of `DATAGRAMS`, each under a name of its own."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa

from fairway.core.tables import DATAGRAMS
from fairway.lake.schemas import arrow_schema
from tests.lake.captures.reading import datagrams_of


def datagrams(captures: Iterable[tuple[str, bytes]]) -> pa.Table:
    """Return the rows of captures, each a name and the bytes of its file."""
    found = [arrow_schema(DATAGRAMS).empty_table()]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "capture")
        for name, data in captures:
            path.write_bytes(data)
            rows = datagrams_of([path])
            for column, text in (("file", name), ("file_id", f"id of {name}")):
                place = rows.column_names.index(column)
                rows = rows.set_column(place, rows.field(column), pa.array([text] * len(rows), pa.string()))
            found.append(rows.cast(found[0].schema))
    return pa.concat_tables(found)
