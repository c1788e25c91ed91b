"""Large messages fast: whole bursts, confirms at the right distance, and repairs that do not wait for a timer."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fairway.core.events import Address, Delivered, MessageReceived, Peer
from fairway.core.machine import Transmit, split
from fairway.core.random_source import Seeded
from fairway.protocols.rup import wire
from fairway.protocols.rup.feedback import BACKLOG_PARTS, QUICK_CONFIRMS, AckPolicy
from fairway.protocols.rup.machine import RupMachine
from fairway.protocols.rup.options import RupOptions
from fairway.sim.swarm import run_seed

A, B = ("a", 1), ("b", 2)
BURST_PARTS = 54
PART_BYTES = 1_158
MILLISECOND = 1_000


class Turns:
    """Two machines that take turns as event loops do: all that arrived, then all that is to be sent."""

    def __init__(self, **options: object) -> None:
        self.a = RupMachine(RupOptions(**options), Seeded(1))  # type: ignore[arg-type]
        self.b = RupMachine(RupOptions(**options), Seeded(2))  # type: ignore[arg-type]
        self.now_us = 0
        self.sent: list[Transmit] = []
        self.confirms = 0
        self.received: list[bytes] = []
        self.delivered: list[int] = []
        self.loses: Callable[[Address, wire.Headed], bool] = lambda source, header: False
        self.a.connect(B, 0)
        self.a.events()

    def send(self, *bodies: bytes) -> list[int]:
        return list(self.a.send_many(Peer(B), bodies, self.now_us))

    def turn(self) -> None:
        """Let both sides send and receive once, 50 microseconds apart."""
        for machine, source, target in ((self.a, A, self.b), (self.b, B, self.a)):
            due_us = machine.next_deadline_us()
            if due_us is not None and due_us <= self.now_us:
                machine.wake(self.now_us)
            transmits = machine.transmits()
            self.now_us += 50
            for transmit in transmits:
                self._carry(transmit, source, target)
        for event in self.b.events():
            if isinstance(event, MessageReceived):
                self.received.append(event.body)
                self.b.commit(event.receipt, self.now_us)
        self.delivered += [token for event in self.a.events() if isinstance(event, Delivered) for token in event.tokens]

    def _carry(self, transmit: Transmit, source: Address, target: RupMachine) -> None:
        if source == A:
            self.sent.append(transmit)
        size = transmit.segment_bytes or len(transmit.data)
        kept = [one for one in split(transmit.data, size) if not self.loses(source, wire.header(one))]
        self.confirms += sum(wire.header(one).kind == wire.CONFIRM for one in kept)
        if kept:
            target.receive(b"".join(map(bytes, kept)), source, self.now_us, size if len(kept) > 1 else None)

    def until_delivered(self, tokens: list[int], limit_us: int) -> None:
        end_us = self.now_us + limit_us
        while not set(tokens) <= set(self.delivered):
            assert self.now_us < end_us, "not delivered in time"
            self.turn()


def body_of(parts: int) -> bytes:
    return bytes(index % 251 for index in range(parts * PART_BYTES))


def test_with_a_window_in_flight_whole_bursts_leave_whatever_the_confirms_free() -> None:
    turns = Turns(controller="eager", window=300)
    turns.until_delivered(turns.send(body_of(3_000)), 500 * MILLISECOND)
    assert turns.received == [body_of(3_000)]
    counts = [-(-len(one.data) // (one.segment_bytes or len(one.data))) for one in turns.sent]
    assert [count % BURST_PARTS for count in counts if count % BURST_PARTS] == [3_000 % BURST_PARTS]
    assert turns.a.statistics.retransmissions == 0


def test_a_window_smaller_than_a_burst_is_used_in_full() -> None:
    turns = Turns(controller="eager", window=20)
    turns.until_delivered(turns.send(body_of(1_000)), 120 * MILLISECOND)
    assert turns.received == [body_of(1_000)]


def test_the_confirms_of_one_turn_are_answered_together() -> None:
    turns = Turns(controller="eager", window=512)
    turns.send(body_of(2_000))
    turns.a.transmits()
    confirms = b""
    [identity] = turns.a._conversations[B].sender._under_way
    for parts in (64, 128, 192, 256):
        confirms += wire.control(wire.CONFIRM, identity, parts * PART_BYTES)
    turns.a.receive(confirms, B, 100, wire.CONTROL_BYTES)
    sizes = [len(one.data) // (42 + PART_BYTES) for one in turns.a.transmits()]
    assert sizes == [3 * BURST_PARTS, 2 * BURST_PARTS], "the rest of one turn, and the beginning of the next"


def test_a_fair_window_that_losses_have_cut_does_not_stand_still_for_every_confirm() -> None:
    turns = Turns(controller="newreno")
    lost = iter(range(1, 100_000))
    turns.loses = lambda source, header: source == A and next(lost) % 100 == 0
    turns.until_delivered(turns.send(body_of(1_000)), 1_000 * MILLISECOND)
    assert turns.received == [body_of(1_000)]


@pytest.mark.parametrize("lost", ["repair", "last part", "last confirm"])
def test_what_is_lost_at_the_end_of_a_message_is_repeated_before_any_timer_of_the_receiver(lost: str) -> None:
    turns = Turns(controller="eager")
    turns.until_delivered(turns.send(body_of(300)), 500 * MILLISECOND)
    left = {"repair": 2, "last part": 1, "last confirm": 1}[lost]

    def loses(source: Address, header: wire.Headed) -> bool:
        nonlocal left
        chosen = {
            "repair": source == A and header.position == 290 * PART_BYTES,
            "last part": source == A and header.position == 299 * PART_BYTES,
            "last confirm": source == B and header.position == 300 * PART_BYTES,
        }[lost]
        left -= chosen
        return chosen and left >= 0

    turns.loses = loses
    started_us = turns.now_us
    turns.until_delivered(turns.send(body_of(300)), 500 * MILLISECOND)
    assert turns.now_us - started_us < 15 * MILLISECOND
    assert left < 0
    assert turns.received == [body_of(300)] * 2


def test_repeats_before_the_time_out_are_few_while_the_peer_is_silent() -> None:
    turns = Turns(controller="eager")
    turns.until_delivered(turns.send(body_of(100)), 500 * MILLISECOND)
    turns.loses = lambda source, header: source == B or header.position == 50 * PART_BYTES
    turns.send(body_of(100))
    for _ in range(190):
        turns.turn()
    assert turns.a.statistics.retransmissions <= 2


def test_a_copy_below_the_mark_is_answered_at_once() -> None:
    machine = RupMachine(RupOptions(), Seeded(3))
    identity = b"0123456789abcdef0123456789abcdef"
    parts = [wire.part(identity, index, 40, bytes(10)) for index in (0, 10, 20)]
    for part in parts:
        machine.receive(part, A, 0)
    machine.transmits()
    machine.receive(parts[0], A, 1)
    assert [bytes(one.data) for one in machine.transmits()] == [wire.control(wire.CONFIRM, identity, 30)]


def test_confirms_are_close_at_first_and_64_parts_apart_in_the_end() -> None:
    policy = AckPolicy(64)
    distances = []
    for _ in range(200):
        distances.append(policy.step(1))
        policy.left(distances[-1])
    assert distances[:QUICK_CONFIRMS] == [1] * QUICK_CONFIRMS
    assert distances == sorted(distances)
    assert distances[60:] == [64] * 140


def test_a_sender_that_stands_still_is_confirmed_more_often_until_it_keeps_pace_again() -> None:
    policy = AckPolicy(64)
    policy.left(10_000)
    policy.stood_still(21)
    assert policy.step(1) == 10
    policy.kept_pace()
    assert policy.step(1) == 11
    policy.stood_still(1)
    assert policy.step(1) == 1
    for _ in range(126):
        policy.kept_pace()
    assert policy.step(1) == 64


def test_many_messages_at_once_share_what_may_wait_for_a_confirm() -> None:
    policy = AckPolicy(64)
    policy.left(10_000)
    assert [policy.step(messages) for messages in (1, 4, 8, 256, 1_000)] == [64, 64, 32, 1, 1]
    assert all(policy.step(messages) * messages <= BACKLOG_PARTS for messages in range(1, 257))


def test_seed_910000_a_part_that_was_sent_too_often_does_not_keep_the_machine_awake() -> None:
    assert run_seed("rup", 910_000).violations == ()
