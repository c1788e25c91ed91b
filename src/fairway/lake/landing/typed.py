"""Typed tables: messages whose bodies are JSON objects of a known shape, as columns.

A body fits if it is one JSON object in UTF-8 whose fields are taken for the declared types, unchanged; fields beyond
the schema are left in `messages`, a field that is not there is null unless the schema says NOT NULL. A body that does
not fit goes to `rejected` with the first reason that holds. Every message that a table is meant for goes to exactly one
of the two. Which it is meant for says its route: a gateway, a port, a protocol, a prefix of the body, or several of
these, all of which must agree. Without a route a table is meant for every message.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

from fairway.core.errors import BadOption
from fairway.core.tables import ANALYSIS_TABLES, LANDED_TABLES, MESSAGES, PROTOCOLS, REJECTED

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, DecimalType, StructField, StructType

KEYS = ("gateway", "gateway_offset", "received")
"""What a typed row has of its message, before its own columns; `day` cuts the table into folders."""

UNREADABLE = "the body is not JSON, or has a key twice or more than Spark's parser takes"
UNFIT = "__unfit"
REASON = "__reason"
_IDENTIFIER = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_TAKEN = tuple(table.name for table in (*LANDED_TABLES, *ANALYSIS_TABLES))


@dataclass(frozen=True, slots=True)
class Wish:
    """What `--json-schema` asks for, as text."""

    table: str
    columns: str
    route: str = ""
    """Such as `protocol=mrp&port=8192`; see `parse_route`."""


def parse_route(text: str) -> tuple[str, str]:
    """Read `readings=protocol=mrp&prefix={`: a table's name, and its route, written like the query of a URL."""
    table, _, route = (part.strip() for part in text.partition("="))
    try:
        conditions = parse_qsl(route, keep_blank_values=True, strict_parsing=True, errors="strict")
    except ValueError:
        conditions = []
    wrong = next((key for key, value in conditions if not _is_condition(key, value)), None)
    if not conditions or wrong is not None or len(dict(conditions)) != len(conditions):
        raise BadOption(
            f"--route {text!r} is not NAME=CONDITIONS, such as readings='protocol=mrp&port=8192'; there are gateway, "
            "port, protocol and prefix (of the body), each once."
        )
    return table, route


def _is_condition(key: str, value: str) -> bool:
    match key:
        case "port":
            return value.isdecimal() and int(value) < 1 << 16
        case "protocol":
            return value in PROTOCOLS
        case _:
            return key in ("gateway", "prefix") and bool(value)


def routed(messages: DataFrame, route: str) -> DataFrame:
    """Return the messages that a route lets through."""
    from pyspark.sql import functions as F

    for key, value in parse_qsl(route):
        if key == "prefix":
            start = value.encode()
            messages = messages.where(F.substring("body", 1, len(start)) == F.lit(start))
        else:
            messages = messages.where(F.col(key) == (int(value) if key == "port" else value))
    return messages


def parse_wish(text: str) -> Wish:
    """Reads `readings="sensor STRING, celsius DOUBLE"`; what only Spark can tell is checked later."""
    table, equals, columns = (part.strip() for part in text.partition("="))
    if not equals or not columns or not _IDENTIFIER.fullmatch(table):
        raise BadOption(
            f"--json-schema {text!r} is not NAME=COLUMNS, such as readings='sensor STRING, celsius DOUBLE'."
        )
    if table.lower() in _TAKEN:
        raise BadOption(
            f"--json-schema cannot fill the table {table}, which Fairway fills itself: choose another name."
        )
    return Wish(table, columns)


def parse_wishes(schemas: Iterable[str], routes: Iterable[str]) -> tuple[Wish, ...]:
    """Read what `--json-schema` and `--route` ask for together."""
    wishes = [parse_wish(text) for text in schemas]
    for table, route in map(parse_route, routes):
        if table not in {wish.table for wish in wishes}:
            raise BadOption(f"--route names the table {table}, for which there is no --json-schema: give both.")
        wishes = [replace(wish, route=route) if wish.table == table else wish for wish in wishes]
    return tuple(wishes)


def declared(wish: Wish) -> StructType:
    """Return the wished columns as a schema."""
    from pyspark.errors import PySparkException
    from pyspark.sql.types import StructType

    try:
        schema = StructType.fromDDL(wish.columns)
    except PySparkException as error:
        reason = str(error).strip().splitlines()[0]
        raise BadOption(f"--json-schema {wish.table}: Spark cannot read {wish.columns!r} ({reason}).") from error
    assert isinstance(schema, StructType)
    check_names(wish.table, schema, {*KEYS, "day"})
    for field in schema.fields:
        check_type(wish.table, field.name, field.dataType)
    return schema


