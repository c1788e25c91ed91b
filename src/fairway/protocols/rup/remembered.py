"""Completed messages by address and id, kept long enough to recognise every duplicate; also what a snapshot holds.

A message that was delivered but whose conversation ended before the commit is kept as *silent*: its duplicates are
neither delivered nor confirmed, and a snapshot leaves it out.
"""

from __future__ import annotations

import json
from binascii import unhexlify
from collections.abc import Iterable
from struct import Struct

from fairway.core.events import Address
from fairway.core.snapshots import address_bytes, reading, restored_address, seal, unseal
from fairway.protocols.rup.wire import UINT_MAX

_VERSION = b"RUP3"
_FRONT = Struct(">?I")
"""Whether the address was proved, bytes of the address; records follow."""
_RECORD = Struct(">16sI")


SWEEP_US = 1_000_000
"""Messages are forgotten by the second, not one by one: a wake-up and a queue entry for each would cost more than it
frees."""


class Remembered:
    """Totals of completed messages, each forgotten within a second after its time and never before."""

    def __init__(self) -> None:
        self._totals: dict[Address, dict[bytes, int]] = {}
        """A silent message has the complement of its total, which is negative."""
        self._expiring: dict[int, tuple[list[Address], list[bytes]]] = {}
        """By the second, address and id of what is to be forgotten then."""
        self._renewed: dict[tuple[Address, bytes], int] = {}
        """The second to which a message was put off; it is looked up when its first one has come."""
        self._count = 0
        self.serial = 0

    def __len__(self) -> int:
        return self._count

    def total(self, address: Address, identity: bytes) -> int | None:
        """Return the total of a completed message (its complement when silent), or None."""
        known = self._totals.get(address)
        return None if known is None else known.get(identity)

    def add(self, address: Address, identity: bytes, total: int, expires_us: int, *, silent: bool = False) -> None:
        known = self._totals.setdefault(address, {})
        if identity in known:
            self.renew(address, identity, expires_us)
        else:
            self._count += 1
            self._expire_at(_second(expires_us), address, identity)
        known[identity] = ~total if silent else total

    def renew(self, address: Address, identity: bytes, expires_us: int) -> None:
        self._renewed[address, identity] = _second(expires_us)

    def _expire_at(self, second: int, address: Address, identity: bytes) -> None:
        addresses, identities = self._expiring.setdefault(second, ([], []))
        addresses.append(address)
        identities.append(identity)

    def expire(self, now_us: int) -> None:
        now = now_us // SWEEP_US
        for second in [second for second in self._expiring if second <= now]:
            for address, identity in zip(*self._expiring.pop(second), strict=True):
                renewed = self._renewed.pop((address, identity), 0) if self._renewed else 0
                if renewed > now:
                    self._expire_at(renewed, address, identity)
                else:
                    self._forget(address, identity)

    def _forget(self, address: Address, identity: bytes) -> None:
        known = self._totals[address]
        del known[identity]
        self._count -= 1
        if not known:
            del self._totals[address]

    def next_us(self) -> int | None:
        """Return when to call `expire` next, or None."""
        return min(self._expiring) * SWEEP_US if self._expiring else None

    def knows(self, address: Address) -> bool:
        """Return whether there is something to remember of an address."""
        return address in self._totals

    def addresses(self) -> list[Address]:
        """List the addresses with something to remember, oldest first."""
        return list(self._totals)

    def of(self, address: Address) -> list[tuple[bytes, int]]:
        """List the confirmed messages of an address, oldest first."""
        known = self._totals.get(address, {})
        return [(identity, total) for identity, total in known.items() if total >= 0]


def _second(us: int) -> int:
    """Return the first whole second at or after a time."""
    return -(-us // SWEEP_US)


def encode_snapshot(address: Address, proved: bool, completed: Iterable[tuple[bytes, int]]) -> bytes:
    name = address_bytes(address)
    records = [_RECORD.pack(unhexlify(identity), total) for identity, total in completed]
    return seal(_VERSION, b"".join([_FRONT.pack(proved, len(name)), name, *records]))


def decode_snapshot(snapshot: bytes) -> tuple[Address, bool, list[tuple[bytes, int]]]:
    """Return what `encode_snapshot` took; raises `DamagedSnapshot`."""
    state = unseal(_VERSION, snapshot)
    with reading("rup"):
        proved, length = _FRONT.unpack_from(state)
        name, records = state[_FRONT.size : _FRONT.size + length], state[_FRONT.size + length :]
        completed = [(identity.hex().encode(), total) for identity, total in _RECORD.iter_unpack(records)]
        if any(total > UINT_MAX for _, total in completed):
            raise ValueError("a total that no rup message has")
        return restored_address(json.loads(name)), proved, completed
