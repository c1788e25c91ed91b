"""The source `fairway.delta`: Delta tables in a Spark that has no Delta of its own.

    spark.read.format("fairway.delta").load("lake/tables/messages")
    spark.read.format("fairway.delta").option("version", 12).load(...)     as it was at a version
    spark.read.format("fairway.delta").option("since", 12).load(...)       rows that are new after a version

The last is for tables that only grow: it passes over compactions, and refuses at a commit that rewrites rows. Files
whose day, or whose bounds in the log, a filter leaves out are not opened. Spark does not tell a Python source which
columns it needs: `.schema("gateway STRING, body BINARY")` reads only these.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import datasource
from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from fairway.core.errors import BadOption, FairwayError
from fairway.store.delta import DataFile, Delta, VersionGone
from fairway.store.parquet import batches
from fairway.store.places import Place, place_of

NAME = "fairway.delta"
GROUP_BYTES = 64 << 20
"""What one Spark task reads; small files share one."""

FEATURES = ("timestampNtz",)
"""What a table may ask of its readers."""


@dataclass
class Files(InputPartition):
    """What one task reads."""

    files: Sequence[DataFile]


@dataclass(frozen=True)
class Options:
    """What was asked for, parsed once."""

    table: Delta
    version: int | None
    since: int | None

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Options:
        if "path" not in options:
            raise BadOption("fairway.delta needs the path of one table: load('lake/tables/messages')")
        if "version" in options and "since" in options:
            raise BadOption("fairway.delta takes one of version and since, not both")
        return cls(Delta(place_of(options["path"])), _number(options, "version"), _number(options, "since"))


def _number(options: Mapping[str, str], name: str) -> int | None:
    text = options.get(name)
    if text is not None and not text.isdecimal():
        raise BadOption(f"the option {name} of fairway.delta is {text!r}; it must be the number of a version")
    return None if text is None else int(text)


class DeltaSource(DataSource):
    """Registers the source under its name."""

    @classmethod
    def name(cls) -> str:
        """Return what stands in `format(...)`."""
        return NAME

    def schema(self) -> StructType:
        """Return the columns of the table."""
        options = Options.of(self.options)
        snapshot = options.table.open(options.version)
        found = StructType.fromJson(json.loads(snapshot.schema().to_json()))
        assert isinstance(found, StructType)
        return found

    def reader(self, schema: StructType) -> DeltaReader:
        """Return the reader of some columns."""
        return DeltaReader(Options.of(self.options), schema)


class DeltaReader(DataSourceReader):
    """Lists the files of a table, leaves out those that cannot matter, and reads the others."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._filters: list[Filter] = []

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802  # Spark's name
        """Remember what may leave out files; Spark filters the rows itself."""
        self._filters = list(filters)
        return filters

    def partitions(self) -> Sequence[InputPartition]:
        """Cut the table's files into tasks."""
        groups: list[list[DataFile]] = []
        size_bytes = GROUP_BYTES
        for file in self._files():
            if size_bytes + file.size_bytes > GROUP_BYTES:
                groups.append([])
                size_bytes = 0
            groups[-1].append(file)
            size_bytes += file.size_bytes
        return [Files(group) for group in groups] or [Files([])]

    def _files(self) -> Iterator[DataFile]:
        table, since = self._options.table, self._options.since
        snapshot = table.open(self._options.version)
        strange = sorted(set(snapshot.protocol().reader_features or ()) - set(FEATURES))
        if strange or snapshot.protocol().min_reader_version == 2:
            raise FairwayError(
                f"{table.place} uses {', '.join(strange) or 'columnMapping'}, which fairway.delta does not."
            )
        if since is not None:
            if since > snapshot.version():
                raise VersionGone(f"{table.place} is at version {snapshot.version()}, before {since}.")
            yield from table.added(since, snapshot.version())
            return
        for file, noted in table.files(snapshot):
            if all(_may_hold(one, noted) for one in self._filters):
                yield file

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the files of one task."""
        assert isinstance(partition, Files)
        place, wanted = self._options.table.place, to_arrow_schema(self._schema, timezone="UTC")
        for file in partition.files:
            yield from _read(place, file, wanted)


def _read(place: Place, file: DataFile, wanted: pa.Schema) -> Iterator[pa.RecordBatch]:
    try:
        yield from batches(place, file.path, wanted, file.partition)
    except FileNotFoundError:
        raise VersionGone(
            f"{place}/{file.path} was removed, because that version is older than the table's history: read a newer "
            "one, or keep a longer history."
        ) from None
    except (pa.ArrowException, OSError) as error:
        raise FairwayError(f"{place}/{file.path} cannot be read ({error}).") from error


_BEYOND = {
    datasource.EqualTo: lambda low, high, value: value < low or value > high,
    datasource.GreaterThan: lambda low, high, value: high <= value,
    datasource.GreaterThanOrEqual: lambda low, high, value: high < value,
    datasource.LessThan: lambda low, high, value: low >= value,
    datasource.LessThanOrEqual: lambda low, high, value: low > value,
    datasource.In: lambda low, high, values: all(value is None or value < low or value > high for value in values),
}
"""By the kind of a filter: whether no value between two bounds passes it."""


def _may_hold(one: Filter, noted: Mapping[str, Any]) -> bool:
    """Whether a file may hold rows that pass a filter, by its partition and its bounds."""
    beyond = _BEYOND.get(type(one))
    attribute = ".".join(getattr(one, "attribute", ()))
    exact = noted.get(f"partition.{attribute}")
    low, high = noted.get(f"min.{attribute}", exact), noted.get(f"max.{attribute}", exact)
    if beyond is None or low is None or high is None:
        return True
    try:
        return not beyond(low, high, one.value)  # type: ignore[attr-defined, no-untyped-call]
    except TypeError:  # a filter on another type than the column's
        return True
