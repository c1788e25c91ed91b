"""Addresses in snapshots: JSON knows no tuples."""

from __future__ import annotations

from fairway.core.events import Address


def restored(value: object) -> Address:
    """Gives back the address of which JSON made lists, or raises `ValueError`."""
    if isinstance(value, list):
        return tuple(map(restored, value))
    if value is None or isinstance(value, str | int):
        return value
    raise ValueError(f"{value!r} is no part of an address")
