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
    from pyspark.sql.types import StructType

    schema = StructType()
    for column in table.columns:
        schema.add(column.name, "integer" if column.type == "int" else column.type, column.nullable)
    return schema
