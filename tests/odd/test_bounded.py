"""Senders to receivers of our own that are at their bounds, few receipts and late commits, and through short queues."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fairway.core.random_source import Seeded

from .own_peers import OwnPeer
from .rup_peers import RupPeer
from .test_all import PEERS
from .world import MS, SECOND, Link, World, at_most, numbered, over_seeds, tag


@pytest.mark.parametrize("receipts", [64, 8, 1])
@pytest.mark.parametrize(("commit_us", "at_ticks"), [(10 * MS, True), (100 * MS, False)], ids=["at-ticks", "each"])
@pytest.mark.parametrize("delay_us", [500, 20 * MS], ids=["near", "far"])
@over_seeds(1)
@pytest.mark.parametrize(("protocol", "size"), [("udpc", 100), ("rup", 100), ("rup", 3_000), ("rup", 20_000)])
def test_a_receiver_with_few_receipts_gets_all_in_twice_the_time_that_its_application_takes(
    protocol: str, size: int, delay_us: int, commit_us: int, at_ticks: bool, receipts: int, seed: int
) -> None:
    """What it has no receipt for it drops in silence. No sender can do better than a round trip and a commit for as
    many messages as there are receipts; what was dropped once waited for its timer while the receiver had room, three
    times as long as that."""
    bodies, link = numbered(200, size), Link(delay_us=delay_us, bytes_per_second=125_000_000)

    def carry(most: int) -> World:
        peer = OwnPeer(protocol, commit_us=commit_us, at_ticks=at_ticks, open_receipts_max=most)
        return World(peer, link, seed=seed).carry(bodies, 120 * SECOND, per_needed=10).all_delivered()

    least_us = -(-len(bodies) // receipts) * (commit_us + 2 * delay_us)
    bound_us = 2 * max(carry(len(bodies)).took_us, least_us)
    at_most(carry(receipts).took_us, bound_us, f"{receipts} receipts")


@pytest.mark.parametrize(("receipts", "commit_us"), [(1, 2 * MS), (2, 5 * MS), (8, 10 * MS), (64, 10 * MS)])
@over_seeds(1)
def test_thousands_of_messages_to_a_receiver_with_few_receipts_cost_at_most_twice_the_datagrams(
    receipts: int, commit_us: int, seed: int
) -> None:
    """Five packets lost again in a row were once taken for a peer that ignores packets, and all that was lost for
    delivered: the rate grew, a third of the messages ended as unknown, and seventeen times the datagrams left."""
    peer = OwnPeer("udpc", commit_us=commit_us, open_receipts_max=receipts)
    World(peer, Link(delay_us=20 * MS), seed=seed).carry(numbered(3_000), 60 * SECOND, per_needed=2).all_delivered()


@pytest.mark.parametrize(("name", "per_needed"), [("udpc", 2), ("mrp-stamped", 2), ("mrp-piggyback", 11), ("rup", 2)])
@pytest.mark.parametrize("delay_us", [20 * MS, 100 * MS], ids=["near", "far"])
@over_seeds(2)
def test_a_short_queue_in_front_of_a_bottleneck_causes_no_storm(
    name: str, per_needed: int, delay_us: int, seed: int
) -> None:
    """The same happened to udpc where nothing but the queue was odd: sixteen times the datagrams."""
    link = Link(delay_us=delay_us, bytes_per_second=2_000_000, queue_us=2 * MS)
    bodies = numbered(4_000, 3_000 if name == "rup" else 1_000)
    World(PEERS[name](), link, seed=seed).carry(bodies, 120 * SECOND, per_needed=per_needed).all_delivered()


@pytest.mark.parametrize("delay_us", [500, 20 * MS], ids=["near", "far"])
@over_seeds(2)
def test_an_application_that_takes_long_for_each_message_costs_the_default_at_most_three_times_what_it_costs_newreno(
    delay_us: int, seed: int
) -> None:
    """The end of a message waits for its commit, what is before it does not. The window was once that of a round trip
    without a commit, and each end was taken for lost: 28 s instead of half a second."""

    def took_us(controller: str) -> int:
        world = World(OwnPeer("rup", commit_us=100 * MS), Link(delay_us=delay_us), seed=seed, controller=controller)
        return world.carry(numbered(1_000, 3_000), 60 * SECOND, per_needed=2).all_delivered().took_us

    at_most(took_us("model"), 3 * took_us("newreno"), "late commits")


@over_seeds(3)
def test_large_messages_far_away_are_all_taken_by_a_receiver_that_takes_one_at_a_time(seed: int) -> None:
    """Newer ones, which had left less often, once took the slot before an older one until that was given up."""
    link = Link(delay_us=350 * MS, bytes_per_second=125_000_000)
    peer = RupPeer(unfinished_max=1)
    World(peer, link, seed=seed + 2).carry(numbered(60, 200_000), 300 * SECOND, per_needed=6).all_delivered()


def mixed(count: int, most: int, seed: int) -> list[bytes]:
    """Return different bodies from 20 bytes on, evenly spread over the sizes up to `most`, in any order."""
    random = Seeded(seed)
    return [tag(number).ljust(20 + random.below(most - 19), b".") for number in range(count)]


LOADS = {
    "mixed": lambda seed: mixed(120, 100_000, seed),
    "small-and-large": lambda _: [body.ljust((100_000, 20)[n % 2], b".") for n, body in enumerate(numbered(80, 8))],
    "200-kB": lambda _: numbered(40, 200_000),
}


@pytest.mark.parametrize("load", LOADS.values(), ids=LOADS)
@pytest.mark.parametrize("delay_us", [500, 2_500, 20 * MS])
@pytest.mark.parametrize("unfinished_max", [8, 1])
@over_seeds(2)
def test_messages_of_any_size_to_a_receiver_that_takes_few_at_a_time_take_at_most_twice_as_long(
    unfinished_max: int, delay_us: int, load: Callable[[int], list[bytes]], seed: int
) -> None:
    """A path keeps the order, so messages that leave one after the other, each whole, are all taken. They once left in
    turns of a few parts, which is four to thirty times slower."""
    bodies, link = load(seed), Link(delay_us=delay_us, bytes_per_second=125_000_000)
    plain = World(RupPeer(), link, seed=seed).carry(bodies, 60 * SECOND).all_delivered()
    odd = World(RupPeer(unfinished_max=unfinished_max), link, seed=seed).carry(bodies, 60 * SECOND).all_delivered()
    at_most(odd.took_us, 2 * plain.took_us, f"{unfinished_max} at a time")
