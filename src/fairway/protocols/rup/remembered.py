"""Completed messages by address and id, kept long enough to recognise every copy; also what a snapshot holds.

A message that was handed over but whose conversation ended before the commit is kept as *silent*: its copies are
neither delivered nor confirmed, and a snapshot leaves it out.
"""

from __future__ import annotations

import json
import struct
from binascii import unhexlify
from collections import deque
from collections.abc import Iterable
from struct import Struct

from fairway.core import addresses
from fairway.core.errors import BadAddress, DamagedSnapshot
from fairway.core.events import Address
from fairway.protocols.rup.wire import UINT_MAX

_MAGIC = b"rup2"
_FRONT = Struct(">4s?II")
"""Magic, whether the address was proved, bytes of the address, number of records."""
_RECORD = Struct(">16sI")


class Remembered:
    """Totals of completed messages, each forgotten at its time and never before."""

    __slots__ = ("_count", "_queue", "_totals", "serial")

    def __init__(self) -> None:
        self._totals: dict[Address, dict[bytes, int]] = {}
        """A silent message has the complement of its total, which is negative."""
        self._queue: deque[tuple[int, Address, bytes]] = deque()
        """Expiry, address and id. Times never go back, so the earliest is first."""
        self._count = 0
        self.serial = 0

    def __len__(self) -> int:
        return self._count

    def total(self, address: Address, identity: bytes) -> int | None:
        """Gives the total of a completed message (its complement when silent), or None."""
        known = self._totals.get(address)
        return None if known is None else known.get(identity)

    def add(self, address: Address, identity: bytes, total: int, expires_us: int, *, silent: bool = False) -> None:
        """Remembers a message."""
        known = self._totals.setdefault(address, {})
        if identity not in known:
            self._count += 1
            self._queue.append((expires_us, address, identity))
        known[identity] = ~total if silent else total

    def expire(self, now_us: int) -> None:
        """Forgets what is past its time."""
        queue = self._queue
        while queue and queue[0][0] <= now_us:
            _, address, identity = queue.popleft()
            known = self._totals[address]
            del known[identity]
            self._count -= 1
            if not known:
                del self._totals[address]

    def next_us(self) -> int | None:
        """Tells when the next message is forgotten."""
        return self._queue[0][0] if self._queue else None

    def addresses(self) -> list[Address]:
        """Lists the addresses with something to remember, oldest first."""
        return list(self._totals)

    def of(self, address: Address) -> list[tuple[bytes, int]]:
        """Lists the confirmed messages of an address, oldest first."""
        known = self._totals.get(address, {})
        return [(identity, total) for identity, total in known.items() if total >= 0]


def encode_snapshot(address: Address, proved: bool, completed: Iterable[tuple[bytes, int]]) -> bytes:
    """Gives an address and its completed messages as bytes."""
    try:
        name = json.dumps(address).encode()
    except TypeError as error:
        raise BadAddress(f"the address {address!r} is no tuple of plain values and cannot be stored") from error
    records = [_RECORD.pack(unhexlify(identity), total) for identity, total in completed]
    return b"".join([_FRONT.pack(_MAGIC, proved, len(name), len(records)), name, *records])


def decode_snapshot(snapshot: bytes) -> tuple[Address, bool, list[tuple[bytes, int]]]:
    """Gives back what `encode_snapshot` took, or raises `DamagedSnapshot`."""
    try:
        magic, proved, length, count = _FRONT.unpack_from(snapshot)
        name, records = snapshot[_FRONT.size : _FRONT.size + length], snapshot[_FRONT.size + length :]
        address = addresses.restored(json.loads(name))
        completed = [(identity.hex().encode(), total) for identity, total in _RECORD.iter_unpack(records)]
    except (ValueError, RecursionError, OverflowError, struct.error) as error:
        raise DamagedSnapshot(f"a rup snapshot of {len(snapshot)} bytes cannot be read: {error}") from None
    if magic != _MAGIC or len(completed) != count or any(total > UINT_MAX for _, total in completed):
        raise DamagedSnapshot(
            f"a rup snapshot of {len(snapshot)} bytes is incomplete or holds what no rup machine wrote"
        )
    return address, proved, completed
