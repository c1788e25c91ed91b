"""The table as others read it: pyarrow and DuckDB, at any moment."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import NamedTuple

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds

PARTITIONING = ds.partitioning(pa.schema([("day", pa.date32()), ("protocol", pa.string())]), flavor="hive")
_DUCKDB = """
    SELECT gateway, "offset", protocol, CAST(day AS VARCHAR) AS day, body
    FROM read_parquet($files, hive_partitioning = true)
"""


class Read(NamedTuple):
    """One row, as far as it is compared."""

    gateway: str
    offset: int
    protocol: str
    day: str
    body: bytes


def with_pyarrow(table: Path) -> list[Read]:
    """Reads a table as a pyarrow dataset, in the order of the rows' keys."""
    found = ds.dataset(table, format="parquet", partitioning=PARTITIONING).to_table(columns=list(Read._fields))
    rows = [Read(**(row | {"day": str(row["day"])})) for row in found.to_pylist()]
    return sorted(rows)


def with_duckdb(table: Path) -> list[Read]:
    """Reads a table with DuckDB, in the order of the rows' keys."""
    with duckdb.connect() as connection:
        found = connection.execute(_DUCKDB, {"files": f"{table}/**/*.parquet"}).fetchall()
    return sorted(Read(*row) for row in found)


def doubles(rows: list[Read]) -> list[tuple[str, int]]:
    """Gives the keys that occur more than once."""
    counted = Counter((row.gateway, row.offset) for row in rows)
    return [key for key, count in counted.items() if count > 1]
