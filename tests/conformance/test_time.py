"""A machine says when it wants to be woken, and is not woken for nothing."""

from __future__ import annotations

import pytest

from .variants import BOTH, SECOND, Case, numbered, over


@over(deferred=BOTH)
def test_a_machine_with_nothing_to_do_has_no_deadline(case: Case) -> None:
    machine = case.machine()
    assert machine.next_deadline_us() is None
    machine.wake(5 * SECOND)
    assert machine.next_deadline_us() is None
    assert machine.transmits() == []
    assert machine.events() == []


@over(deferred=BOTH, dtls=BOTH)
def test_an_idle_conversation_is_woken_at_most_twice_a_second(case: Case) -> None:
    pair = case.pair()
    pair.deliver(numbered(20))
    pair.pump.run(5 * SECOND)
    for node in (pair.client, pair.server):
        node.wakes = 0
    pair.pump.run(60 * SECOND)
    assert pair.client.wakes <= 120
    assert pair.server.wakes <= 120


@over()
def test_a_machine_whose_conversations_are_over_falls_asleep(case: Case) -> None:
    pair = case.pair()
    pair.deliver(numbered(20))
    pair.pump.close(pair.client, None)
    pair.pump.close(pair.server, None)
    pair.pump.run(400 * SECOND)
    assert pair.client.machine.next_deadline_us() is None
    assert pair.server.machine.next_deadline_us() is None


@over(deferred=BOTH, dtls=BOTH)
@pytest.mark.parametrize("late_us", [1, 700, 40_000])
def test_waking_late_loses_nothing(case: Case, late_us: int) -> None:
    """Every timer of the pump runs late; the pump itself checks that each deadline lies ahead after a wake."""
    pair = case.pair()
    pair.pump.late_us = late_us
    pair.pump.lose_at_random(150_000, seed=21)
    pair.deliver(numbered(30))
    assert sorted(pair.server.bodies) == numbered(30)


@over(deferred=BOTH, dtls=BOTH)
def test_waking_for_nothing_changes_nothing(case: Case) -> None:
    pair = case.pair()
    pair.deliver(numbered(10))
    pair.pump.run(5 * SECOND)
    for node in (pair.client, pair.server):
        deadline_us, reported, sent = node.deadline_us, len(node.events), pair.pump.sent
        if deadline_us is not None and deadline_us <= pair.pump.now_us:
            continue
        for _ in range(5):
            node.machine.wake(pair.pump.now_us)
            pair.pump.settle(node)
        assert (node.deadline_us, len(node.events), pair.pump.sent) == (deadline_us, reported, sent)


@over(where=lambda variant: variant.handshake, dtls=BOTH)
@pytest.mark.parametrize("said", [[b"hello"], []], ids=["after a message", "without a message"])
def test_an_idle_conversation_stays_open_for_ten_minutes(case: Case, said: list[bytes]) -> None:
    pair = case.pair()
    if said:
        pair.deliver(said)
    pair.pump.run(600 * SECOND)
    pair.deliver([b"still there"])
    assert pair.server.bodies == [*said, b"still there"]
    back = pair.pump.send(pair.server, pair.caller(), b"and back")
    assert pair.pump.finished(pair.server, [back])
    assert pair.client.bodies == [b"and back"]
