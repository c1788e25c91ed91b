"""What a machine holds, counted by walking through everything that can be reached from it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType


@dataclass(frozen=True, slots=True)
class Footprint:
    """Entries of all containers, and bytes of all buffers."""

    entries: int
    buffered_bytes: int


def footprint(root: object) -> Footprint:
    """Counts what can be reached through containers and attributes. Tuples are walked through and not counted: they
    do not grow."""
    entries = buffered_bytes = 0
    seen: set[int] = set()
    stack: list[object] = [root]
    while stack:
        thing = stack.pop()
        if thing is None or isinstance(thing, int | str | float | type | ModuleType) or id(thing) in seen:
            continue
        seen.add(id(thing))
        if isinstance(thing, bytes | bytearray | memoryview):
            buffered_bytes += len(thing)
        elif isinstance(thing, dict):
            entries += len(thing)
            stack.extend(thing.keys())
            stack.extend(thing.values())
        elif isinstance(thing, list | deque | set | frozenset):
            entries += len(thing)
            stack.extend(thing)
        elif isinstance(thing, tuple):
            stack.extend(thing)
        elif not callable(thing):
            buffered_bytes += getattr(thing, "nbytes", 0)
            stack.extend(_attributes(thing))
    return Footprint(entries, buffered_bytes)


def _attributes(thing: object) -> Iterator[object]:
    yield from getattr(thing, "__dict__", {}).values()
    for kind in type(thing).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            yield getattr(thing, name, None)
