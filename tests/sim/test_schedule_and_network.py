"""The clock moves only with the queue, and links do to datagrams what they are told to do."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest

from fairway.core.errors import BadOption
from fairway.core.events import Address
from fairway.core.machine import Transmit
from fairway.core.random_source import Seeded
from fairway.sim.digest import Digest
from fairway.sim.network import AmplificationLedger, Network
from fairway.sim.pipe import Faults, Pipe, per_million
from fairway.sim.schedule import Schedule

HERE: Address = ("10.0.0.1", 1)
THERE: Address = ("10.0.0.2", 2)


def pipe(covered_from: int | None = None, seed: int = 1, **faults: int) -> Pipe:
    return Pipe(Faults(**faults), Seeded(seed), Counter(), covered_from)


def carried(link: Pipe, count: int, data: bytes = bytes(100)) -> list[int]:
    """Send a datagram every millisecond and return the times of all arrivals, in order of sending."""
    return [time_us for number in range(count) for time_us, _ in link.carry(data, number * 1_000)]


def test_entries_of_one_instant_come_up_in_the_order_of_queueing() -> None:
    schedule, seen = Schedule(), list[str]()
    for time_us, name in ((5, "c"), (3, "a"), (5, "d"), (3, "b")):
        schedule.at(time_us, seen.append, name)
    assert schedule.run(10, 100)
    assert seen == ["a", "b", "c", "d"]
    assert schedule.now_us == 10


def test_a_deadline_far_away_costs_one_step() -> None:
    schedule, seen = Schedule(), list[int]()
    schedule.at(10**15, seen.append, 1)
    assert schedule.run(10**16, 100)
    assert (seen, schedule.taken) == ([1], 1)


def test_a_queue_that_never_ends_is_noticed() -> None:
    schedule = Schedule()

    def again(_: None) -> None:
        schedule.at(schedule.now_us, again)

    again(None)
    assert not schedule.run(10, 1_000)


def test_loss_is_independent_and_as_frequent_as_asked() -> None:
    link = pipe(loss=300_000)
    arrived = len(carried(link, 20_000))
    assert abs(arrived - 14_000) < 4 * (20_000 * 0.3 * 0.7) ** 0.5
    assert link.happened["loss"] == 20_000 - arrived


def test_bursts_lose_neighbours_together() -> None:
    link = pipe(burst_enter=10_000, burst_leave=100_000, burst_loss=1_000_000)
    lost = [not link.carry(b"x", number) for number in range(50_000)]
    share = sum(lost) / len(lost)
    after_a_loss = sum(two for one, two in pairwise(lost) if one) / sum(lost)
    assert 0.07 < share < 0.11, "the bad state holds 1 of 11 datagrams"
    assert 0.87 < after_a_loss < 0.93, "and lasts for 10 of them"


def test_jitter_keeps_the_order_and_reordering_breaks_it() -> None:
    calm = carried(pipe(jitter_us=50_000), 500)
    assert calm == sorted(calm)
    mixed = carried(pipe(reorder=200_000, reorder_us=50_000), 500)
    assert mixed != sorted(mixed)


def test_a_duplicate_arrives_twice() -> None:
    link = pipe(duplicate=1_000_000)
    assert len(carried(link, 10)) == 20


def test_a_limited_link_spaces_datagrams_and_drops_what_its_queue_cannot_hold() -> None:
    link = pipe(bandwidth_bytes_per_s=100_000, queue_bytes=1_000, delay_us=0)
    times = [time_us for _ in range(50) for time_us, _ in link.carry(bytes(100), 0)]
    assert times == [1_000 * (number + 1) for number in range(len(times))]
    assert len(times) == 11, "ten wait, one is under way"
    assert link.happened["queue"] == 39


def test_damage_is_a_loss_where_only_the_udp_checksum_sees_it() -> None:
    link = pipe(corrupt=1_000_000)
    assert link.carry(b"datagram", 0) == ()
    assert link.happened["checksum"] == 1


def test_damage_arrives_where_the_protocol_has_a_checksum_but_not_in_front_of_it() -> None:
    link = pipe(corrupt=1_000_000, covered_from=4)
    data = bytes(range(40))
    shapes = [arriving for _ in range(300) for _, arriving in link.carry(data, 0)]
    assert all(shape != data and shape[:4] == data[: min(4, len(shape))] for shape in shapes)
    assert any(len(shape) < len(data) for shape in shapes)
    assert any(len(shape) == len(data) for shape in shapes)


def test_a_healed_link_has_only_its_delay() -> None:
    faults = Faults(loss=1, duplicate=2, reorder=3, corrupt=4, jitter_us=5, bandwidth_bytes_per_s=6, delay_us=7)
    assert faults.healed() == Faults(delay_us=7)


@pytest.mark.parametrize("share", [-0.1, 1.01, float("nan")])
def test_a_share_outside_0_to_1_is_refused(share: float) -> None:
    with pytest.raises(BadOption, match=r"loss is .*; it must be from 0 to 1"):
        per_million("loss", share)


def test_a_negative_duration_is_refused() -> None:
    with pytest.raises(BadOption, match="delay_us is -1; it must not be negative"):
        Faults(delay_us=-1)


class Listener:
    """A station that writes down what reaches it."""

    def __init__(self, index: int, address: Address) -> None:
        self.index = index
        self.address = address
        self.up = True
        self.ledger = AmplificationLedger(provable=False)
        self.got: list[tuple[bytes, Address, int | None]] = []

    def arrive(self, data: bytes, source: Address, segment_bytes: int | None) -> None:
        self.got.append((data, source, segment_bytes))


def world(coalesce_us: int = 0, **faults: int) -> tuple[Schedule, Network, Listener, Listener, list[str]]:
    accused: list[str] = []
    schedule = Schedule()
    network = Network(
        schedule,
        Digest(),
        Faults(**faults),
        Seeded(1),
        coalesce_us=coalesce_us,
        accuse=lambda rule, _: accused.append(rule),
    )
    here, there = Listener(0, HERE), Listener(1, THERE)
    for station in (here, there):
        network.join(station, station.address)
    here.ledger.named(THERE)
    return schedule, network, here, there, accused


def test_a_batch_is_cut_into_its_datagrams() -> None:
    schedule, network, here, there, _ = world()
    network.transmit(here, Transmit(THERE, b"aaabbbc", 3))
    schedule.run(10**6, 100)
    assert there.got == [(b"aaa", HERE, None), (b"bbb", HERE, None), (b"c", HERE, None)]
    assert network.datagrams == 3


def test_arrivals_of_one_instant_are_joined_and_only_the_last_may_be_shorter() -> None:
    schedule, network, here, there, _ = world(coalesce_us=1_000)
    for data in (b"aaa", b"bbb", b"c", b"ddd", b"eeee"):
        network.carry(here, HERE, THERE, data)
    schedule.run(10**6, 100)
    assert there.got == [(b"aaabbbc", HERE, 3), (b"ddd", HERE, None), (b"eeee", HERE, None)]


@pytest.mark.parametrize("loss", [0, 300_000])
def test_a_batch_carried_together_loses_what_it_would_lose_one_by_one(loss: int) -> None:
    datagrams = [bytes([number]) * 8 for number in range(40)] + [b"end"]
    survivors = []
    for coalesce_us in (0, 1_000):
        schedule, network, here, there, _ = world(coalesce_us, loss=loss)
        network.transmit(here, Transmit(THERE, b"".join(datagrams), 8))
        schedule.run(10**6, 1_000)
        survivors.append(b"".join(data for data, _, _ in there.got))
        assert network.datagrams == 41
        assert (len(there.got) == 1) is bool(coalesce_us)
    assert survivors[0] == survivors[1]
    assert (len(survivors[0]) < 8 * 40) is bool(loss)


def test_a_batch_on_a_link_that_does_more_than_lose_is_cut_up() -> None:
    schedule, network, here, there, _ = world(1_000, duplicate=1_000_000, reorder_us=0)
    network.transmit(here, Transmit(THERE, b"aaabbb", 3))
    schedule.run(10**6, 100)
    assert b"".join(data for data, _, _ in there.got) == b"aaaaaabbbbbb"


def test_a_super_buffer_holds_at_most_what_a_socket_gives() -> None:
    schedule, network, here, there, _ = world(1_000)
    network.transmit(here, Transmit(THERE, bytes(100 * 1_000), 1_000))
    schedule.run(10**6, 100)
    assert [(len(data), segment_bytes) for data, _, segment_bytes in there.got] == [(64_000, 1_000), (36_000, 1_000)]


def test_arrivals_from_two_sources_are_not_joined() -> None:
    schedule, network, here, there, _ = world(coalesce_us=1_000)
    for source in (HERE, ("10.9.9.9", 9), HERE):
        network.carry(here, source, THERE, b"abc")
    schedule.run(10**6, 100)
    assert [segment_bytes for _, _, segment_bytes in there.got] == [None, None, None]


def test_what_is_under_way_to_an_old_address_is_lost() -> None:
    schedule, network, here, there, _ = world()
    network.carry(here, HERE, THERE, b"early")
    network.rebind(there, ("10.0.0.3", 3))
    network.carry(here, HERE, ("10.0.0.3", 3), b"late")
    schedule.run(10**6, 100)
    assert [data for data, _, _ in there.got] == [b"late"]
    assert network.happened["nobody"] == 1


def test_a_partition_stops_both_directions_until_it_heals() -> None:
    schedule, network, here, there, _ = world()
    there.ledger.named(HERE)
    network.block((0, 1), True)
    network.carry(here, HERE, THERE, b"x")
    network.carry(there, THERE, HERE, b"y")
    network.heal()
    network.carry(here, HERE, THERE, b"z")
    schedule.run(10**6, 100)
    assert ([data for data, _, _ in there.got], here.got) == ([b"z"], [])
    assert network.happened["partition"] == 2


def test_more_than_three_times_the_bytes_to_an_address_that_nobody_named_is_an_accusation() -> None:
    schedule, network, here, there, accused = world()
    network.carry(here, HERE, THERE, bytes(10))
    schedule.run(10**6, 100)
    network.carry(there, THERE, HERE, bytes(30))
    assert accused == []
    network.carry(there, THERE, HERE, bytes(1))
    assert accused == ["amplification"]


def test_a_round_trip_proves_an_address_only_where_the_protocol_has_a_proof() -> None:
    for provable in (True, False):
        ledger = AmplificationLedger(provable)
        ledger.received(HERE, 10)
        ledger.reached(HERE)
        assert not ledger.account(HERE).sent(31)
        ledger.received(HERE, 1)
        assert ledger.account(HERE).sent(1_000) is provable
