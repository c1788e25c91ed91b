"""Connections that are not open yet: those we call, and those that called us and have not shown that they receive.

A call that we accepted is half open until a packet with our sv_conid comes. A rejected one is remembered in the same
table, so that a repeated connect gets the first reply again. The table is bounded and the oldest goes first.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from fairway.core.events import Address


@dataclass(slots=True)
class Opening:
    """A connection that we asked for."""

    token: int
    address: Address
    layout: str
    local: int
    connect: bytes
    give_up_us: int
    repeat_us: int
    """When the connect is repeated next."""
    pause_us: int
    """How long the pause before that repeat is."""


@dataclass(slots=True)
class HalfOpen:
    """A call that got its reply; `local` is 0 if it was rejected."""

    address: Address
    cl_conid: int
    layout: str
    local: int
    reply: bytes
    expires_us: int


class HalfOpens:
    """The calls of others, by caller and by the id that we gave them."""

    __slots__ = ("_by_caller", "_by_local", "_max")

    def __init__(self, half_open_max: int) -> None:
        self._by_caller: OrderedDict[tuple[Address, int], HalfOpen] = OrderedDict()
        """Oldest first. Not a plain dict: finding its first entry costs more with each one deleted before it."""
        self._by_local: dict[int, HalfOpen] = {}
        self._max = half_open_max

    def __len__(self) -> int:
        return len(self._by_caller)

    def __contains__(self, local: int) -> bool:
        return local in self._by_local

    def by_caller(self, address: Address, cl_conid: int) -> HalfOpen | None:
        return self._by_caller.get((address, cl_conid))

    def by_local(self, local: int) -> HalfOpen | None:
        return self._by_local.get(local)

    def add(self, call: HalfOpen) -> None:
        """Takes a new call; at the bound the oldest goes."""
        if len(self._by_caller) >= self._max:
            self.remove(next(iter(self._by_caller.values())))
        self._by_caller[call.address, call.cl_conid] = call
        if call.local:
            self._by_local[call.local] = call

    def remove(self, call: HalfOpen) -> None:
        del self._by_caller[call.address, call.cl_conid]
        self._by_local.pop(call.local, None)

    def clear(self) -> None:
        """Forgets all calls."""
        self._by_caller.clear()
        self._by_local.clear()

    def expire(self, now_us: int) -> None:
        """Forgets the calls whose time is over."""
        while self._by_caller:
            oldest = next(iter(self._by_caller.values()))
            if now_us < oldest.expires_us:
                return
            self.remove(oldest)

    def next_us(self) -> int | None:
        """Tells when the oldest call is forgotten."""
        return next(iter(self._by_caller.values())).expires_us if self._by_caller else None
