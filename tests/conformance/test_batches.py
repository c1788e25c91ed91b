"""A super-buffer has the same result as its datagrams one by one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fairway.core.events import Delivered, DeliveryUnknown, Event, MessagesReceived, Refused
from fairway.core.machine import Machine

from .pair import Datagram, Node, Pump, cut, super_buffers
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

    def __init__(self, machine: Machine, *, joined: bool) -> None:
        self.machine = machine
        self.joined = joined
        self.events: list[object] = []
        self.sent: list[tuple[int, object, bytes]] = []

    def arrive(self, datagrams: list[Datagram], now_us: int) -> None:
        """Takes what arrives at one instant."""
        if self.joined:
            for data, segment_bytes, source, _ in super_buffers(datagrams):
                self.machine.receive(data, source, now_us, segment_bytes)
        else:
            for datagram in datagrams:
                self.machine.receive(datagram.data, datagram.source, now_us)
        self.drain(now_us)

    def drain(self, now_us: int) -> None:
        """Takes everything out, committing messages as they come."""
        while True:
            for transmit in self.machine.transmits():
                self.sent += [(now_us, transmit.address, data) for data in cut(transmit.data, transmit.segment_bytes)]
            events = self.machine.events()
            if not events:
                return
            for event in events:
                self.events += flattened(event)
                receipt = getattr(event, "receipt", None)
                if receipt is not None:
                    self.machine.commit(receipt, now_us)

    def wake_until(self, now_us: int) -> None:
        """Wakes the machine at each of its deadlines up to a time."""
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
    """Groups what was sent to a node by the time of its arrival."""
    by_time: dict[int, list[Datagram]] = {}
    for datagram in pump.log:
        if datagram.target == target:
            by_time.setdefault(datagram.sent_us + delay_us, []).append(datagram)
    return by_time


def nothing(by_time: dict[int, list[Datagram]]) -> None:
    return


def holes(by_time: dict[int, list[Datagram]]) -> None:
    """Takes every seventh datagram away."""
    for datagrams in by_time.values():
        datagrams[:] = [datagram for datagram in datagrams if datagram.number % 7 != 3]


def copies(by_time: dict[int, list[Datagram]]) -> None:
    """Lets every fifth datagram come twice in a row, and the first of each instant once more at its end."""
    for datagrams in by_time.values():
        doubled = [copy for datagram in datagrams for copy in [datagram] * (2 if datagram.number % 5 == 0 else 1)]
        datagrams[:] = doubled + datagrams[:1]


def backwards(by_time: dict[int, list[Datagram]]) -> None:
    """Turns the order within each instant around."""
    for datagrams in by_time.values():
        datagrams.reverse()


def damage(by_time: dict[int, list[Datagram]]) -> None:
    """Damages one byte of every sixth datagram, in its header or its body."""
    for datagrams in by_time.values():
        for place, datagram in enumerate(datagrams):
            if datagram.number % 6 == 1:
                damaged = bytearray(datagram.data)
                damaged[datagram.number % len(damaged)] ^= 0x41
                datagrams[place] = datagram._replace(data=bytes(damaged))


def strangers(by_time: dict[int, list[Datagram]]) -> None:
    """Lets every fourth datagram seem to come from elsewhere."""
    for datagrams in by_time.values():
        datagrams[:] = [d._replace(source=("elsewhere", 1)) if d.number % 4 == 2 else d for d in datagrams]


CHANGES = [nothing, holes, copies, backwards, damage, strangers]


def talk(case: Case, sent: Callable[[Pair], None]) -> Pair:
    """Records a conversation with messages in both directions."""
    pair = case.pair()
    sent(pair)
    pair.pump.run(8 * SECOND)
    return pair


def much(pair: Pair) -> None:
    """Sends a run of equal messages, some of other sizes, and answers in the other direction."""
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
    """Sends one message of many parts, and small ones beside it."""
    pair.pump.send(pair.client, pair.peer, numbered(1, 400_000)[0])
    for body in numbered(5, 50):
        pair.pump.send(pair.client, pair.peer, body)


def replayed(case: Case, pair: Pair, change: Callable[[dict[int, list[Datagram]]], None]) -> list[Replay]:
    """Replays to two fresh servers what arrived at the recorded one, joined to one and singly to the other."""
    by_time = arrivals(pair.pump, SERVER, pair.pump.delay_us)
    change(by_time)
    both = [Replay(case.machine(2), joined=joined) for joined in BOTH]
    for replay in both:
        for now_us, datagrams in by_time.items():
            replay.wake_until(now_us - 1)
            replay.arrive(datagrams, now_us)
        replay.wake_until(max(by_time) + 5 * SECOND)
    return both


@over(deferred=BOTH, controllers=("eager",))
@pytest.mark.parametrize("change", CHANGES)
def test_a_receiver_gives_the_same_for_a_batch_as_for_its_datagrams_one_by_one(
    case: Case, change: Callable[[dict[int, list[Datagram]]], None]
) -> None:
    pair = talk(case, large if case.variant is RUP else much)
    singly, joined = replayed(case, pair, change)
    assert joined.events == singly.events
    assert joined.sent == singly.sent
    assert joined.counts() == singly.counts()
    if change is nothing:
        assert len(singly.events) > len(numbered(5))
        bodies = [event for event in singly.events if hasattr(event, "body")]
        assert len(bodies) == len(pair.server.received)


def sending(case: Case, joined: bool, change: Callable[[dict[int, list[Datagram]]], None]) -> Replay:
    """Sends a run of messages from a fresh client and feeds it the acknowledgements of a recorded conversation."""
    pair = case.pair()
    start_us = pair.pump.now_us
    recorded = pair.pump.sent
    send(case, pair.client, pair.peer, start_us)
    pair.pump.settle(pair.client)
    pair.pump.run(8 * SECOND)
    by_time = arrivals(pair.pump, CLIENT, pair.pump.delay_us)
    late = {now_us: [d for d in found if d.number >= recorded] for now_us, found in by_time.items()}
    late = {now_us: found for now_us, found in late.items() if found}
    change(late)
    again = case.pair()
    replay = Replay(again.client.machine, joined=joined)
    send(case, again.client, again.peer, start_us)
    replay.drain(start_us)
    for now_us, datagrams in late.items():
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
@pytest.mark.parametrize("change", CHANGES)
def test_a_sender_takes_a_batch_of_acknowledgements_like_single_ones(
    case: Case, change: Callable[[dict[int, list[Datagram]]], None]
) -> None:
    singly, joined = (sending(case, joined, change) for joined in BOTH)
    assert joined.events == singly.events
    assert joined.sent == singly.sent
    assert joined.counts() == singly.counts()


@over(controllers=("eager",), where=lambda variant: variant.windowed)
def test_a_clean_run_of_datagrams_is_handled_as_a_whole(case: Case) -> None:
    pair = talk(case, large if case.variant is RUP else much)
    _, joined = replayed(case, pair, nothing)
    assert joined.machine.statistics.batches > 0


@over(controllers=("eager",), where=lambda variant: variant.windowed)
def test_equal_messages_sent_at_once_leave_as_one_transmit_with_a_segment_size(case: Case) -> None:
    pair = case.pair()
    send(case, pair.client, pair.peer, pair.pump.now_us)
    transmits = pair.client.machine.transmits()
    assert len(transmits) < 10
    first = transmits[0]
    assert first.segment_bytes is not None
    assert len(first.data) >= 50 * first.segment_bytes
