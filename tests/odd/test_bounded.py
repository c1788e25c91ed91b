"""Senders to receivers of our own that are at their bounds: few receipts and late commits."""

from __future__ import annotations

import pytest

from .own_peers import OwnPeer
from .world import MS, SECOND, Link, World, at_most, every_seed, numbered


@pytest.mark.parametrize("receipts", [64, 8, 1])
@pytest.mark.parametrize(("commit_us", "at_ticks"), [(10 * MS, True), (100 * MS, False)], ids=["at-ticks", "each"])
@pytest.mark.parametrize("delay_us", [500, 20 * MS], ids=["near", "far"])
@pytest.mark.parametrize(("protocol", "size"), [("udpc", 100), ("rup", 100), ("rup", 3_000), ("rup", 20_000)])
def test_a_receiver_with_few_receipts_gets_all_in_twice_the_time_that_its_application_takes(
    protocol: str, size: int, delay_us: int, commit_us: int, at_ticks: bool, receipts: int
) -> None:
    """What it has no receipt for it drops in silence. No sender can do better than a round trip and a commit for as
    many messages as there are receipts; what was dropped once waited for its timer while the receiver had room, three
    times as long as that."""
    bodies, link = numbered(200, size), Link(delay_us=delay_us, bytes_per_second=125_000_000)

    def check(seed: int) -> None:
        def carry(most: int) -> World:
            peer = OwnPeer(protocol, commit_us=commit_us, at_ticks=at_ticks, open_receipts_max=most)
            return World(peer, link, seed=seed).carry(bodies, 120 * SECOND, per_needed=10).all_delivered()

        least_us = -(-len(bodies) // receipts) * (commit_us + 2 * delay_us)
        bound_us = 2 * max(carry(len(bodies)).took_us, least_us)
        at_most(carry(receipts).took_us, bound_us, f"{receipts} receipts")

    every_seed(1, check)


@pytest.mark.parametrize("at_ticks", [False, True], ids=["each", "at-ticks"])
@pytest.mark.parametrize("commit_us", [200 * MS, 2 * SECOND])
def test_pydevts_delivers_everything_to_a_receiver_with_a_queue_of_64(commit_us: int, at_ticks: bool) -> None:
    def check(seed: int) -> None:
        peer = OwnPeer("pydevts", commit_us=commit_us, at_ticks=at_ticks, open_receipts_max=64)
        World(peer, Link(delay_us=20 * MS), seed=seed).carry(
            numbered(1_500), 300 * SECOND, per_needed=3
        ).all_delivered()

    every_seed(1, check)


@pytest.mark.parametrize("commit_us", [3 * SECOND, 4 * SECOND])
def test_pydevts_leaves_few_messages_unknown_to_a_receiver_whose_queue_of_64_is_emptied_only_at_every_timer(
    commit_us: int,
) -> None:
    """Each message has eleven transmissions, three seconds apart, and each must find room in the queue: the standard
    lets the sender choose neither. But it need not begin new ones meanwhile: once one in ten ended as unknown."""

    def check(seed: int) -> None:
        peer = OwnPeer("pydevts", commit_us=commit_us, at_ticks=True, open_receipts_max=64)
        world = World(peer, Link(delay_us=20 * MS), seed=seed).carry(numbered(1_500), 300 * SECOND, per_needed=4)
        assert len(world.tokens("DeliveryUnknown")) <= 1_500 // 40, world.summary()
        assert not world.tokens("Refused"), world.summary()

    every_seed(1, check)
