"""What a machine holds: entries of all containers, and bytes of all buffers, that can be reached from it."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from fairway.sim.memory import walk


class Footprint(NamedTuple):
    """What was counted; tuples are walked through and not counted: they do not grow."""

    entries: int
    buffered_bytes: int


def footprint(root: object) -> Footprint:
    held = [item for _, item in walk(root)]
    entries = sum(len(item) for item in held if isinstance(item, dict | list | deque | set | frozenset))
    buffers = sum(len(item) for item in held if isinstance(item, bytes | bytearray | memoryview))
    return Footprint(entries, buffers + sum(getattr(item, "nbytes", 0) for item in held if hasattr(item, "dtype")))
