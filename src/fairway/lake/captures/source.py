"""`spark.read.format("fairway.capture")`: captures as a source of Spark, one row of `RECORDS` for each record.

    register(spark)
    spark.read.format("fairway.capture").load("folder/*.pcap")
    spark.read.format("fairway.capture").option("map", "udpc=9000 mrp=8192").load("large.pcap")
    load(spark, ["large.pcap"], columns=["at_ns", "flow"])

Options: `path`, or `paths` as a JSON array; names, globs and folders, here or in an object store (`s3://...`).
`part_bytes`: how much of a plain file one task reads. `payload`: whether `head` is all of it. `pieces`: whether rows of
datagrams that may have been merged into a record stand behind it (see `merged.py`). `map`: what is spoken on
ports; datagrams of these ports are decoded, one by one (`MAPPED`). `parts`: ranges that were verified before, as `load`
does on the cluster; without them a file that is longer than one part is walked over while Spark plans. Spark asks no
source for fewer columns: name them with `.schema(...)` or `load`, and only those are built.
"""

from __future__ import annotations

import json
import os
import pickle
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from fairway.core.errors import BadOption
from fairway.core.tables import MAPPED, PROTOCOLS, RECORDS
from fairway.lake import shared_out
from fairway.lake.arrays import MISSING, Codes, named
from fairway.lake.captures.files import CaptureFile, identity, is_address, listed, seen
from fairway.lake.captures.parts import PART_BYTES, Part, batches, exact_parts, planned
from fairway.lake.captures.readings import Readings
from fairway.lake.captures.recognition import parsed_port_map, protocols_by_port
from fairway.lake.captures.rows import Batch, arrow_batch
from fairway.lake.schemas import arrow_schema, spark_schema

SCHEMA = arrow_schema(MAPPED)
_NEEDED = ("source_port", "destination_port", "undecoded", "head", "payload_bytes", "payload_crc")


def mapped_batch(batch: Batch, port_map: Mapping[int, str], names: Sequence[str], *, payload: bool) -> pa.RecordBatch:
    """Build the columns of these names."""
    own = [name for name in RECORDS.names if name in names]
    records = arrow_batch(batch, [*own, *(name for name in _NEEDED if name not in own)], payload=payload)
    rows = Readings(pa.Table.from_batches([records]), {})
    protocol = np.where(rows.no_datagram, MISSING, protocols_by_port(rows.records, port_map)).astype(np.int16)
    arrays = [records.column(name) if name in own else _column(rows, protocol, name) for name in names]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema([SCHEMA.field(name) for name in names]))


def _column(rows: Readings, protocol: Codes, name: str) -> pa.Array:
    if name == "protocol":
        return named(protocol, PROTOCOLS).dictionary_decode()
    owner = name.partition("_")[0]
    if owner in PROTOCOLS:
        mine = pa.array(protocol == PROTOCOLS.index(owner))
        found = rows.array(name)
        return pc.if_else(mine, found, pa.scalar(None, found.type))
    found = pa.nulls(len(rows), pa.string())
    for number, other in enumerate(PROTOCOLS):
        if (protocol == number).any():
            of_protocol = rows.array(f"{other}_{name}").dictionary_decode()
            found = pc.if_else(pa.array(protocol == number), of_protocol, found)
    return found


NAME = "fairway.capture"
OPTIONS = ("path", "paths", "part_bytes", "payload", "pieces", "map", "parts")


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The options of one read, checked."""

    paths: tuple[str, ...]
    part_bytes: int = PART_BYTES
    payload: bool = False
    pieces: bool = False
    port_map: Mapping[int, str] = field(default_factory=dict)
    parts: str | None = None

    @staticmethod
    def parsed(options: Mapping[str, str]) -> ReadOptions:
        """Read Spark's options; raise `BadOption` for one that is unknown or wrong."""
        for name in options:
            if name.lower() not in OPTIONS:
                raise BadOption(f"{NAME} has no option {name!r}; it has {', '.join(OPTIONS)}")
        size = options.get("part_bytes", str(PART_BYTES))
        if not size.isdigit() or int(size) == 0:
            raise BadOption(f"part_bytes is {size!r}; it must be a number of bytes above 0")
        payload, pieces = _truth(options, "payload"), _truth(options, "pieces")
        ports = parsed_port_map(options.get("map", "").replace(",", " ").split())
        return ReadOptions(_paths(options), int(size), payload, pieces, ports, options.get("parts"))


