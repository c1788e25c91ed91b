"""pydevts against receivers that acknowledge late, in another order, or nothing at all."""

from __future__ import annotations

from .pydevts_peers import PydevtsPeer
from .world import MS, REVERSED, SECOND, Answers, Link, World, at_most, every_seed, not_sent, numbered

LINK = Link(delay_us=20 * MS)


def test_acknowledgements_after_the_timer_cost_at_most_half_as_much_time_again_as_those_just_before_it() -> None:
    """With acknowledgements after 2.5 s no timer of 3 s runs out, and the run takes so many round trips as the window
    needs to grow. After 3.5 s each packet is transmitted twice; the round trips are 1.4 times as long, and no more of
    them are needed, because nothing is lost and the peer acknowledges both transmissions."""
    bodies = numbered(500)

    def check(seed: int) -> None:
        in_time = World(PydevtsPeer(answers=Answers(late_us=2_500 * MS)), LINK, seed=seed).carry(bodies, 600 * SECOND)
        late = World(PydevtsPeer(answers=Answers(late_us=3_500 * MS)), LINK, seed=seed)
        late.carry(bodies, 600 * SECOND, per_needed=3)
        bound_us = 1.5 * in_time.all_delivered().took_us * 3_500 / 2_500
        at_most(late.all_delivered().took_us, bound_us, "acknowledgements after 3.5 s")

    every_seed(6, check)


def test_a_mute_peer_ends_every_message_within_forty_seconds() -> None:
    def check(seed: int) -> None:
        world = World(PydevtsPeer(mute_us=0), LINK, seed=seed).carry(numbered(1_000), 1_000 * SECOND)
        unknown, refused = world.tokens("DeliveryUnknown"), not_sent(world)
        assert (len(unknown) + len(refused), bool(unknown), bool(refused)) == (1_000, True, True), world.summary()
        at_most(world.took_us, 40 * SECOND, "a mute peer")

    every_seed(100, check)


def test_a_peer_that_goes_mute_ends_what_was_transmitted_as_unknown_after_eleven_transmissions() -> None:
    """A peer that has answered is not given up as a whole: each packet lives its 33 s."""

    def check(seed: int) -> None:
        world = World(PydevtsPeer(mute_us=80 * MS), LINK, seed=seed).carry(numbered(50), 100 * SECOND, per_needed=12)
        assert world.tokens("Delivered"), world.summary()
        assert len(world.tokens("Delivered") + world.tokens("DeliveryUnknown")) == 50, world.summary()
        assert max(world.transmissions().values()) == 11
        at_most(world.took_us, 40 * SECOND, "a peer that went mute")

    every_seed(6, check)


def test_acknowledgements_in_reversed_batches_cost_at_most_half_as_much_time_again() -> None:
    bodies = numbered(5_000)

    def check(seed: int) -> None:
        plain = World(PydevtsPeer(), LINK, seed=seed).carry(bodies, 120 * SECOND)
        odd = World(PydevtsPeer(answers=REVERSED), LINK, seed=seed).carry(bodies, 120 * SECOND)
        at_most(odd.all_delivered().took_us, 1.5 * plain.all_delivered().took_us, "reversed acknowledgements")

    every_seed(2, check)


def test_a_restart_of_the_peer_loses_nothing() -> None:
    bodies = numbered(2_000)

    def check(seed: int) -> None:
        link = Link(delay_us=20 * MS, loss_per_million=20_000)
        World(PydevtsPeer(forgets_us=200 * MS), link, seed=seed).carry(bodies, 300 * SECOND).all_delivered()

    every_seed(2, check)


def test_acknowledgements_after_up_to_six_seconds_cost_at_most_half_as_much_again_as_if_all_took_six() -> None:
    def check(seed: int) -> None:
        link, bodies = Link(delay_us=500), numbered(500)
        plain = World(PydevtsPeer(answers=Answers(late_us=6 * SECOND)), link, seed=seed)
        plain.carry(bodies, 600 * SECOND, per_needed=4).all_delivered()
        odd = World(PydevtsPeer(answers=Answers(spread_us=6 * SECOND)), link, seed=seed)
        odd.carry(bodies, 600 * SECOND, per_needed=4).all_delivered()
        at_most(odd.took_us, 1.5 * plain.took_us, "acknowledgements after 0 to 6 s")

    every_seed(2, check)
