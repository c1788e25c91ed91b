"""The table `messages` of one gateway as others read it: delta-rs, DuckDB, Polars and Spark, each by its own means.

python -m tests.torture.readers     is Spark's: it reads the table that a line of its input names, and answers
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from fairway.core.errors import FairwayError
from fairway.demo.services import process
from fairway.store.delta import Delta
from fairway.store.locations import location_of

COUNTS = "count(*)", "count(DISTINCT gateway, gateway_offset)", "coalesce(max(gateway_offset) + 1, 0)"
SPARK_SETTINGS = {
    # Small data, and many starts: what helps a long-running job only costs here.
    "spark.sql.shuffle.partitions": "1",
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
}


class ReaderFailed(FairwayError):
    """Spark could not read; the message says why."""


class Seen(NamedTuple):
    """What a reader counted."""

    rows: int
    different: int
    end: int
    """Behind the highest offset."""

    @property
    def whole(self) -> bool:
        """Whether every offset up to the end is there, each once."""
        return self.rows == self.different == self.end


Reader = Callable[[str], Seen]


def duckdb_with_delta(table: Path | str = "") -> Any:
    """Connect to DuckDB with its extensions for Delta and for object stores, which packages of their own bring along.

    For a table in an object store it is given the credentials of the environment.
    """
    import duckdb

    remote = os.environ["AWS_ENDPOINT_URL"] if "://" in str(table) else ""
    connection = duckdb.connect()
    for package in ("duckdb_extension_delta", *(["duckdb_extension_httpfs"] if remote else [])):
        folder = Path(str(importlib.import_module(package).__file__)).parent / "extensions"
        (extension,) = folder.glob(f"v{duckdb.__version__}/*.duckdb_extension")
        connection.execute(f"LOAD '{extension}'")
    if remote:
        scheme, _, endpoint = remote.partition("://")
        key, secret = os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"]
        connection.execute(
            f"CREATE SECRET (TYPE s3, KEY_ID '{key}', SECRET '{secret}', ENDPOINT '{endpoint}', "
            f"REGION '{os.environ['AWS_REGION']}', URL_STYLE 'path', USE_SSL {scheme == 'https'})"
        )
    return connection


@cache
def _connection(endpoint: str | None) -> Any:
    return duckdb_with_delta("s3://" if endpoint else "")


def connected(table: Path | str) -> Any:
    """Return a cursor to DuckDB; its extensions take 0.4 s of a core to load, and every query opens its table anew."""
    return _connection(os.environ["AWS_ENDPOINT_URL"] if "://" in str(table) else None).cursor()


def by_delta(table: str) -> Seen:
    """Count with delta-rs and Arrow."""
    import pyarrow.compute as pc

    keys = Delta(location_of(table)).open().to_pyarrow_table(columns=["gateway", "gateway_offset"])
    different = keys.group_by(keys.column_names).aggregate([]).num_rows
    return Seen(keys.num_rows, different, 1 + (pc.max(keys["gateway_offset"]).as_py() if keys.num_rows else -1))


def by_duckdb(table: str) -> Seen:
    """Count with DuckDB."""
    counts = ", ".join(COUNTS).replace("DISTINCT gateway, gateway_offset", "DISTINCT (gateway, gateway_offset)")
    with connected(table) as connection:
        return Seen(*connection.execute(f"SELECT {counts} FROM delta_scan('{table}')").fetchone())


def by_polars(table: str) -> Seen:
    """Count with Polars."""
    import polars

    keys = polars.scan_delta(table).select("gateway", "gateway_offset").collect()
    return Seen(
        keys.height, keys.unique().height, 1 + keys.select(polars.col("gateway_offset").max().fill_null(-1)).item()
    )


@contextmanager
def by_spark(environment: Mapping[str, str] | None = None) -> Iterator[Reader]:
    """Run a Spark in a process of its own, and return a reader that asks it."""
    with process([sys.executable, "-m", "tests.torture.readers"], environment) as child:
        asked, answers = child.stdin, child.stdout
        assert asked is not None
        assert answers is not None

        def read(table: str) -> Seen:
            asked.write(f"{table}\n".encode())
            asked.flush()
            found = json.loads(answers.readline() or '"Spark is gone"')
            if isinstance(found, str):
                raise ReaderFailed(found)
            return Seen(*found)

        yield read


@contextmanager
def readers(environment: Mapping[str, str] | None = None) -> Iterator[dict[str, Reader]]:
    """Return everybody who reads, by name, for the time of the block."""
    with by_spark(environment) as spark:
        yield {"delta-rs": by_delta, "DuckDB": by_duckdb, "Polars": by_polars, "Spark": spark}


def main() -> None:
    """Answer every line with the counts, or with what went wrong."""
    from fairway.lake import register
    from fairway.lake.session import started

    with started("fairway torture", master="local[1]", settings=SPARK_SETTINGS) as spark:
        register(spark)
        for line in sys.stdin:
            try:
                keys = spark.read.format("fairway.delta").schema("gateway STRING, gateway_offset BIGINT")
                answer: Any = list(keys.load(line.strip()).selectExpr(*COUNTS).head() or ())
            except Exception as error:
                answer = f"{type(error).__name__}: {error}"
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
