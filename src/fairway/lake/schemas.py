"""The tables of `core/tables.py` as Spark and as Arrow want to be told them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairway.core.tables import Table
from fairway.store.parquet import arrow_schema

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["arrow_schema", "spark_schema"]


def spark_schema(table: Table) -> StructType:
    """Return the table's columns as a Spark schema."""
    from pyspark.sql import types

    kinds = {
        "string": types.StringType(),
        "long": types.LongType(),
        "int": types.IntegerType(),
        "double": types.DoubleType(),
        "boolean": types.BooleanType(),
        "timestamp": types.TimestampType(),
        "date": types.DateType(),
        "binary": types.BinaryType(),
    }
    fields = [types.StructField(column.name, kinds[column.type], column.nullable) for column in table.columns]
    return types.StructType(fields)
