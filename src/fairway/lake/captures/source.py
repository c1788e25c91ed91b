"""`spark.read.format("fairway.capture")`: captures as a source of Spark, one row of `DATAGRAMS` for each record.

    register(spark)
    spark.read.format("fairway.capture").load("folder/*.pcap")
    load(spark, ["large.pcap"], columns=["at", "flow", "udpc_kind"])

Options: `path`, or `paths` as a JSON array; names, globs and folders. `part_bytes`: how much of a plain file one task
reads. `payload`: whether the column is filled. `where`: which rows (see `filters`). `parts`: ranges that were verified
before, as `load` does on the cluster; without them a file that is longer than one part is walked over while Spark
plans. Spark asks no source for fewer columns: name them with `.schema(...)` or `load`, and only those are built.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from fairway.core.errors import BadOption
from fairway.core.tables import DATAGRAMS
from fairway.lake.captures.files import CaptureFile, identity, listed, seen
from fairway.lake.captures.filters import Condition, kept, parsed_conditions
from fairway.lake.captures.parts import PART_BYTES, Part, batches, exact_parts
from fairway.lake.captures.planning import planned, range_of
from fairway.lake.captures.rows import arrow_batch
from fairway.lake.schemas import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NAME = "fairway.capture"
OPTIONS = ("path", "paths", "part_bytes", "payload", "where", "parts")


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The options of one read, checked."""

    paths: tuple[str, ...]
    part_bytes: int = PART_BYTES
    payload: bool = False
    where: tuple[Condition, ...] = ()
    parts: str | None = None

    @staticmethod
    def parsed(options: Mapping[str, str]) -> ReadOptions:
        """Reads Spark's options; raises `BadOption` for one that is unknown or wrong."""
        for name in options:
            if name.lower() not in OPTIONS:
                raise BadOption(f"{NAME} has no option {name!r}; it has {', '.join(OPTIONS)}")
        size = options.get("part_bytes", str(PART_BYTES))
        if not size.isdigit() or int(size) == 0:
            raise BadOption(f"part_bytes is {size!r}; it must be a number of bytes above 0")
        payload = options.get("payload", "false").lower()
        if payload not in ("true", "false"):
            raise BadOption(f"payload is {payload!r}; it must be true or false")
        where = parsed_conditions(options.get("where", "[]"))
        return ReadOptions(_paths(options), int(size), payload == "true", where, options.get("parts"))


def _paths(options: Mapping[str, str]) -> tuple[str, ...]:
    if "path" in options:
        return (options["path"],)
    try:
        paths = json.loads(options.get("paths", "[]"))
    except json.JSONDecodeError:
        paths = None
    if not isinstance(paths, list) or not paths or not all(isinstance(path, str) for path in paths):
        raise BadOption(f"{NAME} needs a path to load, or the option paths as a JSON array of names")
    return tuple(paths)


@dataclass
class CapturePart(InputPartition):
    """What one task reads."""

    part: Part


class CaptureSource(DataSource):
    """Registers the source under its name."""

    @classmethod
    def name(cls) -> str:
        """Gives what stands in `format(...)`."""
        return NAME

    def schema(self) -> StructType:
        """Gives all columns."""
        return spark_schema(DATAGRAMS)

    def reader(self, schema: StructType) -> CaptureReader:
        """Gives a reader of the columns that the schema names."""
        return CaptureReader(ReadOptions.parsed(dict(self.options)), schema)


class CaptureReader(DataSourceReader):
    """Cuts files into parts, and reads one part in each task."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._names = [field.name for field in schema.fields]
        self._nullable = [field.nullable for field in schema.fields]
        known = {field.name: field.dataType for field in spark_schema(DATAGRAMS).fields}
        for field in schema.fields:
            if known.get(field.name) != field.dataType:
                raise BadOption(
                    f"a capture has no column {field.name} {field.dataType.simpleString()}; see docs/tables.md"
                )

    def partitions(self) -> Sequence[InputPartition]:
        """Gives what each task reads."""
        return [CapturePart(part) for part in _parts(self._options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Reads one part."""
        if not isinstance(partition, CapturePart):
            return  # Spark's stand-in for no partitions at all
        for found in batches(partition.part, []):
            batch = found.where(found.piece == 0)
            passed = batch.where(kept(batch, self._options.where)) if self._options.where else batch
            if len(passed):
                yield self._arrow(arrow_batch(passed, self._names, dictionaries=False, payload=self._options.payload))

    def _arrow(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        fields = [field.with_nullable(nullable) for field, nullable in zip(rows.schema, self._nullable, strict=True)]
        return pa.RecordBatch.from_arrays(rows.columns, schema=pa.schema(fields))


def _parts(options: ReadOptions) -> list[Part]:
    if options.parts is not None:
        return [_part(fields) for fields in json.loads(options.parts)]
    parts: list[Part] = []
    for path in listed(options.paths):
        file = seen(path)
        parts += _walked(file, os.stat(path).st_mtime_ns, options.part_bytes)
    return parts


@lru_cache(maxsize=256)
def _walked(file: CaptureFile, modified_ns: int, part_bytes: int) -> tuple[Part, ...]:
    """Spark plans anew for every action, in a process that it may keep: a file that has not changed is walked once."""
    del modified_ns
    return tuple(exact_parts(file, identity(file), part_bytes))


def _part(fields: dict[str, object]) -> Part:
    file, span = fields["file"], fields["range"]
    assert isinstance(file, dict)
    found = range_of(span) if isinstance(span, dict) else None
    return Part(CaptureFile(**file), str(fields["file_id"]), found)


def register(spark: SparkSession) -> None:
    """Makes the source known to a session."""
    spark.dataSource.register(CaptureSource)


def load(
    spark: SparkSession,
    paths: Iterable[str | os.PathLike[str]],
    *,
    columns: Sequence[str] | None = None,
    where: Sequence[tuple[str, str, object]] = (),
    payload: bool = False,
    part_bytes: int = PART_BYTES,
) -> DataFrame:
    """Reads captures with these columns, large files cut by tasks on the cluster. The files must not change."""
    register(spark)
    files = [seen(path) for path in listed(os.fspath(path) for path in paths)]
    parts = planned(spark, [(file, identity(file)) for file in files], part_bytes)
    names = columns or DATAGRAMS.names
    schema = StructType([field for name in names for field in spark_schema(DATAGRAMS).fields if field.name == name])
    reader = spark.read.format(NAME).schema(schema).option("paths", json.dumps([file.path for file in files]))
    reader = reader.options(payload=str(payload).lower(), where=json.dumps(list(where)))
    return reader.option("parts", json.dumps([asdict(part) for part in parts])).load()
