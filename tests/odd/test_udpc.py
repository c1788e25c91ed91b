"""udpc against servers that acknowledge late, in another order, not everything, or nothing at all."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from .udpc_peers import ASY, REQ, UdpcPeer
from .world import MS, REVERSED, SECOND, TAG_BYTES, Answers, Link, World, at_most, every_seed, not_sent, numbered, tag

LINK = Link(delay_us=20 * MS)
NEAR = Link(delay_us=50)
FAR = Link(delay_us=170 * MS)
BODIES = numbered(5_000)
UNANSWERABLE = 50


def test_acknowledgements_in_reversed_batches_cost_at_most_half_as_much_time_again() -> None:
    def check(seed: int) -> None:
        plain = World(UdpcPeer(), LINK, seed=seed).carry(BODIES, 60 * SECOND)
        odd = World(UdpcPeer(answers=REVERSED), LINK, seed=seed).carry(BODIES, 60 * SECOND)
        at_most(odd.all_delivered().took_us, 1.5 * plain.all_delivered().took_us, "reversed acknowledgements")

    every_seed(2, check)


def test_acknowledgements_in_batches_cost_at_most_half_as_much_time_again() -> None:
    def check(seed: int) -> None:
        plain = World(UdpcPeer(), LINK, seed=seed).carry(BODIES, 60 * SECOND)
        odd = World(UdpcPeer(answers=Answers(batch_us=10 * MS)), LINK, seed=seed).carry(BODIES, 60 * SECOND)
        at_most(odd.all_delivered().took_us, 1.5 * plain.all_delivered().took_us, "acknowledgements in batches")

    every_seed(2, check)


def test_late_acknowledgements_cost_at_most_half_as_much_time_again_as_a_link_that_is_as_slow() -> None:
    def check(seed: int) -> None:
        plain = World(UdpcPeer(), FAR, seed=seed).carry(BODIES, 60 * SECOND)
        late = Answers(late_us=2 * (FAR.delay_us - LINK.delay_us))
        odd = World(UdpcPeer(answers=late), LINK, seed=seed).carry(BODIES, 60 * SECOND)
        at_most(odd.all_delivered().took_us, 1.5 * plain.all_delivered().took_us, "late acknowledgements")

    every_seed(2, check)


@pytest.mark.parametrize(("link", "every_us"), [(NEAR, 7 * MS), (LINK, 0)], ids=["near-steadily", "far-at-once"])
@pytest.mark.parametrize(
    ("ignores", "ignored"),
    [
        pytest.param(lambda body: body.startswith(tag(UNANSWERABLE)), 1, id="one-by-its-number"),
        pytest.param(lambda body: len(body) > 1_000, 1, id="one-by-its-size"),
        pytest.param(lambda body: body[5:8] == b"050", 5, id="every-thousandth"),
    ],
)
def test_important_packets_that_are_never_acknowledged_slow_the_others_by_half_at_most(
    ignores: Callable[[bytes], bool], ignored: int, link: Link, every_us: int
) -> None:
    """A packet is taken for lost until its retransmission is passed too; each further one may cost that again."""
    bodies = [body.ljust(1_100, b"+") if number == UNANSWERABLE else body for number, body in enumerate(BODIES)]

    def check(seed: int) -> None:
        plain = World(UdpcPeer(), link, seed=seed).carry(bodies, 60 * SECOND, every_us=every_us, at_once=50)
        odd = World(UdpcPeer(ignores=ignores), link, seed=seed).carry(
            bodies, 60 * SECOND, every_us=every_us, at_once=50
        )
        delivered = odd.tokens("Delivered")
        assert (len(delivered), len(odd.tokens("DeliveryUnknown"))) == (len(bodies) - ignored, ignored), odd.summary()
        assert odd.closed_us is None, "the session ended with the packet"
        assert odd.began_us is not None
        last_us = max(odd.outcomes[token].at_us for token in delivered) - odd.began_us
        factor = 1.5 + 0.25 * (ignored - 1)
        at_most(last_us, factor * plain.all_delivered().took_us, "the other packets")
        most = max(odd.transmissions().values())
        assert most <= 40, f"a packet without acknowledgement was transmitted {most} times, bound 40"

    every_seed(1, check)


@pytest.mark.parametrize("link", [NEAR, LINK], ids=["near", "far"])
def test_every_fifth_packet_above_the_buffer_of_the_server_slows_the_others_by_half_at_most(link: Link) -> None:
    bodies = [body.ljust(1_100, b"+") if number % 5 == 4 else body for number, body in enumerate(BODIES[:1_000])]

    def check(seed: int) -> None:
        plain = World(UdpcPeer(), link, seed=seed).carry(bodies, 60 * SECOND).all_delivered()
        odd = World(UdpcPeer(ignores=lambda body: len(body) > 1_000), link, seed=seed).carry(
            bodies, 60 * SECOND, per_needed=6
        )
        at_most(last_delivery_us(odd, 800), 1.5 * plain.took_us, "the other packets")

    every_seed(2, check)


def test_every_fifth_packet_that_is_never_acknowledged_does_not_stop_the_others() -> None:
    """Nothing tells them from losses before they are lost twice: the window shrinks as by 20 % loss, but no further."""

    def check(seed: int) -> None:
        lossy = Link(delay_us=LINK.delay_us, loss_per_million=200_000)
        plain = World(UdpcPeer(), lossy, seed=seed).carry(BODIES[:1_000], 300 * SECOND).all_delivered()
        odd = World(UdpcPeer(ignores=lambda body: body[7] % 5 == 4), LINK, seed=seed).carry(
            BODIES[:1_000], 300 * SECOND, per_needed=6
        )
        at_most(last_delivery_us(odd, 800), 1.5 * plain.took_us, "the other packets")

    every_seed(2, check)


ABOVE = {"every-second": lambda number: number % 2 == 1, "first-twenty": lambda number: number < 20}


@pytest.mark.parametrize("controller", ["model", "newreno"])
@pytest.mark.parametrize("by_size", [True, False], ids=["above-the-buffer", "in-silence"])
@pytest.mark.parametrize("above", ABOVE.values(), ids=ABOVE)
def test_however_many_packets_are_never_acknowledged_the_others_are_in_time(
    above: Callable[[int], bool], by_size: bool, controller: str
) -> None:
    """Those at the beginning once filled the window until the end of their life; every second one slowed the rest a
    hundred times. Three seconds are for the time-outs before the first answer."""
    bodies = [
        body.ljust(1_100, b"+") if by_size and above(number) else body for number, body in enumerate(BODIES[:1_000])
    ]
    answered = sum(not above(number) for number in range(1_000))

    def check(seed: int) -> None:
        plain = World(UdpcPeer(), LINK, seed=seed, controller=controller).carry(bodies, 60 * SECOND).all_delivered()
        peer = UdpcPeer(ignores=lambda body: above(int(body[:TAG_BYTES])))
        odd = World(peer, LINK, seed=seed, controller=controller).carry(bodies, 60 * SECOND, per_needed=8)
        held_up_us = 3 * SECOND if above(0) else 0
        at_most(last_delivery_us(odd, answered), 3 * plain.took_us + held_up_us, "the other packets")

    every_seed(4, check)


def last_delivery_us(world: World, expected: int) -> int:
    """Return how long the answered packets took, so many as are expected."""
    delivered = world.tokens("Delivered")
    assert (len(delivered), world.closed_us) == (expected, None), world.summary()
    assert world.began_us is not None
    return max(world.outcomes[token].at_us for token in delivered) - world.began_us


def test_requests_that_take_two_seconds_do_not_slow_the_important_packets() -> None:
    """The time that an application thinks about a request is not a round trip."""
    lossy = Link(delay_us=20 * MS, loss_per_million=10_000)

    def check(seed: int) -> None:
        plain = World(UdpcPeer(), lossy, seed=seed).carry(BODIES, 300 * SECOND)
        odd = World(UdpcPeer(response_takes_us=2 * SECOND), lossy, seed=seed)
        peer = odd.connect()
        for _ in range(20):
            odd.machine.send(peer, b"request", odd.now_us, flags=REQ | ASY)
        odd.run(lambda: False, 3 * SECOND)
        for _ in range(20):
            odd.machine.send(peer, b"request", odd.now_us, flags=REQ | ASY)
        odd.send(peer, BODIES)
        odd.run(odd.ended, 300 * SECOND)
        at_most(odd.all_delivered().took_us, 1.5 * plain.all_delivered().took_us, "beside open requests")

    every_seed(2, check)


def test_a_server_that_goes_mute_ends_every_message_once_its_silence_is_judged() -> None:
    def check(seed: int) -> None:
        world = World(UdpcPeer(mute_us=80 * MS), LINK, seed=seed).carry(BODIES, 60 * SECOND)
        assert world.tokens("Delivered"), world.summary()
        assert world.tokens("DeliveryUnknown"), world.summary()
        assert len(not_sent(world)) == len(world.tokens("Refused")) > 0, world.summary()
        at_most(world.took_us, 12 * SECOND, "a mute server")

    every_seed(4, check)


def test_a_new_session_carries_on_after_a_restart_of_the_server() -> None:
    def check(seed: int) -> None:
        world = World(UdpcPeer(forgets_us=80 * MS), LINK, seed=seed)
        world.carry(BODIES, 60 * SECOND)
        assert len(not_sent(world)) == len(world.tokens("Refused")) > 0, world.summary()
        delivered = len(world.tokens("Delivered"))
        world.send(world.connect(), numbered(1_000, first=len(BODIES)))
        world.run(world.ended, 60 * SECOND)
        world.finish(2)
        assert len(world.tokens("Delivered")) == delivered + 1_000, world.summary()

    every_seed(3, check)
