"""The tables of a lake as rows, for comparison."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fairway.core.tables import ANALYSIS_TABLES, CAPTURES
from fairway.store.analyses import datasets
from fairway.store.locations import location_of

Row = dict[str, Any]


def table_rows(lake: Path, name: str) -> list[Row]:
    """Return the rows of a table as a reader sees them; none before the table is there."""
    found = datasets(location_of(lake))
    return found[name].to_table().to_pylist() if name in found else []


def all_tables(lake: Path) -> dict[str, list[Row]]:
    """Return the rows of all tables in an order of their own; of captures without the run that has read them."""
    found = {table.name: sorted(table_rows(lake, table.name), key=str) for table in ANALYSIS_TABLES}
    found[CAPTURES.name] = [row | {"run": 0, "path": ""} for row in found[CAPTURES.name]]
    return found
