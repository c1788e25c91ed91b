"""udpc against servers that acknowledge late, in another order, not everything, or nothing at all."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from .udpc_peers import ASY, REQ, UdpcPeer
from .world import MS, SECOND, TAG_BYTES, Answers, Link, World, at_most, numbered, over_seeds, tag

LINK = Link(delay_us=20 * MS)
NEAR = Link(delay_us=50)
FAR = Link(delay_us=170 * MS)
BODIES = numbered(5_000)
UNANSWERABLE = 50


@over_seeds(2)
def test_late_acknowledgements_cost_at_most_half_as_much_time_again_as_a_link_that_is_as_slow(seed: int) -> None:
    plain = World(UdpcPeer(), FAR, seed=seed).carry(BODIES, 60 * SECOND)
    late = Answers(late_us=2 * (FAR.delay_us - LINK.delay_us))
    odd = World(UdpcPeer(answers=late), LINK, seed=seed).carry(BODIES, 60 * SECOND)
    at_most(odd.all_delivered().took_us, 1.5 * plain.all_delivered().took_us, "late acknowledgements")


@pytest.mark.parametrize(("link", "every_us"), [(NEAR, 7 * MS), (LINK, 0)], ids=["near-steadily", "far-at-once"])
@pytest.mark.parametrize(
    ("ignores", "ignored"),
    [
        pytest.param(lambda body: body.startswith(tag(UNANSWERABLE)), 1, id="one-by-its-number"),
        pytest.param(lambda body: len(body) > 1_000, 1, id="one-by-its-size"),
        pytest.param(lambda body: body[5:8] == b"050", 5, id="every-thousandth"),
    ],
)
@over_seeds(1)
def test_important_packets_that_are_never_acknowledged_slow_the_others_by_half_at_most(
    ignores: Callable[[bytes], bool], ignored: int, link: Link, every_us: int, seed: int
) -> None:
    """A packet is taken for lost until its retransmission is passed too; each further one may cost that again."""
    bodies = [body.ljust(1_100, b"+") if number == UNANSWERABLE else body for number, body in enumerate(BODIES)]
    plain = World(UdpcPeer(), link, seed=seed).carry(bodies, 60 * SECOND, every_us=every_us, at_once=50)
    odd = World(UdpcPeer(ignores=ignores), link, seed=seed).carry(bodies, 60 * SECOND, every_us=every_us, at_once=50)
    assert len(odd.tokens("DeliveryUnknown")) == ignored, odd.summary()
    factor = 1.5 + 0.25 * (ignored - 1)
    last_us = odd.last_delivery_us(len(bodies) - ignored)
    at_most(last_us, factor * plain.all_delivered().took_us, "the other packets")
    most = max(odd.transmissions().values())
    assert most <= 40, f"a packet without acknowledgement was transmitted {most} times, bound 40"


@over_seeds(2)
def test_every_fifth_packet_that_is_never_acknowledged_does_not_stop_the_others(seed: int) -> None:
    """Nothing tells them from losses before they are lost twice: the window shrinks as by 20 % loss, but no further."""
    lossy = Link(delay_us=LINK.delay_us, loss_per_million=200_000)
    plain = World(UdpcPeer(), lossy, seed=seed).carry(BODIES[:1_000], 300 * SECOND).all_delivered()
    odd = World(UdpcPeer(ignores=lambda body: body[7] % 5 == 4), LINK, seed=seed).carry(
        BODIES[:1_000], 300 * SECOND, per_needed=6
    )
    at_most(odd.last_delivery_us(800), 1.5 * plain.took_us, "the other packets")


FIFTH, SECOND_ONE, FIRST = (lambda n: n % 5 == 4), (lambda n: n % 2 == 1), (lambda n: n < 20)


@pytest.mark.parametrize("controller", ["model", "newreno"])
@pytest.mark.parametrize(
    ("above", "by_size", "factor"),
    [
        pytest.param(FIFTH, True, 1.5, id="every-fifth-above-the-buffer"),
        pytest.param(SECOND_ONE, True, 3, id="every-second-above-the-buffer"),
        pytest.param(SECOND_ONE, False, 3, id="every-second-in-silence"),
        pytest.param(FIRST, True, 3, id="first-twenty-above-the-buffer"),
        pytest.param(FIRST, False, 3, id="first-twenty-in-silence"),
    ],
)
@over_seeds(4)
def test_however_many_packets_are_never_acknowledged_the_others_are_in_time(
    above: Callable[[int], bool], by_size: bool, factor: float, controller: str, seed: int
) -> None:
    """Those at the beginning once filled the window until the end of their life; every second one slowed the rest a
    hundred times. Three seconds are for the time-outs before the first answer."""
    bodies = [
        body.ljust(1_100, b"+") if by_size and above(number) else body for number, body in enumerate(BODIES[:1_000])
    ]
    answered = sum(not above(number) for number in range(1_000))
    plain = World(UdpcPeer(), LINK, seed=seed, controller=controller).carry(bodies, 60 * SECOND).all_delivered()
    peer = UdpcPeer(ignores=lambda body: above(int(body[:TAG_BYTES])))
    odd = World(peer, LINK, seed=seed, controller=controller).carry(bodies, 60 * SECOND, per_needed=8)
    held_up_us = 3 * SECOND if above(0) else 0
    at_most(odd.last_delivery_us(answered), factor * plain.took_us + held_up_us, "the other packets")


@over_seeds(2)
def test_requests_that_take_two_seconds_do_not_slow_the_important_packets(seed: int) -> None:
    """The time that an application thinks about a request is not a round trip."""
    lossy = Link(delay_us=20 * MS, loss_per_million=10_000)
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