def _truth(options: Mapping[str, str], name: str) -> bool:
    text = options.get(name, "false").lower()
    if text not in ("true", "false"):
        raise BadOption(f"{name} is {text!r}; it must be true or false")
    return text == "true"


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
class CaptureParts(InputPartition):
    """What one task reads; small files share one."""

    parts: Sequence[Part]


class CaptureSource(DataSource):
    """Registers the source under its name."""

    @classmethod
    def name(cls) -> str:
        """Return what stands in `format(...)`."""
        return NAME

    def schema(self) -> StructType:
        """Return all columns."""
        return spark_schema(MAPPED if "map" in self.options else RECORDS)

    def reader(self, schema: StructType) -> CaptureReader:
        """Return a reader of the columns that the schema names."""
        return CaptureReader(ReadOptions.parsed(dict(self.options)), schema)


class CaptureReader(DataSourceReader):
    """Cuts files into parts, and reads one part in each task."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._names = [field.name for field in schema.fields]
        self._nullable = [field.nullable for field in schema.fields]
        table = MAPPED if options.port_map else RECORDS
        known = {field.name: field.dataType for field in spark_schema(table).fields}
        for one in schema.fields:
            if known.get(one.name) != one.dataType:
                raise BadOption(f"a capture has no column {one.name} {one.dataType.simpleString()}; see docs/tables.md")

    def partitions(self) -> Sequence[InputPartition]:
        """Return what each task reads."""
        parts = _parts(self._options)
        return [
            CaptureParts(some) for some in shared_out(parts, lambda part: part.size_bytes, self._options.part_bytes)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one part."""
        if not isinstance(partition, CaptureParts):
            return  # Spark's stand-in for no partitions at all
        payload, ports = self._options.payload, self._options.port_map
        for batch in chain.from_iterable(batches(part, pieces=self._options.pieces) for part in partition.parts):
            if ports:
                yield self._arrow(mapped_batch(batch, ports, self._names, payload=payload))
            else:
                yield self._arrow(arrow_batch(batch, self._names, payload=payload))

    def _arrow(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        fields = [one.with_nullable(nullable) for one, nullable in zip(rows.schema, self._nullable, strict=True)]
        return pa.RecordBatch.from_arrays(rows.columns, schema=pa.schema(fields))


def _parts(options: ReadOptions) -> list[Part]:
    if options.parts is not None:
        verified: list[Part] = pickle.loads(b64decode(options.parts))
        return verified
    parts: list[Part] = []
    for path in listed(options.paths):
        file = seen(path)
        parts += _walked(file, 0 if is_address(path) else os.stat(path).st_mtime_ns, options.part_bytes)
    return parts


@lru_cache(maxsize=256)
def _walked(file: CaptureFile, modified_ns: int, part_bytes: int) -> tuple[Part, ...]:
    """Spark plans anew for every action, in a process that it may keep: a file that has not changed is walked once."""
    del modified_ns
    return tuple(exact_parts(file, identity(file), part_bytes))


def load(
    spark: SparkSession,
    paths: Iterable[str | os.PathLike[str]],
    *,
    columns: Sequence[str] | None = None,
    payload: bool = False,
    port_map: Mapping[int, str] | None = None,
    part_bytes: int = PART_BYTES,
) -> DataFrame:
    """Read captures, large files cut by tasks on the cluster. The files must not change."""
    files = [seen(path) for path in listed(os.fspath(path) for path in paths)]
    parts = planned(spark, [(file, identity(file)) for file in files], part_bytes)
    return load_parts(spark, parts, columns=columns, payload=payload, port_map=port_map, part_bytes=part_bytes)


def load_parts(
    spark: SparkSession,
    parts: Sequence[Part],
    *,
    columns: Sequence[str] | None = None,
    payload: bool = False,
    pieces: bool = False,
    port_map: Mapping[int, str] | None = None,
    part_bytes: int = PART_BYTES,
) -> DataFrame:
    """Read parts of captures that were verified before."""
    spark.dataSource.register(CaptureSource)
    known = spark_schema(MAPPED if port_map else RECORDS).fields
    schema = StructType([one for name in columns for one in known if one.name == name] if columns else known)
    reader = spark.read.format(NAME).schema(schema).option("paths", json.dumps([part.file.path for part in parts]))
    if port_map:
        reader = reader.option("map", " ".join(f"{name}={port}" for port, name in port_map.items()))
    reader = reader.options(payload=str(payload).lower(), pieces=str(pieces).lower(), part_bytes=str(part_bytes))
    return reader.option("parts", b64encode(pickle.dumps(list(parts))).decode()).load()
