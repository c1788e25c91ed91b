"""A super-buffer has the same result as its datagrams one by one, and leaves in few pieces."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairway.core.events import Connected, Delivered, Event, MessageReceived, MessagesReceived, Peer
from fairway.core.machine import Transmit
from fairway.core.random_source import Seeded
from fairway.protocols.mrp import wire
from fairway.protocols.mrp.machine import MrpMachine
from fairway.protocols.mrp.options import MrpOptions
from tests.protocols.test_mrp_world import cut, flattened

THEIRS = 0x1234


class Half:
    """One machine with one connection to a peer that is played by the test."""

    def __init__(self, layout: str, *, server: bool, **options: Any) -> None:
        self.machine = MrpMachine(MrpOptions(layout=layout, **options), Seeded(3))
        self.layout = layout
        self.transmits: list[Transmit] = []
        self.sent: list[bytes] = []
        self.events: list[Event] = []
        if server:
            self._be_called()
        else:
            self._call()
        self.peer: Peer = next(event.peer for event in self.events if isinstance(event, Connected))
        self.local = self.peer.local

    def _be_called(self) -> None:
        ver = 0 if self.layout == "stamped" else 1
        self.machine.receive(wire.encode(wire.Connect(ver=ver, cl_conid=THEIRS)), "peer", 0)
        self.drain()
        local = int.from_bytes(self.sent[-1][9:12], "big")
        stamped, bare = wire.ack_bytes(local, THEIRS, 0, 0), wire.piggyback_header(THEIRS, local & 0xFFFF, 0, 0)
        self.machine.receive(stamped if self.layout == "stamped" else bare, "peer", 0)
        self.drain()

    def _call(self) -> None:
        self.machine.connect("peer", 0)
        self.drain()
        local = int.from_bytes(self.sent[-1][5:8], "big")
        self.machine.receive(wire.encode(wire.ConReply(stat=1, cl_conid=local, sv_conid=THEIRS)), "peer", 0)
        self.drain()

    def drain(self) -> None:
        while True:
            transmits = self.machine.transmits()
            self.transmits += transmits
            self.sent += [data for transmit in transmits for data in cut(transmit)]
            events = self.machine.events()
            self.events += flattened(events)
            if not events:
                return

    def feed(self, datagrams: list[bytes], now_us: int, *, joined: bool) -> None:
        """Lets datagrams of one size arrive at once."""
        if joined and datagrams:
            self.machine.receive(b"".join(datagrams), "peer", now_us, len(datagrams[0]))
        else:
            for data in datagrams:
                self.machine.receive(data, "peer", now_us)
        self.drain()

    def commit(self, share: int, now_us: int) -> None:
        """Commits those received messages whose number the share divides."""
        for event in self.events:
            if isinstance(event, MessageReceived) and int(event.id) % share == 0:
                self.machine.commit(event.receipt, now_us)
        self.drain()

    def data(self, sequence: int, second: int, body: bytes) -> bytes:
        if self.layout == "stamped":
            return wire.stamped_header(self.local, THEIRS, sequence & 0xFFFF, second) + body
        return wire.piggyback_header(THEIRS, self.local, sequence & 0xFFFF, 0) + body

    def counts(self) -> dict[str, object]:
        return {name: value for name, value in self.machine.statistics.as_dict().items() if name != "batches"}


def assert_same(singly: Half, joined: Half) -> None:
    assert joined.events == singly.events
    assert joined.sent == singly.sent
    assert joined.counts() == singly.counts()


runs = st.lists(
    st.tuples(
        st.integers(-3, 3),  # where the run starts, relative to what follows the last one
        st.integers(1, 24),  # how many datagrams
        st.lists(st.tuples(st.integers(0, 23), st.integers(-4, 12)), max_size=2),  # numbers that are out of line
        st.sampled_from([1, 2, 3, 100]),  # which messages are committed after it
    ),
    min_size=1,
    max_size=6,
)


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(["stamped", "piggyback"]),
    st.booleans(),
    st.sampled_from([16, 200]),
    st.sampled_from([20, 1_000]),
    st.sampled_from([1, 65_520]),
    runs,
)
def test_a_receiver_takes_a_batch_like_single_datagrams(
    layout: str,
    deferred: bool,
    window: int,
    places: int,
    first: int,
    script: list[tuple[int, int, list[tuple[int, int]], int]],
) -> None:
    options: dict[str, Any] = {"deferred": deferred, "window": window, "open_receipts_max": places}
    halves = [Half(layout, server=True, first_sequence=first, **options) for _ in range(2)]
    following, now_us = first, 0
    for shift, count, odd, share in script:
        now_us += 5_000
        numbers = [max(1, following + shift + place) for place in range(count)]
        for place, moved in odd:
            if place < count:
                numbers[place] = max(1, numbers[place] + moved)
        for half, joined in zip(halves, (False, True), strict=True):
            arriving = [half.data(number, number % 7, b"%08d" % number) for number in numbers]
            half.feed(arriving, now_us, joined=joined)
            half.commit(share, now_us)
        following += shift + count
    assert_same(*halves)


@pytest.mark.parametrize("layout", ["stamped", "piggyback"])
@pytest.mark.parametrize("deferred", [False, True])
@pytest.mark.parametrize(
    "arrivals",
    [
        pytest.param([[3], list(range(1, 9))], id="a run over one that is ahead"),
        pytest.param([list(range(1, 25))], id="a run past the window"),
        pytest.param([[1, 2, 3, 4], [3, 4, 5, 6, 7]], id="a run that begins with copies"),
        pytest.param([[1, 2, 4, 5, 6], [3, 7, 8, 9]], id="a run with a hole"),
        pytest.param([list(range(2, 14)), list(range(1, 14))], id="everything ahead, then everything"),
    ],
)
def test_an_unusual_batch_is_taken_like_single_datagrams(
    layout: str, deferred: bool, arrivals: list[list[int]]
) -> None:
    halves = [Half(layout, server=True, deferred=deferred, window=16) for _ in range(2)]
    for now_us, numbers in enumerate(arrivals):
        for half, joined in zip(halves, (False, True), strict=True):
            half.feed([half.data(number, 5, b"%08d" % number) for number in numbers], now_us, joined=joined)
    for half in halves:
        half.commit(1, 100)
    assert_same(*halves)
    assert halves[0].machine.statistics.messages_received >= 7


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(["stamped", "piggyback"]),
    st.sampled_from(["newreno", "eager"]),
    st.sampled_from([1, 65_500]),
    st.lists(st.tuples(st.integers(0, 70), st.integers(1, 40), st.sampled_from([0, 0, 0, 1])), max_size=6),
)
def test_a_sender_takes_a_batch_of_acknowledgements_like_single_ones(
    layout: str, controller: str, first: int, script: list[tuple[int, int, int]]
) -> None:
    halves = [Half(layout, server=False, controller=controller, window=200, first_sequence=first) for _ in range(2)]
    for half, joined in zip(halves, (False, True), strict=True):
        half.machine.send_many(half.peer, [b"%08d" % number for number in range(90)], 1_000)
        half.drain()
        for place, (start, count, wrong) in enumerate(script):
            now_us = 20_000 + 3_000 * place
            numbers = range(first + start, first + start + count)
            half.feed([answer(half, number & 0xFFFF, 1 + wrong) for number in numbers], now_us, joined=joined)
        half.machine.wake(200_000)
        half.drain()
    assert_same(*halves)


def answer(half: Half, sequence: int, stamp: int) -> bytes:
    """Return what the peer answers to one packet."""
    if half.layout == "stamped":
        return wire.ack_bytes(half.local, THEIRS, sequence, stamp)
    return wire.piggyback_header(THEIRS, half.local, 0, sequence)


@pytest.mark.parametrize("layout", ["stamped", "piggyback"])
@pytest.mark.parametrize("deferred", [False, True])
def test_a_run_of_data_is_one_event_and_one_transmit_of_answers(layout: str, deferred: bool) -> None:
    half = Half(layout, server=True, deferred=deferred)
    arriving = [half.data(number, 9, b"%08d" % number) for number in range(1, 65)]
    half.transmits.clear()
    half.machine.receive(b"".join(arriving), "peer", 10, len(arriving[0]))
    assert half.machine.statistics.batches == 1
    transmits = half.machine.transmits()
    [event] = half.machine.events()
    assert isinstance(event, MessagesReceived)
    assert list(event.bodies) == [b"%08d" % number for number in range(1, 65)]
    if deferred:
        assert transmits == []
        half.machine.commit(event.receipt, 20)
        transmits = half.machine.transmits()
    [transmit] = transmits
    assert transmit.segment_bytes == (14 if layout == "stamped" else 12)
    assert len(cut(transmit)) == 64


@pytest.mark.parametrize("layout", ["stamped", "piggyback"])
def test_a_shorter_last_datagram_of_a_batch_is_taken_too(layout: str) -> None:
    half = Half(layout, server=True)
    arriving = [half.data(number, 9, b"%08d" % number) for number in range(1, 9)] + [half.data(9, 9, b"short")]
    half.machine.receive(b"".join(arriving), "peer", 10, len(arriving[0]))
    half.drain()
    assert [event.body for event in half.events if isinstance(event, MessageReceived)][-2:] == [b"00000008", b"short"]
    assert half.machine.statistics.batches == 1
    assert half.machine.statistics.datagrams_received == 11


@pytest.mark.parametrize("layout", ["stamped", "piggyback"])
def test_equal_messages_leave_as_one_transmit_and_their_answers_are_taken_as_a_whole(layout: str) -> None:
    half = Half(layout, server=False, controller="eager")
    tokens = half.machine.send_many(half.peer, [b"12345678"] * 100, 1_000)
    [transmit] = half.machine.transmits()
    header = 14 if layout == "stamped" else 12
    assert transmit.segment_bytes == header + 8
    assert [int.from_bytes(data[header - 4 : header - 2], "big") for data in cut(transmit)] == list(range(1, 101))
    half.feed([answer(half, sequence, 1) for sequence in range(1, 101)], 30_000, joined=True)
    assert half.machine.statistics.batches == 1
    assert half.machine.statistics.messages_delivered == len(tokens)
    assert half.machine.unfinished() == 0


@pytest.mark.parametrize("now_us", [0, 65_536_000], ids=["first-turn", "second-turn"])
@pytest.mark.parametrize("count", [1, 3, 20], ids=["alone", "a-few", "a-batch"])
def test_a_client_that_says_it_is_there_acknowledges_nothing(count: int, now_us: int) -> None:
    """It does so by an ack of sequence 0 with stamp 0: no packet may have both."""
    half = Half("stamped", server=True, first_sequence=65_536)
    bodies = [b"%02d" % number for number in range(count)]
    if count == 1:
        half.machine.send(half.peer, bodies[0], now_us)
    else:
        half.machine.send_many(half.peer, bodies, now_us)
    half.drain()
    half.feed([wire.ack_bytes(half.local, THEIRS, 0, 0)], now_us + 1_000, joined=False)
    assert not [event for event in half.events if isinstance(event, Delivered)]
    data = [datagram for datagram in half.sent if datagram[3] == wire.TYPE_DATA]
    fields = [wire.stamped_fields(datagram) for datagram in data]
    acks = [wire.ack_bytes(half.local, THEIRS, sequence, stamp) for _, _, sequence, stamp in fields]
    half.feed(acks, now_us + 2_000, joined=True)
    assert sum(isinstance(event, Delivered) for event in half.events) == len(data) > 0
