"""The tables that a stream fills: made when they are missing, given new columns when a later release has more,
compacted; and the removal of segments that have landed.

A typed table keeps what was asked for in its own properties, so that a restart without the option goes on filling it.
It begins with what lands after it was made: its first version has the positions that `messages` had then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fairway.core.errors import BadOption
from fairway.core.layout import GATEWAYS, TABLES, progress
from fairway.core.tables import ANALYSIS_TABLES, MESSAGES, REJECTED
from fairway.lake.landing import segments
from fairway.lake.landing.batch import Filled, TypedTable
from fairway.lake.landing.typed import KEYS, TypedSpec, declared
from fairway.lake.schemas import arrow_schema
from fairway.store import crashpoints, tending
from fairway.store.analyses import tables as captured_tables
from fairway.store.delta import Delta, by_itself
from fairway.store.lakes import Lake
from fairway.store.tending import Compacted, history

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import DataType, StructType

COLUMNS, ROUTE = "fairway.columns", "fairway.route"


@dataclass(frozen=True, slots=True)
class Begun:
    """A typed table is new, and the lake has messages from before: they are not in it."""

    table: str


def landed_tables(lake: Lake) -> Iterator[Delta]:
    """Return the Delta tables of a lake."""
    captured = {table.name for table in ANALYSIS_TABLES}
    for name in (lake.location / TABLES).names():
        if name not in captured and lake.delta(name).exists():
            yield lake.delta(name)


def known(lake: Lake) -> tuple[TypedSpec, ...]:
    """Return the typed tables that a lake has."""
    found = ((table.location, table.open().metadata().configuration) for table in landed_tables(lake))
    return tuple(
        TypedSpec(location.uri.rpartition("/")[2], properties[COLUMNS], properties.get(ROUTE, ""))
        for location, properties in found
        if COLUMNS in properties
    )


def together(lake: Lake, asked: Iterable[TypedSpec]) -> tuple[TypedSpec, ...]:
    """Return the typed tables of the lake and the new ones; a table that has taken messages keeps what it has."""
    specs = {spec.table: spec for spec in known(lake)}
    corrigible = {table for table in specs if not _has_taken(lake, table)}
    for spec in asked:
        if spec.table not in specs and lake.delta(spec.table).exists():
            raise BadOption(f"The table {spec.table} is there, and no stream made it: choose another name.")
        there = specs.get(spec.table, spec)
        if there != spec and spec.table not in corrigible:
            raise BadOption(
                f"The table {spec.table} has the columns {there.columns!r}"
                f"{f' and the route {there.route!r}' if there.route else ''}: give the same, or choose another name."
            )
        specs[spec.table] = spec
        corrigible.discard(spec.table)
    return tuple(specs.values())


def _has_taken(lake: Lake, name: str) -> bool:
    rejected = lake.delta(REJECTED.name)
    return bool(lake.delta(name).open().file_uris()) or any(
        file.partition["typed_table"] == name for file, _ in rejected.files(rejected.open())
    )


def prepare(lake: Lake, specs: Iterable[TypedSpec], history_s: float) -> tuple[Filled, list[TypedTable], list[Begun]]:
    """Make what is missing, and return everything that is to be filled, and what is new."""
    for landed in (MESSAGES, REJECTED):
        _make(lake.delta(landed.name), arrow_schema(landed), landed.partitions, {}, {}, history_s)
    messages = Filled(lake.delta(MESSAGES.name))
    there = set(segments.gateways(lake.landing)) | set((lake.location / GATEWAYS).names())
    positions = {progress(gateway): messages.position(gateway) for gateway in sorted(there)}
    tables, begun = [], []
    for spec in specs:
        schema, table = declared(spec), lake.delta(spec.table)
        properties = {COLUMNS: spec.columns} | ({ROUTE: spec.route} if spec.route else {})
        if _make(table, _typed_schema(schema), ("day",), properties, positions, history_s) and any(positions.values()):
            begun.append(Begun(spec.table))
        rejected = Filled(lake.delta(REJECTED.name), spec.table)
        tables.append(TypedTable(spec, schema, Filled(table), rejected))
    return messages, tables, begun


def _make(
    table: Delta,
    schema: pa.Schema,
    partitions: Iterable[str],
    properties: dict[str, str],
    positions: dict[str, int],
    history_s: float,
) -> bool:
    """Make a table, or bring it up to date; return whether it is new."""
    from deltalake import Schema

    wanted = properties | history(history_s)
    snapshot = table.open() if table.exists() else None
    there = snapshot.metadata().configuration if snapshot is not None else {}
    if snapshot is None or any(there.get(key) != properties.get(key) for key in (COLUMNS, ROUTE)):
        overwrite = snapshot is not None
        table.create(schema, tuple(partitions), configuration=wanted, positions=positions, overwrite=overwrite)
        return True
    first, columns = snapshot.version() + 1, {field.name for field in snapshot.schema().fields}
    new = [field for field in Schema.from_arrow(schema).fields if field.name not in columns]
    if new:
        snapshot.alter.add_columns(new, post_commithook_properties=by_itself())
    if not wanted.items() <= there.items():
        snapshot.alter.set_table_properties(wanted, raise_if_not_exists=False, post_commithook_properties=by_itself())
    table.settle(first, snapshot)
    return False


def _typed_schema(schema: StructType) -> pa.Schema:
    """Return the columns of a typed table as Arrow has them."""
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_type

    messages = arrow_schema(MESSAGES)
    own = [
        pa.field(field.name, to_arrow_type(_nullable(field.dataType), timezone="UTC"), field.nullable)
        for field in schema
    ]
    return pa.schema([*(messages.field(name) for name in KEYS), *own, messages.field("day")])


def _nullable(kind: DataType) -> Any:
    """Return a type whose inner values may be null: a body is judged before it gets here, and parsed as such."""
    from pyspark.sql.types import ArrayType, MapType, StructField, StructType

    match kind:
        case ArrayType():
            return ArrayType(_nullable(kind.elementType), True)
        case MapType():
            return MapType(kind.keyType, _nullable(kind.valueType), True)
        case StructType():
            return StructType([StructField(field.name, _nullable(field.dataType), True) for field in kind.fields])
    return kind


@dataclass(frozen=True, slots=True)
class Removed:
    """How many segments went away because they have landed long ago."""

    segments: int


def remove_landed(lake: Lake, landed: Callable[[str], int], keep_s: float, now_s: float) -> Removed:
    """Remove segments that all tables hold and that are older than `keep_s`, from the oldest on.

    `landed` returns how much of a gateway all tables hold. A gateway's newest segment stays: it tells a gateway that
    lost its journal where to go on.
    """
    count = 0
    for gateway in segments.gateways(lake.landing):
        position = landed(gateway)
        found = segments.listed(lake.landing, gateway)
        segments.check_landed(lake.landing, gateway, position, found)
        for segment in found[:-1]:
            if segment.last >= position or lake.landing.file(segment.name).changed_s > now_s - keep_s:
                break
            lake.landing.remove(segment.name)
            crashpoints.reached("segment-removed")
            count += 1
    return Removed(count)


def compact(lake: Lake, report: Callable[[Compacted], None]) -> None:
    """Compact every table that streams fill, where none runs, and the tables of captures.

    An analysis that runs meanwhile ends with a sentence, and is made up for by the next.
    """
    with lake.lock(MESSAGES.name, "fairway compact"):
        landed = list(landed_tables(lake))
        for table in landed:
            table.mend()
        for table in (*landed, *(one for one in captured_tables(lake.location).values() if one.exists())):
            done = tending.compact(table)
            tending.checkpoint(table)
            if done is not None:
                report(done)
