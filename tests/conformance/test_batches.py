"""A super-buffer has the same result as its datagrams one by one."""

from __future__ import annotations

from functools import cache

from hypothesis import given, settings
from hypothesis import strategies as st

from fairway.core.events import Delivered, DeliveryUnknown, Event, MessageReceived, MessagesReceived, Refused
from fairway.core.machine import Machine

from .pair import Datagram, Node, Pump, batches, cut
from .variants import BOTH, CLIENT, RUP, SECOND, SERVER, Case, Pair, numbered, over


def flattened(event: Event) -> list[object]:
    """Return the events as if everything had come one by one."""
    if isinstance(event, MessagesReceived):
        return list(event)
    if isinstance(event, Delivered):
        return [(Delivered, event.peer, token) for token in event.tokens]
    if isinstance(event, DeliveryUnknown | Refused):
        return [(type(event), event.peer, token, event.reason) for token in event.tokens]
    return [event]


class Replay:
    """Feeds recorded arrivals, as single datagrams or joined, and keeps everything that comes out."""

    def __init__(self, machine: Machine, *, joined: bool, share: int = 1) -> None:
        self.machine = machine
        self.joined = joined
        self.share = share
        """Commit each so-many-th message."""
        self.received = 0
        self.events: list[object] = []
        self.sent: list[tuple[int, object, bytes]] = []

    def arrive(self, datagrams: list[Datagram], now_us: int) -> None:
        """Take what arrives at one instant."""
        if self.joined:
            for data, segment_bytes, source, _ in batches(datagrams):
                self.machine.receive(data, source, now_us, segment_bytes)
        else:
            for datagram in datagrams:
                self.machine.receive(datagram.data, datagram.source, now_us)
        self.drain(now_us)

    def drain(self, now_us: int) -> None:
        """Take everything out, committing messages as they come."""
        while True:
            for transmit in self.machine.transmits():
                self.sent += [(now_us, transmit.address, data) for data in cut(transmit.data, transmit.segment_bytes)]
            events = self.machine.events()
            if not events:
                return
            for event in events:
                self.events += flattened(event)
                for message in flattened(event):
                    if isinstance(message, MessageReceived):
                        self.received += 1
                        if self.received % self.share == 0:
                            self.machine.commit(message.receipt, now_us)

    def wake_until(self, now_us: int) -> None:
        """Wake the machine at each of its deadlines up to a time."""
        for _ in range(10_000):
            deadline_us = self.machine.next_deadline_us()
            if deadline_us is None or deadline_us > now_us:
                return
            self.machine.wake(deadline_us)
            self.drain(deadline_us)
        raise AssertionError("the machine keeps itself busy")

    def counts(self) -> dict[str, object]:
        """Return the statistics without the one count that may differ."""
        return {name: value for name, value in self.machine.statistics.as_dict().items() if name != "batches"}


def arrivals(pump: Pump, target: object, delay_us: int) -> dict[int, list[Datagram]]:
    """Group what was sent to a node by the time of its arrival."""
    by_time: dict[int, list[Datagram]] = {}
    for datagram in pump.log:
        if datagram.target == target:
            by_time.setdefault(datagram.sent_us + delay_us, []).append(datagram)
    return by_time


Changes = list[tuple[str, int, int]]
"""What happens to the datagrams on their way: the kind, the first index, and how many."""

CHANGES = st.lists(
    st.tuples(
        st.sampled_from(["lost", "copied", "reversed", "late", "damaged", "foreign", "short"]),
        st.integers(0, 400),
        st.integers(1, 30),
    ),
    max_size=6,
)
BOUNDS: list[dict[str, object]] = [{}, {}, {"open_receipts_max": 20}, {"open_receipt_bytes_max": 2_000}, {"window": 16}]
RUP_BOUNDS: list[dict[str, object]] = [{"gaps_max": 2}, {"requests_open_max": 3}, {"incoming_bytes_max": 100_000}]


def change(by_time: dict[int, list[Datagram]], changes: Changes) -> dict[int, list[Datagram]]:
    """Return arrivals as the changes leave them; what is late comes at the end of its instant, and twice."""
    found = {}
    for now_us, arrived in by_time.items():
        datagrams = list(arrived)
        for kind, index, count in changes:
            chosen = slice(index % (len(datagrams) + 1), index % (len(datagrams) + 1) + count)
            run = datagrams[chosen]
            match kind:
                case "lost":
                    run = run[1:]
                case "copied":
                    run = run + run
                case "reversed":
                    run.reverse()
                case "late":
                    datagrams += run
                case "foreign":
                    run = [datagram._replace(source=("elsewhere", 1)) for datagram in run]
                case _:
                    run = [_damaged(datagram, kind, index) for datagram in run]
            datagrams[chosen] = run
        found[now_us] = datagrams
    return found


def _damaged(datagram: Datagram, kind: str, index: int) -> Datagram:
    data = bytearray(datagram.data)
    if kind == "short":
        del data[1 + index % len(data) :]
    else:
        data[(index + datagram.number) % len(data)] ^= 0x41
    return datagram._replace(data=bytes(data))


@cache
def talk(case: Case) -> Pair:
    """Record a conversation with messages in both directions."""
    pair = case.pair()
    (large if case.variant is RUP else much)(pair)
    pair.pump.run(8 * SECOND)
    return pair


