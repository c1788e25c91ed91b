"""The sending side is bounded: it says when its queue is full and when there is room again."""

from __future__ import annotations

import re

import pytest

from fairway.core.errors import QueueFull
from fairway.core.events import Event, Writable

from .variants import BOTH, SECOND, Case, numbered, over


@over(controllers=("model", "newreno", "eager"), dtls=BOTH)
@pytest.mark.parametrize("window", [1, 64])
def test_a_full_queue_refuses_the_next_message_and_says_once_when_a_quarter_is_free(case: Case, window: int) -> None:
    pair = case.pair(client={"send_queue_messages_max": 8, "window": window})
    machine, report, free = pair.client.machine, pair.client.report, list[int]()

    def note(event: Event) -> None:
        if isinstance(event, Writable):
            free.append(machine.room(pair.peer))
        report(event)

    pair.client.report = note  # type: ignore[method-assign]
    assert machine.room(pair.peer) == 8
    tokens = pair.send_all(numbered(8))
    assert machine.room(pair.peer) == 0
    full = rf"^the send queue of {re.escape(repr(pair.peer.address))} is full: wait for Writable$"
    with pytest.raises(QueueFull, match=full):
        pair.pump.send(pair.client, pair.peer, b"one too many")
    assert (machine.unfinished(), free) == (8, [])
    assert pair.pump.run_until(lambda: bool(free), 10 * SECOND)
    tokens.append(pair.pump.send(pair.client, pair.peer, b"now it fits"))
    pair.pump.delivers(pair.client, tokens)
    assert sorted(pair.server.bodies) == sorted([*numbered(8), b"now it fits"])
    assert len(free) == 1
    assert free[0] >= 2


@over(dtls=BOTH)
def test_the_bytes_of_the_queue_are_bounded_too(case: Case) -> None:
    pair = case.pair(client={"send_queue_bytes_max": 3_000})
    tokens = pair.send_all(numbered(3, 1_000))
    with pytest.raises(QueueFull):
        pair.pump.send(pair.client, pair.peer, bytes(1_000))
    assert pair.pump.finished(pair.client, tokens)
    pair.pump.send(pair.client, pair.peer, bytes(1_000))
    pair.pump.run(SECOND)
    assert len(pair.server.received) == 4


@over(controllers=("model", "newreno", "eager"), dtls=BOTH)
def test_many_messages_are_taken_as_far_as_there_is_room(case: Case) -> None:
    pair = case.pair(client={"send_queue_messages_max": 50})
    bodies = numbered(120)
    taken = 0
    for _ in range(40):
        tokens = pair.client.machine.send_many(pair.peer, bodies[taken:], pair.pump.now_us)
        taken += len(tokens)
        assert pair.client.machine.unfinished() <= 50
        pair.pump.settle(pair.client)
        pair.pump.run(200_000)
        if taken == len(bodies):
            break
    assert taken == len(bodies)
    pair.pump.run(5 * SECOND)
    assert sorted(pair.server.bodies) == bodies


@over(controllers=("model", "newreno", "eager"), batched=BOTH, where=lambda variant: variant.windowed)
def test_no_more_packets_are_in_flight_than_the_window_allows(case: Case) -> None:
    pair = case.pair(client={"window": 6})
    pair.pump.remove(pair.server)
    sent = pair.pump.sent
    if case.variant.protocol == "rup":
        pair.pump.send(pair.client, pair.peer, bytes(40 * 1_158))
    else:
        pair.send_all(numbered(40))
    assert pair.pump.sent - sent == 6


@over(batched=BOTH, controllers=("model", "newreno", "eager"), where=lambda variant: variant.windowed, dtls=BOTH)
def test_a_window_of_one_is_served_packet_by_packet(case: Case) -> None:
    pair = case.pair(client={"window": 1}, server={"window": 1})
    bodies = numbered(20)
    start_us = pair.pump.now_us
    pair.deliver(bodies)
    assert sorted(pair.server.bodies) == bodies
    assert pair.pump.now_us - start_us >= 20 * 40_000
