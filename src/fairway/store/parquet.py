"""The tables of `core/tables.py` in Arrow's types, and Parquet files read batch by batch, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa
import pyarrow.parquet as pq

from fairway.core.tables import Table
from fairway.store.locations import Location

ROWS_MAX = 16_384
BATCH_BYTES = 8 << 20
"""What one Arrow batch holds, whichever comes first; bodies may be large."""


def arrow_schema(table: Table) -> pa.Schema:
    """Return the table's columns as an Arrow schema, of the types that Spark takes without a cast."""
    kinds = {
        "string": pa.string(),
        "long": pa.int64(),
        "int": pa.int32(),
        "double": pa.float64(),
        "boolean": pa.bool_(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "date": pa.date32(),
        "binary": pa.binary(),
    }
    return pa.schema([pa.field(column.name, kinds[column.type], column.nullable) for column in table.columns])


def batches(
    location: Location, name: str, wanted: pa.Schema, constants: Mapping[str, str | None] | None = None
) -> Iterator[pa.RecordBatch]:
    """Read a file as batches of the wanted columns; one that the file lacks is a constant given as text, or null."""
    constants = constants or {}
    with location.open(name) as opened, pq.ParquetFile(opened) as file:
        there = [field.name for field in wanted if field.name in file.schema_arrow.names]
        for batch in file.iter_batches(_rows_at_once(file.metadata), columns=there):
            columns = []
            for field in wanted:
                if field.name in there:
                    columns.append(batch.column(field.name).cast(field.type))
                else:
                    value = pa.scalar(constants.get(field.name), pa.string()).cast(field.type)
                    columns.append(pa.repeat(value, len(batch)))
            yield pa.record_batch(columns, schema=wanted)


def _rows_at_once(metadata: pq.FileMetaData) -> int:
    rows = int(metadata.num_rows)
    size_bytes = sum(metadata.row_group(index).total_byte_size for index in range(metadata.num_row_groups))
    return max(1, min(ROWS_MAX, BATCH_BYTES * rows // max(1, int(size_bytes))))
