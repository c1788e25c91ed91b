"""Rows for people and for programs: a table on a terminal, one JSON object per line with `--json`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

Row = Mapping[str, object]
"""One line of a table: plain values by column name, in the order of the columns."""


def print_rows(rows: Iterable[Row], *, title: str, as_json: bool) -> None:
    """Prints rows as they come with JSON, or all at once as a table."""
    if as_json:
        for row in rows:
            print(json.dumps(row), flush=True)
    else:
        print_table(list(rows), title)


def print_table(rows: list[Row], title: str) -> None:
    """Prints a table whose columns are those of its first row; numbers stand on the right."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    table = Table(
        title=title, title_justify="left", box=SIMPLE_HEAD, show_edge=False, collapse_padding=True, pad_edge=False
    )
    for name, value in (rows[0] if rows else {}).items():
        number = isinstance(value, int | float) and not isinstance(value, bool)
        table.add_column(name.replace("_", " "), justify="right" if number else "left")
    for row in rows:
        table.add_row(*(_shown(value) for value in row.values()))
    Console(highlight=False).print(table)


def _shown(value: object) -> str:
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case float():
            return f"{value:,.3g}" if abs(value) < 100 else f"{value:,.0f}"
    return str(value)
