"""How messages for one peer are cut into parts, and parts put together into bursts."""

from __future__ import annotations

from fairway.core.events import Address
from fairway.core.machine import UDP_PAYLOAD_BYTES_MAX, Buffer
from fairway.protocols.rup import wire
from fairway.protocols.rup.context import Context
from fairway.protocols.rup.options import PARTS_MAX
from fairway.protocols.rup.outgoing import Outgoing

SEGMENTS_MAX = 64
"""Linux takes so many datagrams in one call everywhere; some kernels take more."""
NUMPY_PARTS_MIN = 4
"""Fewer parts are put together faster without numpy."""
PART_BYTES_MIN = 16
"""Parts shrink until the first fits the three-times limit towards an unproved address, and to what a path takes, but
not below this."""


class Grid:
    """Sizes, and datagrams of that size, within what the address may get."""

    __slots__ = ("_address", "_context")

    def __init__(self, address: Address, context: Context) -> None:
        self._address = address
        self._context = context

    def part_bytes(self, message: Outgoing) -> int:
        """Choose a message's grid: the largest part, or one that fits what an unproved address may get."""
        least = -(-message.total // PARTS_MAX)
        largest = max(self._context.part_bytes_max, least)
        budget = self._context.outbox.budget(self._address)
        if budget is None:
            return largest
        return min(largest, max(budget - wire.DATA_HEADER_BYTES, PART_BYTES_MIN, least))

    def burst_max(self, message: Outgoing) -> int:
        """Return how many parts one system call carries."""
        return min(SEGMENTS_MAX, UDP_PAYLOAD_BYTES_MAX // (wire.DATA_HEADER_BYTES + message.part_bytes))

    def allowed(self, message: Outgoing, count: int) -> int:
        """Return how many of the parts the three-times limit lets through."""
        budget = self._context.outbox.budget(self._address)
        if budget is None:
            return count
        size = wire.DATA_HEADER_BYTES + min(message.part_bytes, message.total)
        return min(count, budget // size)

    def encode(self, message: Outgoing, first: int, count: int) -> Buffer:
        """Return parts of a message, from part `first` on, as datagrams one after another."""
        identity, total, part_bytes = message.identity, message.total, message.part_bytes
        if count == 1:
            return wire.part(identity, first * part_bytes, total, message.slice_of(first, 1))
        if count < NUMPY_PARTS_MIN:
            indices = range(first, first + count)
            return b"".join([wire.part(identity, i * part_bytes, total, message.slice_of(i, 1)) for i in indices])
        return self._context.bursts.encode(identity, total, part_bytes, first, message.slice_of(first, count))