def judged(messages: DataFrame, schema: StructType) -> DataFrame:
    """Adds the declared columns as `parsed`, and the reason why a body does not fit, null if it does."""
    from pyspark.sql import functions as F

    text = F.col("body").cast("string")
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": UNFIT, "allowNonNumericNumbers": "false"}
    parsed = F.from_json(text, _with_unfit(schema), options)
    return messages.select(
        *MESSAGES.names,
        parsed.alias("parsed"),
        F.when(F.is_valid_utf8(text), _only_value(text)).alias("json"),
    ).select(*MESSAGES.names, "parsed", _reason(schema.fields).alias(REASON))


def _only_value(text: Column) -> Column:
    """Return the JSON value that a text is, or null if it is none, or anything follows it.

    Spark's parser stops after the first value. What follows it must fit both an array and an object around it: only a
    comma does, and then the array has a second element.
    """
    from pyspark.sql import functions as F

    in_array = F.try_parse_json(F.concat(F.lit("["), text, F.lit("]")))
    in_object = F.try_parse_json(F.concat(F.lit('{"value":'), text, F.lit("}")))
    alone = in_array.isNotNull() & F.try_variant_get(in_array, "$[1]", "variant").isNull()
    return F.when(alone, F.try_variant_get(in_object, "$.value", "variant"))


def _with_unfit(schema: StructType) -> StructType:
    from pyspark.sql.types import StringType, StructField, StructType

    # Copies, because `add` would change the schema of the caller; nothing that JSON gives is sure to be there.
    fields = [StructField(field.name, field.dataType, True) for field in schema.fields]
    return StructType([*fields, StructField(UNFIT, StringType(), True)])


def _reason(fields: Iterable[StructField]) -> Column:
    from pyspark.sql import functions as F

    rules = [
        (~F.is_valid_utf8(F.col("body").cast("string")), "the body is not UTF-8"),
        (F.col("json").isNull(), UNREADABLE),
        (~F.schema_of_variant("json").startswith("OBJECT<"), "the body is not a JSON object"),
        *(rule for field in fields for rule in _field_rules(field)),
        (F.col(f"parsed.{UNFIT}").isNotNull() | F.col("parsed").isNull(), "the body does not fit the schema"),
    ]
    # A rule that evaluates to null counts as broken.
    broken = [F.when(F.coalesce(rule, F.lit(True)), F.lit(reason)) for rule, reason in rules]
    return F.coalesce(*broken)


def _field_rules(field: StructField) -> list[tuple[Column, str]]:
    from pyspark.sql import functions as F

    found = F.try_variant_get("json", f"$.{field.name}", "variant")
    there = is_there(found)
    wrong = there & (~is_taken(found, field.dataType) | F.col(f"parsed.{field.name}").isNull())
    rules = [(wrong, f"{field.name} is not of type {field.dataType.simpleString().upper()}")]
    return rules if field.nullable else [(~there, f"{field.name} is missing"), *rules]


def fitting(judgements: DataFrame, schema: StructType) -> DataFrame:
    """Return the rows of the typed table."""
    from pyspark.sql import functions as F

    columns = [F.col(f"parsed.{name}").alias(name) for name in schema.names]
    return judgements.where(F.col(REASON).isNull()).select(*KEYS, *columns, "day")


def rejected(judgements: DataFrame, table: str) -> DataFrame:
    """Return the rows that go to `rejected`."""
    from pyspark.sql import functions as F

    unfit = judgements.where(F.col(REASON).isNotNull())
    return unfit.select(F.lit(table).alias("typed_table"), F.col(REASON).alias("reason"), *MESSAGES.names).select(
        *REJECTED.names
    )


FLOAT_MAX = (2 - 2**-23) * 2.0**127
DOUBLE_MAX = (2 - 2**-52) * 2.0**1023
_DAY = r"(?!0000)\d{4}-\d{2}-\d{2}"
_CLOCK = r"[T ]\d{2}:\d{2}(:\d{2}(\.\d{1,6}0*)?)?"
_ZONE = r"(Z|[+-]\d{2}:?\d{2})?"
_FOUR = "[A-Za-z0-9+/]"
# The last digits have no bits that decoding would drop.
_BASE64 = f"({_FOUR}{{4}})*({_FOUR}[AQgw]==|{_FOUR}{{2}}[AEIMQUYcgkosw048]=)?"
TEXTS = {
    "string": r"(?s).*",
    "binary": _BASE64,
    "date": _DAY,
    "timestamp": _DAY + _CLOCK + _ZONE,
    "timestamp_ntz": _DAY + _CLOCK,
}
"""What a JSON string must look like to be taken for a type, by the type's name."""

WHOLE = ("tinyint", "smallint", "int", "bigint")
BROKEN = {"float": FLOAT_MAX, "double": DOUBLE_MAX}
SIMPLE = ("boolean", *WHOLE, *BROKEN, *TEXTS)


