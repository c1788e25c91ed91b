"""A super-buffer has the result of its datagrams one by one, whatever they are."""

from __future__ import annotations

from itertools import groupby

from hypothesis import given, settings
from hypothesis import strategies as st

from fairway.core.events import Event, MessageReceived, PartReceived, Peer
from fairway.core.machine import split
from fairway.core.random_source import Seeded
from fairway.protocols.rup import wire
from fairway.protocols.rup.machine import RupMachine
from fairway.protocols.rup.options import RupOptions
from tests.protocols.rup_outputs import Outputs

PART_BYTES = 22
BODIES = [bytes((7 * place + number) % 251 for place in range(size)) for number, size in enumerate((2_200, 1_555, 660))]
IDS = [f"{number:032x}".encode() for number in (1, 2, 3)]
DATAGRAMS = [
    [
        wire.part(identity, start, len(body), body[start : start + PART_BYTES])
        for start in range(0, len(body), PART_BYTES)
    ]
    for identity, body in zip(IDS, BODIES, strict=True)
]
BOUNDS: list[dict[str, int]] = [
    {},
    {"gaps_max": 2},
    {"requests_open_max": 3},
    {"incoming_bytes_per_peer_max": 4_000},
    {"open_receipts_max": 1},
    {"spool_above_bytes": 1_000},
    {"incoming_messages_per_peer_max": 1},
]


@st.composite
def stretches(draw: st.DrawFn) -> list[bytes]:
    """Datagrams as networks deliver them: runs of a message with holes, copies, strangers and damage between."""
    found: list[bytes] = []
    at = [0, 0, 0]
    for _ in range(draw(st.integers(1, 8))):
        message = draw(st.integers(0, 2))
        start = max(0, at[message] + draw(st.sampled_from([0, 0, 0, 0, 1, 2, 5, -3])))
        run = DATAGRAMS[message][start : start + draw(st.integers(1, 40))]
        at[message] = start + len(run)
        if run and draw(st.integers(0, 9)) == 0:
            damaged = bytearray(run[-1])
            damaged[draw(st.integers(0, len(damaged) - 1))] ^= draw(st.integers(1, 255))
            run[-1] = bytes(damaged)
        if draw(st.integers(0, 9)) == 0:
            run.reverse()
        found += run
    return found


def joined(datagrams: list[bytes]) -> list[tuple[bytes, int | None]]:
    """Joins neighbours of equal size to super-buffers, a shorter one at the end of each."""
    groups = [list(group) for _, group in groupby(datagrams, key=len)]
    buffers: list[tuple[bytes, int | None]] = []
    while groups:
        group = groups.pop(0)
        size = len(group[0])
        if groups and len(groups[0][0]) < size and len(group) > 1:
            group.append(groups[0].pop(0))
            groups = [rest for rest in groups if rest]
        buffers.append((b"".join(group), size if len(group) > 1 else None))
    return buffers


class Listener(Outputs):
    """A machine whose outputs are kept as flat lists."""

    def __init__(self, options: RupOptions) -> None:
        super().__init__(RupMachine(options, Seeded(1)))

    def happened(self) -> list[Event]:
        """The events, neighbouring parts of a spooled message joined."""
        flat: list[Event] = []
        for event in self.events:
            last = flat[-1] if flat else None
            if isinstance(event, PartReceived) and isinstance(last, PartReceived) and _follows(last, event):
                flat[-1] = PartReceived(event.peer, event.id, last.offset, event.total, last.body + event.body)
            else:
                flat.append(event)
        return flat

    def counts(self) -> dict[str, object]:
        return {name: value for name, value in self.machine.statistics.as_dict().items() if name != "batches"}


def _follows(last: PartReceived, event: PartReceived) -> bool:
    return last.id == event.id and last.offset + len(last.body) == event.offset


@settings(max_examples=250)
@given(
    st.lists(stretches(), min_size=1, max_size=4),
    st.booleans(),
    st.booleans(),
    st.sampled_from(BOUNDS),
    st.sampled_from([0, 5_000, 15_000, 250_000]),
)
def test_a_batch_has_the_result_of_its_datagrams(
    turns: list[list[bytes]], deferred: bool, named: bool, bound: dict[str, int], apart_us: int
) -> None:
    options = RupOptions(deferred=deferred, **bound)  # type: ignore[arg-type]
    singly, together = Listener(options), Listener(options)
    now_us = 1_000
    for listener in (singly, together):
        if named:
            listener.machine.connect("a", 0)
    for datagrams in turns:
        for listener in (singly, together):
            listener.wake_until(now_us)
        for data, segment_bytes in joined(datagrams):
            together.machine.receive(data, "a", now_us, segment_bytes)
            for datagram in split(data, segment_bytes or len(data)):
                singly.machine.receive(datagram, "a", now_us)
        for listener in (singly, together):
            listener.drain(now_us)
        now_us += apart_us
    for listener in (singly, together):
        listener.wake_until(now_us + 2_000_000)
    assert together.sent == singly.sent
    assert together.happened() == singly.happened()
    assert together.counts() == singly.counts()


