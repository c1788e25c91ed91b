"""A super-buffer has the same result as its datagrams one by one, whatever is in it."""

from __future__ import annotations

from zlib import crc32

from hypothesis import given, settings
from hypothesis import strategies as st

from fairway.core.events import Delivered, Event, MessageReceived, MessagesReceived, Peer
from fairway.core.machine import split
from fairway.core.random_source import Seeded
from fairway.protocols.pydevts import wire
from fairway.protocols.pydevts.machine import PydevtsMachine
from fairway.protocols.pydevts.options import PydevtsOptions

ADDRESS = ("there", 2)
FIRST_ID = 65_530
BODY = b"12345678"


def bodies(count: int) -> list[bytes]:
    return [number.to_bytes(8, "big") for number in range(count)]


def packets(first: int, count: int, tag: int) -> list[bytes]:
    """New packets in a row; `tag` makes their bodies differ from those of other runs."""
    made = [(tag << 32 | number).to_bytes(8, "big") for number in range(count)]
    return [wire.datagram(wire.key((first + n) & 0xFFFF, crc32(body)), body) for n, body in enumerate(made)]


def controls(kind: int, first: int, count: int, made: list[bytes], crc_zero: bool) -> list[bytes]:
    """Acks or closes in a row for messages with the given bodies."""
    found = []
    for number in range(first, min(first + count, len(made))):
        crc = 0 if crc_zero else crc32(made[number])
        found.append(wire.datagram(kind | wire.key((FIRST_ID + number) & 0xFFFF, crc)))
    return found


RUNS = st.one_of(
    st.builds(packets, st.integers(65_500, 65_540), st.integers(1, 12), st.integers(0, 2)),
    st.builds(
        controls,
        st.sampled_from([wire.ACK, wire.ACK | wire.FAILED]),
        st.integers(0, 20),
        st.integers(1, 20),
        st.just(bodies(30)),
        st.booleans(),
    ),
    st.builds(
        lambda run: [b"\x03" + one[1:8] for one in run],
        st.builds(packets, st.integers(65_500, 65_540), st.integers(1, 12), st.integers(0, 2)),
    ),
)


@st.composite
def super_buffers(draw: st.DrawFn) -> list[bytes]:
    """Datagrams of one size, perhaps with a copy, a swap, a damaged byte or a shorter last one."""
    run = list(draw(RUNS.filter(bool)))
    for _ in range(draw(st.integers(0, 2))):
        place, other = draw(st.integers(0, len(run) - 1)), draw(st.integers(0, len(run) - 1))
        change = draw(st.sampled_from(["copy", "swap", "damage", "short"]))
        if change == "copy":
            run.insert(place, run[other])
        elif change == "swap":
            run[place], run[other] = run[other], run[place]
        elif change == "damage":
            damaged = bytearray(run[place])
            damaged[draw(st.integers(0, len(damaged) - 1))] ^= 1 << draw(st.integers(0, 7))
            run[place] = bytes(damaged)
        elif len(run[-1]) == len(run[0]) > 1:
            run[-1] = run[-1][: draw(st.integers(1, len(run[-1]) - 1))]
            break
    return run


class World:
    """A machine that has sent thirty messages, fed with arrivals joined or singly."""

    def __init__(self, joined: bool, deferred: bool, receipts_max: int) -> None:
        options = PydevtsOptions(
            deferred=deferred,
            controller="eager",
            first_id=FIRST_ID,
            window=25,
            open_receipts_max=receipts_max,
            remembered_max=40,
        )
        self.machine = PydevtsMachine(options, Seeded(1))
        self.joined = joined
        self.sent: list[bytes] = []
        self.events: list[object] = []
        self.machine.connect(ADDRESS, 0)
        self.machine.send_many(Peer(ADDRESS), bodies(30), 0)
        self.drain(0, False)

    def arrive(self, run: list[bytes], now_us: int, commit: bool) -> None:
        if self.joined:
            size = len(run[0])
            full = [one for one in run if len(one) == size]
            rest = [one for one in run if len(one) != size]
            self.machine.receive(b"".join(full + rest), ADDRESS, now_us, size)
        else:
            for one in run:
                self.machine.receive(one, ADDRESS, now_us)
        self.drain(now_us, commit)

    def drain(self, now_us: int, commit: bool) -> None:
        for data in self.machine.transmits():
            self.sent += [bytes(one) for one in split(data.data, data.segment_bytes or len(data.data))]
        for event in self.machine.events():
            self.events += flattened(event)
            if commit and isinstance(event, MessageReceived | MessagesReceived):
                self.machine.commit(event.receipt, now_us)
        for data in self.machine.transmits():
            self.sent += [bytes(one) for one in split(data.data, data.segment_bytes or len(data.data))]

    def counts(self) -> dict[str, object]:
        return {name: count for name, count in self.machine.statistics.as_dict().items() if name != "batches"}


def flattened(event: Event) -> list[object]:
    if isinstance(event, MessagesReceived):
        return list(event)
    if isinstance(event, Delivered):
        return [("delivered", token) for token in event.tokens]
    return [event]


@settings(max_examples=300)
@given(
    st.lists(st.tuples(super_buffers(), st.integers(0, 2_000_000), st.booleans()), max_size=8),
    st.booleans(),
    st.sampled_from([8, 1_000]),
)
def test_a_super_buffer_has_the_result_of_its_datagrams(
    steps: list[tuple[list[bytes], int, bool]], deferred: bool, receipts_max: int
) -> None:
    joined, singly = World(True, deferred, receipts_max), World(False, deferred, receipts_max)
    now_us = 0
    for run, pause_us, commit in steps:
        now_us += pause_us
        for world in (joined, singly):
            world.machine.wake(now_us)
            world.arrive(run, now_us, commit)
        assert joined.events == singly.events
        assert joined.sent == singly.sent
        assert joined.counts() == singly.counts()
        assert joined.machine.next_deadline_us() == singly.machine.next_deadline_us()
        assert joined.machine.peers() == singly.machine.peers()
        if joined.machine.peers():
            assert joined.machine.snapshot(Peer(ADDRESS)) == singly.machine.snapshot(Peer(ADDRESS))


def test_a_batch_of_copies_from_half_a_turn_ago_is_recognised() -> None:
    world = World(True, False, 1_000)
    run = packets(0, 5, 1)
    world.arrive(run, 1, True)
    world.arrive(packets(30_000, 1, 1), 2, True)
    world.arrive(packets(60_000, 1, 1), 3, True)
    world.arrive(run, 4, True)
    assert world.machine.statistics.duplicates == 5
    assert world.machine.statistics.messages_received == 7


def test_runs_of_packets_acks_and_closes_are_taken_as_a_whole() -> None:
    world = World(True, False, 1_000)
    world.arrive(packets(7, 9, 1), 1, True)
    world.arrive(controls(wire.ACK, 0, 20, bodies(30), False), 2, True)
    world.arrive([b"\x03" + one[1:8] for one in packets(7, 9, 1)], 3, True)
    assert world.machine.statistics.batches == 3
    assert world.machine.statistics.dropped == {}
    assert world.machine.statistics.messages_delivered == 20