def check_type(table: str, column: str, kind: DataType) -> None:
    """Refuses a type that JSON does not give, or that not every reader finds in Parquet."""
    from pyspark.sql.types import ArrayType, DecimalType, MapType, StructType

    match kind:
        case DecimalType():
            return
        case ArrayType():
            check_type(table, column, kind.elementType)
        case MapType() if kind.keyType.simpleString() == "string":
            check_type(table, column, kind.valueType)
        case StructType() if kind.fields:
            check_names(table, kind, set())
            for field in kind.fields:
                check_type(table, f"{column}.{field.name}", field.dataType)
        case _ if kind.simpleString() not in SIMPLE:
            raise BadOption(
                f"--json-schema {table}: the column {column} cannot have the type {kind.simpleString().upper()}; "
                "docs/lake.md lists those that it can have."
            )


def check_names(table: str, schema: StructType, taken: set[str]) -> None:
    """Refuses names that are no identifiers, or differ from one that is taken only in upper and lower case."""
    for name in schema.names:
        if name.lower() in taken or not (name.isascii() and name.isidentifier() and name[0] != "_"):
            raise BadOption(f"--json-schema {table}: a column cannot be called {name!r}, or not twice: rename it.")
        taken.add(name.lower())


def is_taken(value: Column, kind: DataType) -> Column:
    """Return whether a JSON value is null, or one of the type that stays what it is."""
    from pyspark.sql import functions as F

    return F.coalesce(F.is_variant_null(value) | _is_one(value, kind), F.lit(False))


def is_there(value: Column) -> Column:
    """Return whether there is a value other than null."""
    from pyspark.sql import functions as F

    return value.isNotNull() & ~F.coalesce(F.is_variant_null(value), F.lit(True))


def _is_one(value: Column, kind: DataType) -> Column:
    from pyspark.sql import functions as F
    from pyspark.sql.types import ArrayType, DecimalType, MapType, StructType

    name, found = kind.simpleString(), F.schema_of_variant(value)
    match kind:
        case DecimalType():
            return _is_decimal(value, kind)
        case ArrayType():
            elements = F.try_variant_get(value, "$", "array<variant>")
            return F.forall(elements, lambda element: is_taken(element, kind.elementType))
        case MapType():
            values = F.map_values(F.try_variant_get(value, "$", "map<string,variant>"))
            return F.forall(values, lambda element: is_taken(element, kind.valueType))
        case StructType():
            return found.startswith("OBJECT<") & _has_fields(value, kind)
    if name in WHOLE:
        return (found == "BIGINT") & F.try_variant_get(value, "$", name).isNotNull()
    if name in BROKEN:
        return _is_number(value) & (F.abs(F.try_variant_get(value, "$", "double")) <= F.lit(BROKEN[name]))
    if name in TEXTS:
        return (found == "STRING") & _is_text(value, name)
    return found == name.upper()


def _is_number(value: Column) -> Column:
    from pyspark.sql import functions as F

    return F.schema_of_variant(value).rlike(r"^(BIGINT|DOUBLE|DECIMAL\(.*)$")


def _is_decimal(value: Column, kind: DecimalType) -> Column:
    """Return whether a number has the digits of the type; with an exponent, or 39 digits, it is a double to Spark."""
    from pyspark.sql import functions as F

    behind = rf"(\.\d{{1,{kind.scale}}})?" if kind.scale else ""
    return (
        F.schema_of_variant(value).rlike(r"^(BIGINT|DECIMAL\(.*)$")
        # As text a number has no zeros at its end.
        & F.try_variant_get(value, "$", "string").rlike(rf"^-?\d+{behind}$")
        & F.try_variant_get(value, "$", kind.simpleString()).isNotNull()
    )


def _is_text(value: Column, name: str) -> Column:
    from pyspark.sql import functions as F

    text = F.try_variant_get(value, "$", "string")
    if name == "string":
        return F.lit(True)
    looks = text.rlike(rf"^(?:{TEXTS[name]})\z")
    if not name.startswith("timestamp"):
        return looks
    # A time at the edge may be in the year 0 or 10000 by UTC, which Python and Arrow cannot show.
    return looks & F.year(F.try_variant_get(value, "$", name)).between(1, 9_999)


def _has_fields(value: Column, kind: StructType) -> Column:
    from pyspark.sql import functions as F

    rules = []
    for field in kind.fields:
        found = F.try_variant_get(value, f"$.{field.name}", "variant")
        taken = F.when(found.isNull(), F.lit(True)).otherwise(is_taken(found, field.dataType))
        rules.append(taken if field.nullable else is_there(found) & taken)
    return reduce(and_, rules)
