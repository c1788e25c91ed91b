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
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

from fairway.core.errors import BadOption
from fairway.core.tables import CAPTURE_TABLES, LANDED_TABLES, MESSAGES, PROTOCOLS, REJECTED
from fairway.lake.landing.typed_values import check_names, check_type, is_taken, is_there

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructField, StructType

KEYS = ("gateway", "gateway_offset", "received")
"""What a typed row has of its message, before its own columns; `day` cuts the table into folders."""

UNREADABLE = "the body is not JSON, or has a key twice or more than Spark's parser takes"
UNFIT = "__unfit"
REASON = "__reason"
_IDENTIFIER = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_TAKEN = tuple(table.name for table in (*LANDED_TABLES, *CAPTURE_TABLES))


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