def much(pair: Pair) -> None:
    """Send a run of equal messages, some of other sizes, and answer in the other direction."""
    many = pair.client.machine.send_many(pair.peer, numbered(150, 32), pair.pump.now_us)
    pair.pump.settle(pair.client)
    pair.pump.finished(pair.client, list(many))
    for size in (10, 32, 32, 32, 9, 700, 700, 3_000):
        pair.pump.send(pair.client, pair.peer, bytes([size & 0xFF]) * size)
    pair.pump.run(SECOND)
    back = pair.server.machine.send_many(pair.caller(), numbered(60, 32, tag="b"), pair.pump.now_us)
    pair.pump.settle(pair.server)
    pair.pump.finished(pair.server, list(back))


def large(pair: Pair) -> None:
    """Send one message of many parts, and small ones beside it."""
    pair.pump.send(pair.client, pair.peer, numbered(1, 400_000)[0])
    for body in numbered(5, 50):
        pair.pump.send(pair.client, pair.peer, body)


def replayed(case: Case, changes: Changes, bounds: dict[str, object], share: int = 1) -> list[Replay]:
    """Replay to two fresh servers what arrived at the recorded one, joined to one and singly to the other."""
    pump = talk(case).pump
    by_time = change(arrivals(pump, SERVER, pump.delay_us), changes)
    both = [Replay(case.machine(2, **bounds), joined=joined, share=share) for joined in BOTH]
    for replay in both:
        for now_us, datagrams in by_time.items():
            replay.wake_until(now_us - 1)
            replay.arrive(datagrams, now_us)
        replay.wake_until(max(by_time) + 5 * SECOND)
    return both


def assert_same(case: Case, changes: Changes, bounds: dict[str, object], share: int = 1) -> Replay:
    """Compare what comes of arrivals that are joined and of single ones; return the latter."""
    singly, joined = replayed(case, changes, bounds, share)
    assert joined.events == singly.events
    assert joined.sent == singly.sent
    assert joined.counts() == singly.counts()
    return singly


@over(deferred=BOTH, controllers=("eager",), where=lambda variant: variant is RUP)
def test_seed_61_requests_use_up_what_an_unproved_address_may_get(case: Case) -> None:
    """Its first parts have a hole of 282 below them."""
    assert_same(case, [("foreign", 282, 5)], {})


@over(deferred=BOTH, controllers=("eager",))
@settings(max_examples=60)
@given(changes=CHANGES, share=st.integers(1, 3), data=st.data())
def test_a_receiver_has_the_same_result_for_a_batch_as_for_its_datagrams_one_by_one(
    case: Case, changes: Changes, share: int, data: st.DataObject
) -> None:
    bounds = data.draw(st.sampled_from(BOUNDS + (RUP_BOUNDS if case.variant is RUP else [])))
    singly = assert_same(case, changes, bounds, share)
    if not changes and not bounds and share == 1:
        bodies = [event for event in singly.events if hasattr(event, "body")]
        assert len(bodies) == len(talk(case).server.received) > 5


@cache
def acknowledgements(case: Case) -> tuple[int, dict[int, list[Datagram]]]:
    """Return when a client sent a run of messages, and what came back."""
    pair = case.pair()
    start_us, recorded = pair.pump.now_us, pair.pump.sent
    send(case, pair.client, pair.peer, start_us)
    pair.pump.settle(pair.client)
    pair.pump.run(8 * SECOND)
    by_time = arrivals(pair.pump, CLIENT, pair.pump.delay_us)
    late = {now_us: [d for d in found if d.number >= recorded] for now_us, found in by_time.items()}
    return start_us, {now_us: found for now_us, found in late.items() if found}


def sending(case: Case, joined: bool, changes: Changes) -> Replay:
    """Send a run of messages from a fresh client and feed it the acknowledgements of a recorded conversation."""
    start_us, late = acknowledgements(case)
    again = case.pair()
    replay = Replay(again.client.machine, joined=joined)
    send(case, again.client, again.peer, start_us)
    replay.drain(start_us)
    for now_us, datagrams in change(late, changes).items():
        replay.wake_until(now_us - 1)
        replay.arrive(datagrams, now_us)
    replay.wake_until(max(late) + 5 * SECOND)
    return replay


def send(case: Case, client: Node, peer: object, now_us: int) -> None:
    if case.variant is RUP:
        client.machine.send(peer, bytes(200_000), now_us)  # type: ignore[arg-type]
    else:
        client.machine.send_many(peer, numbered(150, 32), now_us)  # type: ignore[arg-type]


@over(controllers=("eager",))
@settings(max_examples=60)
@given(changes=CHANGES)
def test_a_sender_takes_a_batch_of_acknowledgements_like_single_ones(case: Case, changes: Changes) -> None:
    singly, joined = (sending(case, joined, changes) for joined in BOTH)
    assert joined.events == singly.events
    assert joined.sent == singly.sent
    assert joined.counts() == singly.counts()


@over(controllers=("eager",))
def test_a_clean_run_of_datagrams_is_handled_as_a_whole_and_its_acknowledgements_too(case: Case) -> None:
    assert replayed(case, [], {})[1].machine.statistics.batches > 0
    assert sending(case, True, []).machine.statistics.batches > 0


@over(controllers=("eager",), where=lambda variant: variant.windowed)
def test_equal_messages_sent_at_once_leave_as_one_transmit_with_a_segment_size(case: Case) -> None:
    pair = case.pair()
    send(case, pair.client, pair.peer, pair.pump.now_us)
    transmits = pair.client.machine.transmits()
    assert len(transmits) < 10
    first = transmits[0]
    assert first.segment_bytes is not None
    assert len(first.data) >= 50 * first.segment_bytes
