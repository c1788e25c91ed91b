"""The source `fairway.delta`: Delta tables in a Spark that has no Delta of its own.

    spark.read.format("fairway.delta").load("lake/tables/messages")
    spark.read.format("fairway.delta").option("version", 12).load(...)     as it was at a version
    spark.read.format("fairway.delta").option("since", 12).load(...)       rows that are new after a version

The last is for tables that only grow: it passes over compactions, and refuses at a commit that rewrites rows.

Spark does not tell a Python source which columns it needs, and Spark 4.3 keeps pushed filters in a data frame, where a
second query of the same frame would get the rows of the first. So both are options:

    .schema("gateway STRING, body BINARY")                  reads only these columns
    .option("where", '[["day", ">=", "2026-03-01"]]')       these rows; files that hold none of them are not opened

For whoever replaces files of a table: `.option("files", '["part-1.parquet"]')` reads only these, and a column
`_file STRING` in the schema is the path of each row's file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from fairway.core.errors import BadOption, FairwayError
from fairway.lake import shared_out
from fairway.store.delta import DataFile, Delta, VersionGone
from fairway.store.locations import Location, location_of
from fairway.store.parquet import batches

NAME = "fairway.delta"
GROUP_BYTES = 64 << 20
"""What one Spark task reads; small files share one."""

FILE = "_file"
"""The column that is the path of a row's file."""

FEATURES = ("timestampNtz",)
"""What a table may ask of its readers."""


@dataclass
class Files(InputPartition):
    """What one task reads."""

    files: Sequence[DataFile]


