"""Senders to receivers of our own that are at their bounds: few receipts and late commits."""

from __future__ import annotations

import pytest

from .own_peers import OwnPeer
from .world import MS, SECOND, Link, World, at_most, numbered, over_seeds


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
