"""Which types a typed table may have, and which JSON values are taken for them.

A value is taken only if it stays what it is: nothing is rounded to fewer digits, cut, guessed or turned into text. The
one exception lies in the types: DOUBLE and FLOAT hold the nearest number that they have.
"""

from __future__ import annotations

from functools import reduce
from operator import and_
from typing import TYPE_CHECKING

from fairway.core.errors import BadOption

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType, DecimalType, StructType

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