@dataclass(frozen=True)
class Condition:
    """One of the conditions that all rows must meet."""

    column: str
    operator: str
    value: Any

    def may_hold(self, noted: Mapping[str, Any], columns: pa.Schema) -> bool:
        """Whether a file may hold rows that pass, by its partition and its bounds in the log."""
        exact = noted.get(f"partition.{self.column}")
        low, high = noted.get(f"min.{self.column}", exact), noted.get(f"max.{self.column}", exact)
        if low is None or high is None:
            return True
        values = self.typed(columns)
        return any(_OPERATORS[self.operator][1](low, high, one) for one in values.to_pylist())

    def typed(self, columns: pa.Schema) -> pa.Array:
        """Return the value, or the values of `in`, with the type of the column."""
        values = self.value if isinstance(self.value, list) else [self.value]
        return pa.array(values).cast(columns.field(self.column).type)

    def passing(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows that pass; null does not."""
        values = self.typed(rows.schema)
        wanted = values if self.operator == "in" else values[0]
        return rows.filter(_OPERATORS[self.operator][0](rows.column(self.column), wanted))


_OPERATORS: dict[str, tuple[Callable[[Any, Any], Any], Callable[[Any, Any, Any], bool]]] = {
    "=": (pc.equal, lambda low, high, value: low <= value <= high),
    "<": (pc.less, lambda low, high, value: low < value),
    "<=": (pc.less_equal, lambda low, high, value: low <= value),
    ">": (pc.greater, lambda low, high, value: high > value),
    ">=": (pc.greater_equal, lambda low, high, value: high >= value),
    "in": (lambda rows, values: pc.is_in(rows, value_set=values), lambda low, high, value: low <= value <= high),
}
"""By its sign: which rows pass, and whether a value between two bounds may."""


@dataclass(frozen=True)
class Options:
    """What was asked for, parsed once."""

    table: Delta
    version: int | None
    since: int | None
    where: tuple[Condition, ...]
    files: frozenset[str] | None

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Options:
        if "path" not in options:
            raise BadOption("fairway.delta needs the path of one table: load('lake/tables/messages')")
        if "version" in options and "since" in options:
            raise BadOption("fairway.delta takes one of version and since, not both")
        table = Delta(location_of(options["path"]))
        files = frozenset(json.loads(options["files"])) if "files" in options else None
        return cls(table, _number(options, "version"), _number(options, "since"), _conditions(options), files)

    def columns(self) -> pa.Schema:
        """Return the columns of the table."""
        return pa.schema(self.table.open(self.version).schema())


def _number(options: Mapping[str, str], name: str) -> int | None:
    text = options.get(name)
    if text is not None and not text.isdecimal():
        raise BadOption(f"the option {name} of fairway.delta is {text!r}; it must be the number of a version")
    return None if text is None else int(text)


def _conditions(options: Mapping[str, str]) -> tuple[Condition, ...]:
    try:
        found = tuple(Condition(*condition) for condition in json.loads(options.get("where", "[]")))
    except (ValueError, TypeError):
        found = (Condition("", "", None),)
    if any(one.operator not in _OPERATORS for one in found):
        raise BadOption(
            f"the option where of fairway.delta is {options['where']!r}; it must be a JSON list of conditions such as "
            f'["day", ">=", "2026-03-01"], with one of {" ".join(_OPERATORS)}'
        )
    return found


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
        options = Options.of(self.options)
        columns = options.columns()
        for one in options.where:
            if one.column not in columns.names:
                raise BadOption(f"{options.table.location} has no column {one.column}")
        return DeltaReader(options, schema, columns)


def read_table(
    spark: SparkSession,
    table: Delta,
    *,
    version: int | None = None,
    files: Sequence[str] | None = None,
    schema: StructType | None = None,
) -> DataFrame:
    """Read a table, or some of its files, or some of its columns.

    Files of a folder are read by Spark's own Parquet reader, which reads only what a query needs.
    """
    folder = table.location.uri
    # Spark takes some signs in a path for patterns.
    if (
        table.location.is_folder
        and schema is not None
        and FILE not in schema.names
        and not set(folder) & set("*?[]{}\\")
    ):
        paths = files if files is not None else [file.path for file, _ in table.files(table.open(version))]
        if not paths:
            return spark.createDataFrame([], schema)
        reader = spark.read.schema(schema).option("basePath", folder)
        return reader.parquet(*(f"{folder}/{path}" for path in paths)).select(*schema.names)
    spark.dataSource.register(DeltaSource)
    reader = spark.read.format(NAME)
    if version is not None:
        reader = reader.option("version", str(version))
    if files is not None:
        reader = reader.option("files", json.dumps(list(files)))
    return (reader if schema is None else reader.schema(schema)).load(table.location.uri)


class DeltaReader(DataSourceReader):
    """Lists the files of a table, leaves out those that cannot matter, and reads the others."""

    def __init__(self, options: Options, schema: StructType, columns: pa.Schema) -> None:
        self._options = options
        self._schema = schema
        self._columns = columns

    def partitions(self) -> Sequence[InputPartition]:
        """Cut the table's files into tasks."""
        groups = shared_out(self._files(), lambda file: file.size_bytes, GROUP_BYTES)
        return [Files(group) for group in groups] or [Files([])]

    def _files(self) -> Iterator[DataFile]:
        table, since = self._options.table, self._options.since
        snapshot = table.open(self._options.version)
        strange = sorted(set(snapshot.protocol().reader_features or ()) - set(FEATURES))
        if strange or snapshot.protocol().min_reader_version == 2:
            raise FairwayError(
                f"{table.location} uses {', '.join(strange) or 'columnMapping'}, which fairway.delta does not."
            )
        if since is not None:
            if since > snapshot.version():
                raise VersionGone(f"{table.location} is at version {snapshot.version()}, before {since}.")
            yield from table.added(since, snapshot.version())
            return
        for file, noted in table.files(snapshot):
            wanted = self._options.files is None or file.path in self._options.files
            if wanted and all(one.may_hold(noted, self._columns) for one in self._options.where):
                yield file

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the files of one task."""
        assert isinstance(partition, Files)
        location, wanted = self._options.table.location, to_arrow_schema(self._schema, timezone="UTC")
        beside = {one.column for one in self._options.where} - set(wanted.names)
        read = pa.schema([*wanted, *(self._columns.field(name) for name in sorted(beside))])
        for file in partition.files:
            for rows in _read(location, file, read):
                for condition in self._options.where:
                    rows = condition.passing(rows)  # noqa: PLW2901
                if len(rows):
                    yield rows.select(wanted.names)


def _read(location: Location, file: DataFile, wanted: pa.Schema) -> Iterator[pa.RecordBatch]:
    try:
        yield from batches(location, file.path, wanted, {**file.partition, FILE: file.path})
    except FileNotFoundError:
        raise VersionGone(
            f"{location}/{file.path} was removed, because that version is older than the table's history: read a newer "
            "one, or keep a longer history."
        ) from None
    except (pa.ArrowException, OSError) as error:
        raise FairwayError(f"{location}/{file.path} cannot be read ({error}).") from error
