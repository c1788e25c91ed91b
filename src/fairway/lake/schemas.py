"""The tables of `core/tables.py` as Spark and as Arrow want to be told them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairway.core.tables import Table

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


def spark_schema(table: Table) -> StructType:
    """Return the table's columns as a Spark schema."""
    from pyspark.sql.types import StructType

    schema = StructType()
    for column in table.columns:
        schema.add(column.name, "integer" if column.type == "int" else column.type, column.nullable)
    return schema


def arrow_schema(table: Table) -> pa.Schema:
    """Return the table's columns as an Arrow schema, of the types that Spark takes without a cast."""
    import pyarrow as pa

    kinds = {
        "string": pa.string(),
        "long": pa.int64(),
        "int": pa.int32(),
        "double": pa.float64(),
        "boolean": pa.bool_(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "date": pa.date32(),
        "binary": pa.binary(),
    }
    return pa.schema([pa.field(column.name, kinds[column.type], column.nullable) for column in table.columns])
