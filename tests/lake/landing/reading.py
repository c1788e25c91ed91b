"""The table as others read it: delta-rs, DuckDB, Polars and Spark, at any moment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import polars
import pyarrow as pa
from pyspark.sql import SparkSession

from fairway.lake import register
from fairway.store.delta import Delta
from fairway.store.locations import location_of
from tests.torture.readers import connected

COLUMNS = "gateway, gateway_offset, protocol, CAST(day AS VARCHAR) AS day, body"


class Read(NamedTuple):
    """One row, as far as it is compared."""

    gateway: str
    gateway_offset: int
    protocol: str
    day: str
    body: bytes


WANTED = pa.schema(
    [
        ("gateway", pa.string()),
        ("gateway_offset", pa.int64()),
        ("protocol", pa.string()),
        ("day", pa.string()),
        ("body", pa.binary()),
    ]
)


def with_delta(table: Path | str) -> list[Read]:
    """Read a table by delta-rs, in the order of the rows' keys."""
    found = pa.Table.from_batches(Delta(location_of(table)).rows(WANTED), WANTED)
    return sorted(Read(**row) for row in found.to_pylist())


def with_duckdb(table: Path | str) -> list[Read]:
    """Read a table with DuckDB, in the order of the rows' keys."""
    with connected(table) as connection:
        found = connection.execute(f"SELECT {COLUMNS} FROM delta_scan('{table}')").fetchall()
    return sorted(Read(*row) for row in found)


def with_polars(table: Path | str) -> list[Read]:
    """Read a table with Polars, in the order of the rows' keys."""
    found = polars.read_delta(str(table)).select(Read._fields).with_columns(polars.col("day").cast(polars.String))
    return sorted(Read(*row) for row in found.iter_rows())


def with_spark(spark: SparkSession) -> Callable[[Path | str], list[Read]]:
    """Return a reader that uses a session."""
    register(spark)

    def read(table: Path | str) -> list[Read]:
        frame = spark.read.format("fairway.delta").load(str(table)).select(*Read._fields)
        return sorted(Read(**(row | {"day": str(row["day"])})) for row in frame.toArrow().to_pylist())

    return read


Readers = tuple[Callable[[Path | str], list[Read]], ...]
READERS: Readers = (with_delta, with_duckdb, with_polars)


def rows(lake: Path, table: str) -> list[dict[str, Any]]:
    """Return all columns of a table of a lake."""
    delta = Delta(location_of(lake / "tables" / table))
    wanted = pa.schema(delta.open().schema())
    return list(pa.Table.from_batches(delta.rows(wanted), wanted).to_pylist())


def doubles(read: list[Read]) -> list[tuple[str, int]]:
    """Return the keys that occur more than once."""
    counted = Counter((row.gateway, row.gateway_offset) for row in read)
    return [key for key, count in counted.items() if count > 1]
