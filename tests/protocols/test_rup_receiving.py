"""The receiving half of rup: how it asks again, what it remembers, and that its bounds hold without stopping anyone."""

from __future__ import annotations

import pytest

from benchmarks.footprint import footprint
from fairway.core.events import MessageReceived, Peer
from fairway.core.machine import split
from fairway.core.random_source import Seeded
from fairway.core.recovery.asking import Pace
from fairway.protocols.rup import wire
from fairway.protocols.rup.feedback import Requests
from fairway.protocols.rup.machine import RupMachine
from fairway.protocols.rup.options import RupOptions

ID = b"0123456789abcdef0123456789abcdef"
SECOND = 1_000_000
PART_BYTES = 100
OPTIONS = RupOptions()


class Asking:
    """A machine that gets parts of one large message, and what it asks for."""

    def __init__(self, options: RupOptions = OPTIONS, parts: int = 4_000) -> None:
        self.machine = RupMachine(options, Seeded(1))
        # A destination of ours may be asked for more than three times what came from it.
        self.machine.connect("a", 0)
        self.total = parts * PART_BYTES
        self.now_us = 0
        self.asked: list[tuple[int, int]] = []

    def arrives(self, *indices: int) -> None:
        for index in indices:
            self.machine.receive(wire.part(ID, index * PART_BYTES, self.total, bytes(PART_BYTES)), "a", self.now_us)
        self._drain()

    def run(self, until_us: int) -> None:
        while (due_us := self.machine.next_deadline_us()) is not None and due_us <= until_us:
            self.now_us = due_us
            self.machine.wake(due_us)
            self._drain()
        self.now_us = until_us

    def _drain(self) -> None:
        for transmit in self.machine.transmits():
            for datagram in split(transmit.data, transmit.segment_bytes or len(transmit.data)):
                header = wire.header(datagram)
                if header.kind == wire.REQUEST:
                    self.asked.append((self.now_us, header.position // PART_BYTES))

    def times(self, index: int) -> list[int]:
        return [at_us for at_us, asked in self.asked if asked == index]

    def measure(self, round_trip_us: int) -> None:
        """Have part 1 asked for and answered, in the time given."""
        self.arrives(0, 2, 3, 4)
        self.run(self.now_us + round_trip_us)
        self.arrives(1)


# Requests.


def test_a_measured_round_trip_also_repeats_what_was_asked_for_before_it() -> None:
    asking = Asking()
    asking.arrives(0, 3, 4, 5)
    asking.run(20_000)
    asking.arrives(1)
    asking.run(100_000)
    assert asking.times(2)[:2] == [0, 30_000]


def test_a_round_trip_is_not_measured_on_a_request_that_was_repeated() -> None:
    asking = Asking()
    asking.arrives(0, 2, 3, 4)
    asking.run(201_000)
    asking.arrives(1, 6, 7, 8)
    asking.run(402_000)
    assert asking.times(5) == [201_000, 401_000]


def test_a_round_trip_measured_far_too_short_does_not_have_every_request_repeated_for_ever() -> None:
    """Parts that are overtaken come right after their request and look like its answer."""
    asking = Asking()
    asking.measure(100)
    for part in range(5, 4 * 400, 4):
        asking.arrives(part + 1, part + 2, part + 3)
        asking.run(asking.now_us + 100_000)
        asking.arrives(part)
    assert len(asking.times(5)) > 5
    assert len(asking.times(4 * 399 + 1)) <= 3


def test_a_thousand_requests_are_open_and_the_lowest_go_first() -> None:
    asking = Asking()
    asking.arrives(0, 2_000, 2_001, 2_002)
    assert [index for _, index in asking.asked] == list(range(1, 1_025))
    asking.arrives(7, 9)
    assert [index for _, index in asking.asked[1_024:]] == [1_025, 1_026]
    asking.run(5_000)
    repeated = [index for _, index in asking.asked[1_026:]]
    assert repeated == [index for index in range(1, 1_027) if index not in {7, 9}]


def test_many_open_requests_cost_an_arrival_no_more_than_few() -> None:
    class Counting(Pace):
        """Counts how often a waiting time is asked for: once for each request that is checked."""

        __slots__ = ("looked",)
        looked: int

        def wait_us(self, back_off: int) -> int:
            self.looked += 1
            return super().wait_us(back_off)

    pace = Counting(initial_us=200_000, min_us=5_000, max_us=3_000_000)
    asking = Asking()
    asking.arrives(0)
    message = asking.machine._conversations["a"].incoming[ID]
    message.requests = Requests(OPTIONS, pace)
    pace.looked = 0
    asking.arrives(2_000, 2_001, 2_002)
    asking.arrives(*range(1, 1_001))
    assert len(message.requests) > 900
    assert pace.looked < 3 * 1_003


# Remembered messages.


def test_duplicates_of_remembered_messages_take_no_memory_of_their_own() -> None:
    machine = RupMachine(OPTIONS, Seeded(1))
    sizes = set()
    for number in range(1_500):
        machine.receive(wire.part(b"%032x" % (number % 10), 0, 2, b"hi"), "a", number * 10_000)
        machine.transmits()
        if number >= 20:
            sizes.add(footprint(machine._receiver.remembered).entries)
    assert len(sizes) == 1


# Bounds of memory.


def test_a_message_above_the_maximum_leaves_nothing_behind() -> None:
    machine = RupMachine(RupOptions(message_bytes_max=1_000), Seeded(1))
    before = footprint(machine).entries
    for number in range(1_000):
        machine.receive(wire.part(b"%032x" % number, 0, 1_001, bytes(PART_BYTES)), "a", 0)
    assert machine.statistics.dropped == {"too_large": 1_000}
    # The sender's address, for the three-times limit, and the reason.
    assert footprint(machine).entries == before + 2
    assert (machine.transmits(), machine.events()) == ([], [])


# Floods.


@pytest.mark.parametrize("total", [10, 50_000_000, 1_000_000_000, 0])
@pytest.mark.parametrize("addresses", [1, 1_000_000])
def test_a_flood_of_made_up_messages_is_held_by_named_bounds(total: int, addresses: int) -> None:
    bounds = {
        "unproved_max": 50,
        "peers_max": 200,
        "incoming_messages_max": 100,
        "incoming_messages_per_peer_max": 40,
        "remembered_max": 500,
    }
    machine = RupMachine(RupOptions(**bounds), Seeded(1))  # type: ignore[arg-type]
    sizes = []
    for number in range(20_000):
        body = bytes(min(10, total))
        machine.receive(wire.part(b"%032x" % number, 0, total, body), number % addresses, 10 * number)
        machine.receive(body, number % addresses, 10 * number)
        machine.transmits()
        for event in machine.events():
            if isinstance(event, MessageReceived):
                machine.commit(event.receipt, 10 * number)
        if number % 2_000 == 1_999:
            sizes.append(footprint(machine).entries)
    assert sizes[-1] <= sizes[0] + 50
    assert len(machine._context.outbox.ledger) <= bounds["unproved_max"]
    assert len(machine._conversations) <= bounds["peers_max"]
    assert machine._receiver.incoming_count <= bounds["incoming_messages_max"]
    assert len(machine._receiver.remembered) <= bounds["remembered_max"]


def test_a_caller_that_is_never_sent_anything_has_no_sending_half() -> None:
    machine = RupMachine(OPTIONS, Seeded(1))
    machine.receive(wire.part(ID, 0, 2, b"hi"), "a", 0)
    machine.receive(wire.control(wire.CONFIRM, ID, 0), "a", 0)
    assert not machine._conversations["a"].has_sent
    assert machine.statistics.dropped == {"unknown_id": 1}
    machine.send(Peer("a"), b"ho", 0)
    assert machine._conversations["a"].has_sent
