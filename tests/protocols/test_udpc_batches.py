"""A batch has the same effect as its datagrams one by one."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from fairway.core.events import Connected, Event, MessageReceived, MessagesReceived, Peer, Receipt
from fairway.core.machine import split
from fairway.core.random_source import Seeded
from fairway.protocols.udpc.machine import UdpcMachine
from fairway.protocols.udpc.options import UdpcOptions
from fairway.protocols.udpc.wire import ACK, HBT, IMP, REQ, SYN, datagram, header
from tests.protocols.test_udpc_world import datagrams, flattened

START = (1 << 32) - 60
"""The peer's first index, so that longer batches cross the wrap."""


class Listener:
    """A machine that was called, and everything that came out of it."""

    def __init__(self, options: UdpcOptions) -> None:
        self.machine = UdpcMachine(options, Seeded(3))
        self.machine.receive(datagram(START, 5, 0, SYN), "c", 0)
        self.session_id = header(datagrams(self.machine.transmits())[0])[1]
        self.machine.receive(datagram(START + 1, self.session_id, header(self.syn_ack())[0], ACK), "c", 0)
        self.peer = Peer("c", self.session_id)
        assert self.machine.events() == [Connected(self.peer, None)]
        self.events: list[Event] = []
        self.sent: list[bytes] = []

    def syn_ack(self) -> bytes:
        self.machine.receive(datagram(START, 5, 0, SYN), "c", 0)
        return datagrams(self.machine.transmits())[0]

    def collect(self) -> None:
        self.sent += datagrams(self.machine.transmits())
        self.events += flattened(self.machine.events())

    def outcome(self) -> object:
        statistics = self.machine.statistics.as_dict()
        del statistics["batches"]
        snapshot = self.machine.snapshot(self.peer) if self.machine.peers() else None
        return self.events, self.sent, statistics, self.machine.unfinished(), snapshot


def wire_index(offset: int) -> int:
    """Return the index so many packets after the peer's first; 0 is skipped."""
    index = START + offset
    return index if index < 1 << 32 else (index + 1) & ((1 << 32) - 1)


def runs(session_id: int, plan: list[tuple[str, int]], wild: int) -> list[bytes]:
    """Return datagrams of 17 bytes after a plan of kinds and lengths."""
    offset, made = 2, []
    for kind, length in plan:
        again = max(2, offset - length)
        for step in range(length):
            flag = {"plain": 0, "request": REQ, "ack": ACK, "control": HBT}.get(kind, IMP)
            session = session_id ^ 1 if kind == "stranger" else session_id
            place = {"copy": max(2, offset - 5), "again": again + step}.get(kind, offset)
            made.append(datagram(wire_index(place), session, wild, flag, b"%04d" % (place % 10_000)))
            offset += kind not in ("copy", "again")
        offset += kind == "hole"
    return made


KINDS = st.sampled_from(
    ["important"] * 4 + ["plain", "hole", "copy", "again", "again", "request", "stranger", "ack", "control"]
)
PLANS = st.lists(st.tuples(KINDS, st.integers(1, 30)), min_size=1, max_size=8)
OPTIONS = st.sampled_from(
    [
        UdpcOptions(),
        UdpcOptions(deferred=True),
        UdpcOptions(sequenced=True, open_receipts_max=40),
        UdpcOptions(open_receipt_bytes_max=100),
        UdpcOptions(first_index=(1 << 32) - 30),
        UdpcOptions(index_run_max=20),
    ]
)


@settings(max_examples=80)
@given(OPTIONS, PLANS, st.integers(1, 64), st.booleans(), st.booleans(), st.sampled_from([-1, -1, 0, 1, 2]))
def test_messages_in_batches_have_the_effect_of_messages_one_by_one(
    options: UdpcOptions, plan: list[tuple[str, int]], size: int, outstanding: bool, short: bool, close_at: int
) -> None:
    whole, single = Listener(options), Listener(options)
    for listener in (whole, single):
        if outstanding:
            listener.machine.send(listener.peer, b"waits", 0)
        arrivals = runs(listener.session_id, plan, 77)
        for start in range(0, len(arrivals), size):
            batch = b"".join(arrivals[start : start + size]) + (arrivals[0][:15] if short else b"")
            if start == close_at * size:
                listener.machine.close(listener.peer, 900 + start)
            if listener is whole:
                listener.machine.receive(batch, "c", 1_000 + start, 17)
            else:
                for one in split(batch, 17):
                    listener.machine.receive(one, "c", 1_000 + start)
            listener.collect()
    assert whole.outcome() == single.outcome()


