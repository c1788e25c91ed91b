"""Senders to receivers of our own that are at their bounds: few receipts and late commits."""

from __future__ import annotations

import pytest

from .own_peers import OwnPeer
from .world import MS, SECOND, Link, World, every_seed, numbered


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
