"""pydevts against receivers that acknowledge late, in another order, or nothing at all."""

from __future__ import annotations

import pytest

from .pydevts_peers import PydevtsPeer
from .world import MS, SECOND, Answers, Link, World, at_most, numbered, over_seeds

LINK = Link(delay_us=20 * MS)


@over_seeds(6)
def test_acknowledgements_after_the_timer_cost_at_most_half_as_much_time_again_as_those_just_before_it(
    seed: int,
) -> None:
    """With acknowledgements after 2.5 s no timer of 3 s runs out, and the run takes so many round trips as the window
    needs to grow. After 3.5 s each packet is transmitted twice; the round trips are 1.4 times as long, and no more of
    them are needed, because nothing is lost and the peer acknowledges both transmissions."""
    bodies = numbered(500)
    in_time = World(PydevtsPeer(answers=Answers(late_us=2_500 * MS)), LINK, seed=seed).carry(bodies, 600 * SECOND)
    late = World(PydevtsPeer(answers=Answers(late_us=3_500 * MS)), LINK, seed=seed)
    late.carry(bodies, 600 * SECOND, per_needed=3)
    bound_us = 1.5 * in_time.all_delivered().took_us * 3_500 / 2_500
    at_most(late.all_delivered().took_us, bound_us, "acknowledgements after 3.5 s")


@over_seeds(6)
def test_a_peer_that_goes_mute_ends_what_was_transmitted_as_unknown_after_eleven_transmissions(seed: int) -> None:
    """A peer that has answered is not given up as a whole: each packet lives its 33 s."""
    world = World(PydevtsPeer(mute_us=80 * MS), LINK, seed=seed).carry(numbered(50), 100 * SECOND, per_needed=12)
    assert world.tokens("Delivered"), world.summary()
    assert len(world.tokens("Delivered") + world.tokens("DeliveryUnknown")) == 50, world.summary()
    assert max(world.transmissions().values()) == 11
    at_most(world.took_us, 40 * SECOND, "a peer that went mute")


@over_seeds(2)
def test_acknowledgements_after_up_to_six_seconds_cost_at_most_half_as_much_again_as_if_all_took_six(seed: int) -> None:
    link, bodies = Link(delay_us=500), numbered(500)
    plain = World(PydevtsPeer(answers=Answers(late_us=6 * SECOND)), link, seed=seed)
    plain.carry(bodies, 600 * SECOND, per_needed=4).all_delivered()
    odd = World(PydevtsPeer(answers=Answers(spread_us=6 * SECOND)), link, seed=seed)
    odd.carry(bodies, 600 * SECOND, per_needed=4).all_delivered()
    at_most(odd.took_us, 1.5 * plain.took_us, "acknowledgements after 0 to 6 s")


@pytest.mark.parametrize("at_ticks", [False, True], ids=["each", "at-ticks"])
@pytest.mark.parametrize("commit_us", [200 * MS, 2 * SECOND])
@over_seeds(1)
def test_everything_is_delivered_to_a_receiver_with_a_queue_of_64(commit_us: int, at_ticks: bool, seed: int) -> None:
    peer = PydevtsPeer(commit_us=commit_us, at_ticks=at_ticks, queue_max=64)
    World(peer, LINK, seed=seed).carry(numbered(1_500), 300 * SECOND, per_needed=3).all_delivered()


@pytest.mark.parametrize("commit_us", [3 * SECOND, 4 * SECOND])
@over_seeds(1)
def test_few_messages_end_as_unknown_at_a_receiver_whose_queue_of_64_is_emptied_only_at_every_timer(
    commit_us: int, seed: int
) -> None:
    """Each message has eleven transmissions, three seconds apart, and each must find room in the queue: the standard
    lets the sender choose neither. But it need not begin new ones meanwhile: once one in ten ended as unknown."""
    peer = PydevtsPeer(commit_us=commit_us, at_ticks=True, queue_max=64)
    world = World(peer, LINK, seed=seed).carry(numbered(1_500), 300 * SECOND, per_needed=4)
    assert len(world.tokens("DeliveryUnknown")) <= 1_500 // 40, world.summary()
    assert not world.tokens("Refused"), world.summary()