@settings(max_examples=80)
@given(
    st.sampled_from(["eager", "newreno"]),
    st.integers(1, 90),
    st.lists(st.tuples(st.integers(0, 80), st.integers(1, 40)), min_size=1, max_size=6),
    st.integers(1, 64),
    st.sampled_from([1, (1 << 32) - 30]),
)
def test_acknowledgements_in_batches_have_the_effect_of_acknowledgements_one_by_one(
    controller: str, count: int, plan: list[tuple[int, int]], size: int, first_index: int
) -> None:
    # A fair window grows by whole batches, so a queue behind it would leave at other times: it gets none here.
    count = count if controller == "eager" else min(count, 10)
    options = UdpcOptions(controller=controller, window=40, first_index=first_index)
    whole, single = Listener(options), Listener(options)
    for listener in (whole, single):
        listener.machine.send_many(listener.peer, [b"%04d" % number for number in range(count)], 500)
        listener.collect()
        acks = [start + place for start, length in plan for place in range(length)]
        arrivals = [
            datagram(wire_index(2 + place), listener.session_id, own_index(first_index, 1 + number), IMP | ACK)
            for place, number in enumerate(acks)
        ]
        for start in range(0, len(arrivals), size):
            batch = arrivals[start : start + size]
            if listener is whole:
                listener.machine.receive(b"".join(batch), "c", 1_000 + start, 13)
            else:
                for one in batch:
                    listener.machine.receive(one, "c", 1_000 + start)
            listener.collect()
    assert whole.outcome() == single.outcome()


def own_index(first: int, offset: int) -> int:
    index = first + offset
    return index if index < 1 << 32 else (index + 1) & ((1 << 32) - 1)


def test_a_batch_of_new_messages_is_one_event_and_one_transmit() -> None:
    listener = Listener(UdpcOptions())
    arrivals = runs(listener.session_id, [("important", 50)], 0)
    listener.machine.receive(memoryview(bytearray(b"".join(arrivals))), "c", 0, 17)
    (event,) = listener.machine.events()
    assert isinstance(event, MessagesReceived)
    assert event.bodies[0] == b"0002"
    assert [message.id for message in event] == list(range(START + 2, START + 52))
    (transmit,) = listener.machine.transmits()
    assert transmit.segment_bytes == 13
    assert len(transmit.data) == 13 * 50
    assert listener.machine.statistics.batches == 1


def test_a_batch_of_copies_is_acknowledged_again_and_not_delivered_again() -> None:
    listener = Listener(UdpcOptions())
    batch = b"".join(runs(listener.session_id, [("important", 20)], 0))
    listener.machine.receive(batch, "c", 0, 17)
    listener.collect()
    listener.machine.receive(batch, "c", 0, 17)
    listener.collect()
    assert len(listener.events) == 20
    assert len(listener.sent) == 40
    assert listener.machine.statistics.duplicates == 20
    assert listener.machine.statistics.batches == 1


def test_a_batch_that_starts_at_index_0_has_one_malformed_datagram() -> None:
    listener = Listener(UdpcOptions())
    batch = b"".join(datagram(index, listener.session_id, 0, IMP, b"x") for index in range(20))
    listener.machine.receive(batch, "c", 0, 14)
    listener.collect()
    assert listener.machine.statistics.dropped == {"zero_index": 1}
    assert len(listener.events) == 19


def test_a_batch_with_a_hole_is_taken_but_not_counted_as_whole() -> None:
    listener = Listener(UdpcOptions())
    arrivals = runs(listener.session_id, [("hole", 20), ("important", 20)], 0)
    listener.machine.receive(b"".join(arrivals), "c", 0, 17)
    assert listener.machine.statistics.messages_received == 40
    assert listener.machine.statistics.batches == 0
    (transmit,) = listener.machine.transmits()
    assert len(transmit.data) == 13 * 40


def test_equal_messages_leave_as_one_transmit_and_their_acknowledgements_are_one_event() -> None:
    listener = Listener(UdpcOptions(controller="eager"))
    tokens = listener.machine.send_many(listener.peer, [bytes(64)] * 50, 0)
    (transmit,) = listener.machine.transmits()
    assert transmit.segment_bytes == 77
    sent = [header(data)[0] for data in datagrams([transmit])]
    acks = b"".join(
        datagram(wire_index(2 + place), listener.session_id, index, IMP | ACK) for place, index in enumerate(sent)
    )
    listener.machine.receive(acks, "c", 1_000, 13)
    (event,) = listener.machine.events()
    assert getattr(event, "tokens", None) == tokens
    assert listener.machine.statistics.batches == 1
    assert listener.machine.unfinished() == 0


def test_a_deferred_batch_is_acknowledged_by_one_transmit_at_its_commit() -> None:
    listener = Listener(UdpcOptions(deferred=True))
    listener.machine.receive(b"".join(runs(listener.session_id, [("important", 40)], 0)), "c", 0, 17)
    assert not listener.machine.transmits()
    listener.machine.commit(Receipt(listener.peer, START + 2, 40), 0)
    (transmit,) = listener.machine.transmits()
    assert [header(data)[2] for data in datagrams([transmit])] == list(range(START + 2, START + 42))


def test_bodies_do_not_change_when_the_receive_buffer_is_used_again() -> None:
    listener = Listener(UdpcOptions())
    buffer = bytearray(b"".join(runs(listener.session_id, [("important", 20)], 0)))
    listener.machine.receive(memoryview(buffer), "c", 0, 17)
    buffer[:] = bytes(len(buffer))
    messages = [event for event in flattened(listener.machine.events()) if isinstance(event, MessageReceived)]
    assert messages[0].body == b"0002"
