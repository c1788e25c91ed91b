"""Outcomes find the one who waits, one by one and in bulk."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from fairway.core.errors import BadMessage, QueueFull
from fairway.core.events import Peer
from fairway.core.machine import Buffer
from fairway.net.outcomes import DeliveryRefused, DeliveryUnknown
from fairway.net.sending import Bulk, Singles, Tokens

PEER = Peer(("127.0.0.1", 1))


class RoomyMachine:
    """Takes messages while there is room, and refuses a body that says so."""

    def __init__(self, room: int) -> None:
        self.room_left = room
        self.taken: list[Buffer] = []

    def send_many(self, peer: Peer, bodies: Sequence[Buffer], now_us: int) -> range:
        if b"bad" in bodies:
            raise BadMessage("bad")
        count = min(len(bodies), self.room_left)
        self.room_left -= count
        start = len(self.taken)
        self.taken.extend(bodies[:count])
        return range(start, start + count)

    def send(self, peer: Peer, body: Buffer, now_us: int) -> int:
        if not self.room_left:
            raise QueueFull("full")
        return self.send_many(peer, [body], now_us).start


def machine(room: int) -> Any:
    return RoomyMachine(room)


def future() -> asyncio.Future[Any]:
    return asyncio.get_running_loop().create_future()


async def test_a_bulk_ends_when_all_its_messages_have_an_outcome_in_whatever_pieces() -> None:
    tokens, roomy, bulk = Tokens(), machine(99), Bulk([b"x"] * 10, future())
    assert bulk.submit(roomy, PEER, 0, tokens)
    tokens.delivered(range(3, 7))
    tokens.delivered([0, 2, 1])
    tokens.delivered((9, 8))
    assert not bulk.future.done()
    tokens.delivered([7])
    assert await bulk.future == 10
    assert not tokens.futures
    assert not tokens.ranges


async def test_outcomes_that_span_bulks_and_single_messages_are_told_apart() -> None:
    tokens, roomy = Tokens(), machine(99)
    first, last, singles = (
        Bulk([b"x"] * 3, future()),
        Bulk([b"x"] * 3, future()),
        Singles([b"y", b"z"], [future(), future()]),
    )
    for outgoing in (first, singles, last):
        assert outgoing.submit(roomy, PEER, 0, tokens)
    tokens.delivered(range(1, 8))
    assert (singles.futures[0].done(), singles.futures[1].done(), last.future.result()) == (True, True, 3)
    tokens.failed([0], DeliveryUnknown, "silence")
    with pytest.raises(DeliveryUnknown, match="2 acknowledged, 0 refused, 1 unknown"):
        await first.future


async def test_refused_goes_before_unknown() -> None:
    tokens, bulk = Tokens(), Bulk([b"x"] * 3, future())
    bulk.submit(machine(9), PEER, 0, tokens)
    tokens.failed([2], DeliveryRefused, "no")
    tokens.failed([0], DeliveryUnknown, "silence")
    tokens.delivered([1])
    with pytest.raises(DeliveryRefused, match=r"no \(1 acknowledged, 1 refused, 1 unknown"):
        await bulk.future


async def test_single_messages_wait_for_room_and_those_whose_caller_left_are_not_sent() -> None:
    tokens, roomy, singles = Tokens(), RoomyMachine(2), Singles([b"%d" % number for number in range(5)], [])
    some: Any = roomy
    singles.futures = [future() for _ in range(5)]
    assert not singles.submit(some, PEER, 0, tokens)
    singles.futures[0].cancel()
    roomy.room_left = 9
    assert singles.submit(some, PEER, 0, tokens)
    assert roomy.taken == [b"0", b"1", b"3", b"4"]


async def test_what_is_abandoned_ends_as_unknown() -> None:
    tokens, single, bulk = Tokens(), future(), Bulk([b"x"] * 3, future())
    bulk.submit(machine(2), PEER, 0, tokens)
    tokens.futures[77] = single
    tokens.delivered([0])
    tokens.abandon("gone")
    with pytest.raises(DeliveryUnknown, match="1 acknowledged, 0 refused, 2 unknown"):
        await bulk.future
    with pytest.raises(DeliveryUnknown, match="gone"):
        await single
    assert not tokens.futures
    assert not tokens.ranges
