"""The three-times limit: an unproved address gets at most three times the bytes that came from it."""

from __future__ import annotations

from collections import OrderedDict

from fairway.core.addresses import device_of
from fairway.core.events import Address

FACTOR = 3
ENOUGH = 1 << 62
"""The budget of a device: a handshake has proved its address."""


class Ledger:
    """Bytes got from, and sent to, addresses that have not proved that they receive.

    The table is bounded and the oldest goes first. That is safe: an entry takes what it sent and what it got with it,
    so the sum over an address's successive entries still keeps the limit.
    """

    __slots__ = ("_budget", "_max")

    def __init__(self, unproved_max: int) -> None:
        self._budget: OrderedDict[Address, int] = OrderedDict()
        """Not a plain dict: finding its first key costs more with each key deleted before it."""
        self._max = unproved_max

    def __len__(self) -> int:
        return len(self._budget)

    def received(self, address: Address, count: int) -> None:
        """Credit bytes that came from an unproved address."""
        budget = self._budget.get(address)
        if budget is None:
            if len(self._budget) >= self._max:
                self._budget.popitem(last=False)
            budget = 0
        self._budget[address] = budget + FACTOR * count

    def allows(self, address: Address, count: int) -> bool:
        """Take `count` bytes from the address's budget if it holds them."""
        if device_of(address) is not None:
            return True
        budget = self._budget.get(address, 0)
        if budget < count:
            return False
        self._budget[address] = budget - count
        return True

    def budget(self, address: Address) -> int:
        """Return how many bytes may leave for an unproved address now."""
        return ENOUGH if device_of(address) is not None else self._budget.get(address, 0)

    def forget(self, address: Address) -> None:
        """Drop an address that has proved itself, or is gone."""
        self._budget.pop(address, None)
