"""The table `messages` as others read it: delta-rs, DuckDB and Polars, each counting rows that are there twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fairway.store.delta import Delta
from fairway.store.places import place_of


def duckdb_with_delta() -> Any:
    """Connect to DuckDB with its extension for Delta, which a package of its own brings along."""
    import duckdb
    import duckdb_extension_delta

    connection = duckdb.connect()
    folder = Path(str(duckdb_extension_delta.__file__)).parent / "extensions"
    (extension,) = folder.glob(f"v{duckdb.__version__}/*.duckdb_extension")
    connection.execute(f"LOAD '{extension}'")
    return connection


def doubles_by_delta(table: Path) -> int:
    """Count rows that are there more than once."""
    import pyarrow as pa

    wanted = pa.schema([("gateway", pa.string()), ("gateway_offset", pa.int64())])
    keys = pa.Table.from_batches(Delta(place_of(table)).rows(wanted), wanted)
    return int(keys.num_rows - keys.group_by(keys.column_names).aggregate([]).num_rows)


def doubles_by_duckdb(table: Path) -> int:
    """Count the same with DuckDB."""
    query = f"SELECT count(*) - count(DISTINCT (gateway, gateway_offset)) FROM delta_scan('{table}')"
    with duckdb_with_delta() as connection:
        return int(connection.execute(query).fetchone()[0])


def doubles_by_polars(table: Path) -> int:
    """Count the same with Polars."""
    import polars

    keys = polars.scan_delta(str(table)).select("gateway", "gateway_offset").collect()
    return int(keys.height - keys.unique().height)
