"""Which typed tables a lake has: the lake remembers them, so that a restart without the option goes on filling them."""

from __future__ import annotations

import json
from collections.abc import Iterable

from fairway.core.errors import BadOption
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
    """Gives the tables of the lake and the new ones; other columns for a table that is there are refused."""
    wishes = {wish.table: wish for wish in known(lake)}
    for wish in asked:
        there = wishes.setdefault(wish.table, wish)
        if there.columns != wish.columns:
            raise BadOption(
                f"The table {wish.table} has the columns {there.columns!r}: give the same, or choose another name."
            )
    return tuple(wishes.values())


def remember(lake: Lake, wishes: Iterable[Wish]) -> None:
    """Has the lake remember its typed tables."""
    staged = lake.path / "staging" / NAME
    staged.write_text(json.dumps({wish.table: wish.columns for wish in wishes}, indent=2) + "\n")
    publish_file(staged, lake.checkpoints / NAME)
