"""Which typed tables a lake has: the lake remembers them, so that a restart without the option goes on filling them."""

from __future__ import annotations

import json
from collections.abc import Iterable

from fairway.core.errors import BadOption
from fairway.core.tables import REJECTED
from fairway.lake.landing.folders import table_files
from fairway.lake.landing.typed import Wish
from fairway.lake.store import Lake, publish_file

NAME = "typed.json"


def known(lake: Lake) -> tuple[Wish, ...]:
    """Gives the typed tables that the lake has."""
    path = lake.checkpoints / NAME
    if not path.exists():
        return ()
    return tuple(Wish(table, columns) for table, columns in json.loads(path.read_text()).items())


def together(lake: Lake, asked: Iterable[Wish]) -> tuple[Wish, ...]:
    """Gives the tables of the lake and the new ones; other columns are refused for a table that has taken messages."""
    wishes = {wish.table: wish for wish in known(lake)}
    corrigible = {table for table in wishes if not _has_taken(lake, table)}
    for wish in asked:
        there = wishes.get(wish.table, wish)
        if there.columns != wish.columns and wish.table not in corrigible:
            raise BadOption(
                f"The table {wish.table} has the columns {there.columns!r}: give the same, or choose another name."
            )
        wishes[wish.table] = wish
        corrigible.discard(wish.table)
    return tuple(wishes.values())


def _has_taken(lake: Lake, table: str) -> bool:
    """Tells whether a table, or what it rejected, has files: a batch that is done again must find the same columns."""
    rejected = lake.table(REJECTED.name).glob(f"day=*/table={table}")
    return any(table_files(folder) for folder in (lake.table(table), *rejected))


def remember(lake: Lake, wishes: Iterable[Wish]) -> None:
    """Has the lake remember its typed tables."""
    staged = lake.path / "staging" / NAME
    staged.write_text(json.dumps({wish.table: wish.columns for wish in wishes}, indent=2) + "\n")
    publish_file(staged, lake.checkpoints / NAME)
