"""The envelope of a snapshot, which is the same for all protocols, and what their states have in common.

offset  size   field
0       4      the protocol and the version of its state
4       4      CRC-32 of all that follows
8       ...    the state
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from struct import Struct, error
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


@contextmanager
def reading(protocol: str) -> Iterator[None]:
    """Turn whatever goes wrong while a state is read into `DamagedSnapshot`."""
    try:
        yield
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError, error) as cause:
        raise DamagedSnapshot(f"the state of the snapshot is none of {protocol}: {cause!r}") from cause


def address_bytes(address: Address) -> bytes:
    """Return an address as JSON; raises `BadAddress` if it cannot be stored."""
    try:
        return json.dumps(address, separators=(",", ":")).encode()
    except TypeError as cause:
        raise BadAddress(f"the address {address!r} is no tuple of plain values and cannot be stored") from cause


def restored_address(value: object) -> Address:
    """Return the address of which JSON, which knows no tuples, made lists; raises `ValueError`."""
    if isinstance(value, list):
        return tuple(map(restored_address, value))
    if value is None or isinstance(value, str | int):
        return value
    raise ValueError(f"{value!r} is no part of an address")