def test_a_message_in_super_buffers_is_taken_as_a_whole() -> None:
    machine = RupMachine(RupOptions(), Seeded(1))
    for start in range(0, 100, 25):
        machine.receive(b"".join(DATAGRAMS[0][start : start + 25]), "a", start, 64)
    assert machine.statistics.batches == 4
    assert [event.body for event in machine.events() if isinstance(event, MessageReceived)] == [BODIES[0]]


def test_a_batch_with_a_hole_asks_for_it_and_is_taken_as_a_whole() -> None:
    machine = RupMachine(RupOptions(), Seeded(1))
    holed = DATAGRAMS[0][:10] + DATAGRAMS[0][11:]
    machine.receive(b"".join(holed), "a", 0, 64)
    assert machine.statistics.batches == 1
    assert wire.control(wire.REQUEST, IDS[0], 220) in [
        bytes(one) for transmit in machine.transmits() for one in split(transmit.data, 38)
    ]
    machine.receive(DATAGRAMS[0][10], "a", 1)
    assert [event.body for event in machine.events() if isinstance(event, MessageReceived)] == [BODIES[0]]


def test_two_messages_in_one_super_buffer_do_not_mix() -> None:
    machine = RupMachine(RupOptions(), Seeded(1))
    mixed = [datagram for pair in zip(DATAGRAMS[0][:30], DATAGRAMS[2], strict=True) for datagram in pair]
    machine.receive(b"".join(mixed + DATAGRAMS[0][30:]), "a", 0, 64)
    received = {event.id: event.body for event in machine.events() if isinstance(event, MessageReceived)}
    assert received == {IDS[0].decode(): BODIES[0], IDS[2].decode(): BODIES[2]}


def test_a_burst_past_the_total_is_not_taken() -> None:
    machine = RupMachine(RupOptions(), Seeded(1))
    total = 10 * PART_BYTES
    burst = [wire.part(IDS[0], index * PART_BYTES, total, bytes(PART_BYTES)) for index in range(20)]
    machine.receive(b"".join(burst[:5] + burst[10:]), "a", 0, 64)
    assert machine.statistics.dropped == {"past_total": 10}
    machine.receive(b"".join(burst[5:10]), "a", 0, 64)
    assert [event.body for event in machine.events() if isinstance(event, MessageReceived)] == [bytes(total)]


def test_a_burst_past_the_total_is_not_taken_while_holes_are_open() -> None:
    machine = RupMachine(RupOptions(), Seeded(1))
    total = 10 * PART_BYTES
    burst = [wire.part(IDS[0], index * PART_BYTES, total, bytes([index]) * PART_BYTES) for index in range(14)]
    machine.receive(b"".join(burst[:3] + burst[5:8]), "a", 0, 64)
    machine.receive(b"".join(burst[8:]), "a", 0, 64)
    assert machine.statistics.dropped == {"past_total": 4}
    machine.receive(b"".join(burst[3:5]), "a", 0, 64)
    expected = b"".join(bytes([index]) * PART_BYTES for index in range(10))
    assert [event.body for event in machine.events() if isinstance(event, MessageReceived)] == [expected]


def test_a_window_leaves_as_bursts_with_a_segment_size() -> None:
    machine = RupMachine(RupOptions(controller="eager", window=200, datagram_bytes_max=64), Seeded(1))
    machine.connect("b", 0)
    machine.send(Peer("b"), BODIES[0], 0)
    transmits = machine.transmits()
    assert [(len(transmit.data), transmit.segment_bytes) for transmit in transmits] == [(100 * 64, 64)]
    sent = b"".join(bytes(one)[42:] for transmit in transmits for one in split(transmit.data, 64))
    assert sent == BODIES[0]


def test_equal_small_messages_leave_as_one_transmit() -> None:
    machine = RupMachine(RupOptions(controller="eager"), Seeded(1))
    machine.connect("b", 0)
    tokens = machine.send_many(Peer("b"), [b"%06d" % number for number in range(50)], 0)
    assert len(tokens) == 50
    (transmit,) = machine.transmits()
    assert (len(transmit.data), transmit.segment_bytes) == (50 * 48, 48)
