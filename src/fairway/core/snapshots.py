"""The envelope of a snapshot, which is the same for all protocols, and what their states have in common.

offset  size   field
0       4      the protocol and the version of its state
4       4      CRC-32 of all that follows
8       ...    the state
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from struct import Struct, error
from typing import Any
from zlib import crc32

from fairway.core.errors import BadAddress, DamagedSnapshot
from fairway.core.events import Address

_FRONT = Struct(">4sI")


def seal(version: bytes, state: bytes) -> bytes:
    return _FRONT.pack(version, crc32(state)) + state


def unseal(version: bytes, snapshot: bytes) -> bytes:
    """Return the state of a snapshot; raises `DamagedSnapshot` if it is damaged or of another kind."""
    state = snapshot[_FRONT.size :]
    if len(snapshot) < _FRONT.size or _FRONT.unpack_from(snapshot) != (version, crc32(state)):
        found = bytes(snapshot[:4])
        raise DamagedSnapshot(f"a snapshot of {len(snapshot)} bytes is damaged, or {found!r} and not {version!r}")
    return state


def pack(version: bytes, state: Mapping[str, object]) -> bytes:
    """Return a state of plain values as JSON in its envelope; raises `BadAddress` if it cannot be stored."""
    return seal(version, address_bytes(state))


def unpack(version: bytes, snapshot: bytes) -> Any:
    """Return what `pack` took, tuples as lists; raises `DamagedSnapshot`, or `ValueError` if it is no JSON."""
    return json.loads(unseal(version, snapshot))


@contextmanager
def reading(protocol: str) -> Iterator[None]:
    """Turn whatever goes wrong while a state is read into `DamagedSnapshot`."""
    try:
        yield
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError, error) as cause:
        raise DamagedSnapshot(f"the state of the snapshot is none of {protocol}: {cause!r}") from cause


def address_bytes(value: object) -> bytes:
    """Return an address, or a state with one, as JSON; raises `BadAddress` if it cannot be stored."""
    try:
        return json.dumps(value, separators=(",", ":")).encode()
    except TypeError as cause:
        raise BadAddress(f"an address is no tuple of plain values and cannot be stored: {cause}") from cause


def restored_address(value: object) -> Address:
    """Return the address of which JSON, which knows no tuples, made lists; raises `ValueError`."""
    if isinstance(value, list):
        return tuple(map(restored_address, value))
    if value is None or isinstance(value, str | int):
        return value
    raise ValueError(f"{value!r} is no part of an address")
