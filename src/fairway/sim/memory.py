"""The bounds of memory, measured from outside: how long is the longest table of a machine.

The walk goes through attributes, slots and containers, so that a table that somebody adds later is seen as well.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

from fairway.core.machine import Machine, Options

NO_TABLES = ("bytes", "_us", "repeats", "transmissions", "starts", "run")
"""What else the name of a limit may speak of, besides entries of a table."""
SLACK_ENTRIES = 128
STALE_FACTOR = 3
"""A heap with lazily removed entries may be longer than the table it serves."""
_TABLES = (dict, list, set, frozenset, deque)
_PLAIN = (int, str, bool, float, type(None), range)


def tables(thing: object) -> Iterator[tuple[str, int]]:
    """Return the path and length of every table inside a machine."""
    return ((path, len(item)) for path, item in walk(thing) if isinstance(item, _TABLES))


def walk(thing: object) -> Iterator[tuple[str, Any]]:
    """Return everything that can be reached through containers and attributes, each once, with the path to it."""
    seen: dict[int, object] = {}
    todo: list[tuple[str, object]] = [("machine", thing)]
    while todo:
        path, item = todo.pop()
        if isinstance(item, _PLAIN) or id(item) in seen:
            continue
        seen[id(item)] = item
        yield path, item
        if isinstance(item, (*_TABLES, tuple)):
            inner = [*item, *item.values()] if isinstance(item, dict) else item
            todo.extend((f"{path}[]", one) for one in inner)
        elif item is thing or type(item).__module__.startswith("fairway."):
            todo.extend((f"{path}.{name}", value) for name, value in _attributes(item))


def _attributes(item: object) -> Iterator[tuple[str, object]]:
    yield from getattr(item, "__dict__", {}).items()
    for name in getattr(type(item), "__mypyc_attrs__", ()):  # of a compiled class nothing else tells
        yield name, getattr(item, name, None)
    for kind in type(item).__mro__:
        slots = getattr(kind, "__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            yield name, getattr(item, name, None)


def entries_max(options: Options) -> int:
    """Return the bound on the length of any one table: the largest that the options name."""
    limits: list[int] = [getattr(options, name) for name in table_bounds(type(options))]
    return max(options.window, *limits)


def table_bounds(kind: type[Options]) -> list[str]:
    """Return the names of the options that bound a number of entries."""
    names = [field.name for field in fields(kind) if field.name.endswith("_max") and isinstance(field.default, int)]
    return [name for name in names if not any(word in name for word in NO_TABLES)]


def memory_violation(machine: Machine, bound: int) -> str | None:
    """Return which table of the machine is longer than any bound allows, or None."""
    limit = bound * STALE_FACTOR + SLACK_ENTRIES
    for path, length in tables(machine):
        if length > limit:
            return f"{path} has {length} entries; the largest bound is {bound}"
    return None
