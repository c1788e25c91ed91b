"""rup against receivers that take few messages, ignore some, poll, confirm differently, or go away for a while."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any

import pytest

from fairway.core.events import Connected, Delivered
from fairway.core.random_source import Seeded
from fairway.core.recovery.timing import RoundTrip
from fairway.protocols import make_machine, make_options
from tests.conformance.pair import Pump, cut

from .rup_peers import PART_BYTES, RupPeer, is_last_part, number, uint
from .world import MS, SECOND, THERE, Answers, Link, World, at_most, numbered, over_seeds, seeds

GIGABIT = 125_000_000
NEAR = Link(delay_us=50, bytes_per_second=GIGABIT)
FAR = Link(delay_us=20 * MS, bytes_per_second=GIGABIT)
LINKS = {"near": NEAR, "far": FAR}
TEN_MEGABYTES = numbered(10, 1_000_000)
MEGABYTE = TEN_MEGABYTES[:1]
MANY = numbered(2_000, 20_000)
SOME = numbered(300, 20_000)
POLLING: dict[str, Any] = {"polls_us": 4 * MS, "requests": False}
"""As the original implementation does."""

over_links = pytest.mark.parametrize("link", LINKS.values(), ids=LINKS)


@lru_cache
def unbounded_us(link: Link, seed: int) -> int:
    """Return how long the many messages take to a receiver without bounds."""
    return World(RupPeer(), link, seed=seed).carry(MANY, 60 * SECOND).all_delivered().took_us


@over_links
@pytest.mark.parametrize("unfinished_max", [64, 8, 1])
@over_seeds(1)
def test_a_receiver_that_takes_few_messages_at_a_time_gets_all_in_twice_the_time_of_an_unbounded_one(
    link: Link, unfinished_max: int, seed: int
) -> None:
    odd = World(RupPeer(unfinished_max=unfinished_max), link, seed=seed).carry(MANY, 60 * SECOND, per_needed=3)
    at_most(odd.all_delivered().took_us, 2 * unbounded_us(link, seed), f"{unfinished_max} at a time")


@over_links
@pytest.mark.parametrize("loss_per_cent", [1, 5])
@pytest.mark.parametrize("unfinished_max", [8, 1])
@over_seeds(2)
def test_a_receiver_that_takes_few_messages_at_a_time_gets_all_over_a_lossy_link(
    link: Link, unfinished_max: int, loss_per_cent: int, seed: int
) -> None:
    """While a lost part is on its way again such a receiver ignores others, whose parts must all be sent again. Serving
    one message after the other, each with a round trip and a timer of 100 ms, and a second for each loss is enough."""
    lossy = replace(link, loss_per_million=10_000 * loss_per_cent)
    odd = World(RupPeer(unfinished_max=unfinished_max), lossy, seed=seed)
    odd.carry(SOME, 600 * SECOND, per_needed=10)
    lost = 2 * len(SOME) * 18 * loss_per_cent // 100
    bound_us = len(SOME) * (odd.rtt_us + 100 * MS) + lost * SECOND
    at_most(odd.all_delivered().took_us, bound_us, f"{unfinished_max} at a time, {loss_per_cent} % loss")


@pytest.mark.parametrize("delay_us", [50, 20 * MS, 100 * MS])
@pytest.mark.parametrize("unfinished_max", [2, 1])
@over_seeds(1)
def test_many_small_messages_to_a_receiver_that_takes_few_at_a_time_are_not_sent_one_a_round_trip_after_each_loss(
    delay_us: int, unfinished_max: int, seed: int
) -> None:
    """A lost part holds up the receiver, which then ignores hundreds that were begun. One after the other, each with a
    round trip, would be the slowest way to send them again; half of that, and a second for each loss, is enough."""
    bodies = numbered(2_000, 3_000)
    lossy = Link(delay_us=delay_us, bytes_per_second=GIGABIT, loss_per_million=1_000)
    world = World(RupPeer(unfinished_max=unfinished_max), lossy, seed=seed)
    world.carry(bodies, 600 * SECOND, per_needed=3).all_delivered()
    lost = 2 * 3 * len(bodies) // 1_000
    at_most(world.took_us, len(bodies) * world.rtt_us // 2 + lost * SECOND, f"{unfinished_max} at a time")


@over_seeds(3)
def test_messages_that_are_begun_and_ignored_keep_no_probe_from_the_one_that_the_receiver_has_begun(seed: int) -> None:
    """Its last part is lost several times, so only a probe of that message helps: the receiver ignores all others."""
    lost: Counter[bytes] = Counter()

    def loses(data: bytes) -> bool:
        lost[data[2:34]] += is_last_part(data)
        return is_last_part(data) and lost[data[2:34]] <= 3

    world = World(RupPeer(unfinished_max=1), FAR, seed=seed, loses=loses)
    world.carry(SOME[:20], 120 * SECOND, per_needed=5).all_delivered()


@over_seeds(1)
def test_a_small_message_does_not_wait_for_a_large_one_over_a_lossy_link(seed: int) -> None:
    """Two time-outs in a row once had only the oldest message sent from then on, to its end; and later the small ones
    waited behind the second large one."""
    large, small = numbered(2, 30_000_000), numbered(30, 50, first=2)
    world = World(RupPeer(), Link(delay_us=20 * MS, loss_per_million=50_000), seed=seed)
    peer = world.connect()
    world.send(peer, large)
    world.run(lambda: False, 20 * SECOND)
    world.send(peer, small)
    began_us = world.now_us
    world.run(lambda: len(world.outcomes) == len(small), 60 * SECOND)
    assert len(world.tokens("Delivered")) == len(small), world.summary()
    at_most(world.now_us - began_us, 20 * SECOND, "small messages")


@pytest.mark.parametrize("upto", [1, 2])
def test_a_message_that_seems_to_be_ignored_and_is_answered_in_the_same_batch_goes_on(upto: int) -> None:
    """A busy sender reads two confirms before anything leaves: the first shows that an older message may be ignored,
    the second answers that one."""
    machine = make_machine("rup", None, Seeded(1))
    machine.connect(THERE, 0)
    (connected,) = machine.events()
    assert isinstance(connected, Connected)
    machine.send_many(connected.peer, numbered(2, 3 * PART_BYTES), 0)
    sent = [data for transmit in machine.transmits() for data in cut(transmit.data, transmit.segment_bytes)]
    older, later = dict.fromkeys(data[2:34] for data in sent)
    now_us = 300 * MS
    for identity, parts in ((later, 3), (older, upto)):
        machine.receive(b"c" + identity + b"\0" + uint(parts * PART_BYTES), THERE, now_us)
    again = [data for transmit in machine.transmits() for data in cut(transmit.data, transmit.segment_bytes)]
    assert {number(data[34:38]) // PART_BYTES for data in again if data[2:34] == older} == set(range(upto, 3))


@over_links
@pytest.mark.parametrize("large", [{3, 100}, set(range(3, 300, 5))], ids=["two", "every-fifth"])
@over_seeds(3)
def test_messages_above_the_maximum_of_the_receiver_hold_up_nothing_else(
    link: Link, large: set[int], seed: int
) -> None:
    bodies = [body.ljust(200_000, b"+") if number in large else body for number, body in enumerate(SOME)]
    plain = World(RupPeer(), link, seed=seed).carry(bodies, 60 * SECOND).all_delivered()
    odd = World(RupPeer(message_bytes_max=100_000), link, seed=seed).carry(bodies, 100 * SECOND)
    assert len(odd.tokens("DeliveryUnknown")) == len(large), odd.summary()
    at_most(odd.last_delivery_us(len(bodies) - len(large)), 1.5 * plain.took_us, "the other messages")


ABOVE = {"every-second": lambda number: number % 2 == 1, "first-twenty": lambda number: number < 20}


@pytest.mark.parametrize("controller", ["model", "newreno"])
@pytest.mark.parametrize(("small", "large"), [(100, 1_000), (3_000, 4_000)], ids=["one-part", "parts"])
@pytest.mark.parametrize("above", ABOVE.values(), ids=ABOVE)
@over_seeds(4)
def test_however_many_messages_are_above_the_maximum_of_the_receiver_the_others_are_in_time(
    above: Callable[[int], bool], small: int, large: int, controller: str, seed: int
) -> None:
    """Those of one part once filled the window, and nothing was begun beyond the first few: the others ended as not
    sent. Three seconds are for the time-outs before the first answer."""
    bodies = [body.ljust(large if above(number) else small, b".") for number, body in enumerate(numbered(400, 8))]
    answered = sum(not above(number) for number in range(400))
    plain = World(RupPeer(), FAR, seed=seed, controller=controller).carry(bodies, 60 * SECOND).all_delivered()
    peer = RupPeer(message_bytes_max=(small + large) // 2)
    odd = World(peer, FAR, seed=seed, controller=controller).carry(bodies, 100 * SECOND, per_needed=10)
    at_most(odd.last_delivery_us(answered), 3 * plain.took_us + (3 * SECOND if above(0) else 0), "the other messages")


@pytest.mark.parametrize("rtt_us", [1 * MS, 300 * MS])
@over_seeds(6)
def test_a_megabyte_arrives_at_a_loss_of_thirty_per_cent(rtt_us: int, seed: int) -> None:
    link = Link(delay_us=rtt_us // 2, loss_per_million=300_000)
    World(RupPeer(), link, seed=seed).carry(MEGABYTE, 3_600 * SECOND, per_needed=4).all_delivered()


@over_links
@pytest.mark.parametrize("habits", [{}, {"confirms_again_us": 100 * MS}, POLLING], ids=["plain", "confirms", "polls"])
@pytest.mark.parametrize("outage_us", [600 * MS, 3 * SECOND])
@over_seeds(2)
def test_an_outage_costs_its_length_and_two_seconds(
    link: Link, habits: dict[str, Any], outage_us: int, seed: int
) -> None:
    """A probe leaves a second after it at the latest; another second is for growing the window again."""
    bodies = MEGABYTE if habits is POLLING else TEN_MEGABYTES
    plain = World(RupPeer(), link, seed=seed).carry(bodies, 60 * SECOND).all_delivered()
    start_us = plain.took_us // 2
    away = replace(link, outages=((start_us, start_us + outage_us),))
    odd = World(RupPeer(**habits), away, seed=seed).carry(bodies, 60 * SECOND).all_delivered()
    bound_us = (1.5 if habits is POLLING else 1) * plain.took_us + outage_us + 2 * SECOND
    at_most(odd.took_us, bound_us, f"an outage of {outage_us / SECOND} s")


POLLED = {"one-large": numbered(1, 2_000_000), "many-small": numbered(100, 20_000)}


def test_a_polling_receiver_is_served_over_a_lossy_link() -> None:
    """It asks for one part at a time: a loss costs it a round trip and the next poll. How early the first loss ends
    slow start differs from seed to seed and between the two, so the sums are compared."""
    lossy = replace(FAR, loss_per_million=10_000)
    plain_us = odd_us = 0
    for seed in seeds(4):
        plain_us += World(RupPeer(), lossy, seed=seed).carry(MEGABYTE, 60 * SECOND).all_delivered().took_us
        odd = World(RupPeer(**POLLING), lossy, seed=seed).carry(MEGABYTE, 20 * SECOND)
        odd_us += odd.all_delivered().took_us
        plain_us += 2 * 864 // 100 * (odd.rtt_us + 4 * MS)
    at_most(odd_us, 1.5 * plain_us, "polling, 1 % loss")


@over_seeds(2)
def test_late_confirms_alone_cost_at_most_half_as_much_time_again_as_a_link_that_is_as_slow(seed: int) -> None:
    slow = Link(delay_us=FAR.delay_us + 10 * MS, bytes_per_second=GIGABIT)
    plain = World(RupPeer(), slow, seed=seed).carry(SOME, 60 * SECOND).all_delivered()
    peer = RupPeer(answers=Answers(late_us=20 * MS), requests=False)
    odd = World(peer, FAR, seed=seed).carry(SOME, 60 * SECOND).all_delivered()
    at_most(odd.took_us, 1.5 * plain.took_us, "confirms 20 ms late")


@over_seeds(2)
def test_a_receiver_that_never_requests_gets_everything_over_a_lossy_link(seed: int) -> None:
    lossy = Link(delay_us=20 * MS, loss_per_million=20_000)
    World(RupPeer(requests=False), lossy, seed=seed).carry(SOME[:50], 600 * SECOND, per_needed=3).all_delivered()


@over_links
@over_seeds(2)
def test_lost_confirms_cost_at_most_half_as_much_time_again_as_lost_parts(link: Link, seed: int) -> None:
    """What a lost confirm said stands in the next one; only the last of a message is missed, and looks as if the last
    part had been lost. So 30 % of lost confirms are 1.7 % of lost parts to a sender of messages of 18 parts."""
    lossy = replace(link, loss_per_million=17_000)
    plain = World(RupPeer(), lossy, seed=seed).carry(SOME, 120 * SECOND).all_delivered()
    deaf = replace(link, answer_loss_per_million=300_000)
    odd = World(RupPeer(), deaf, seed=seed).carry(SOME, 120 * SECOND).all_delivered()
    at_most(odd.took_us, 1.5 * plain.took_us + 2 * SECOND, "30 % of the confirms lost")


@over_links
@over_seeds(2)
def test_a_receiver_that_restarted_and_forgot_what_it_confirmed_gets_every_message_whole(link: Link, seed: int) -> None:
    plain = World(RupPeer(), link, seed=seed).carry(TEN_MEGABYTES[:3], 60 * SECOND).all_delivered()
    peer = RupPeer(forgets_us=plain.took_us // 2)
    World(peer, link, seed=seed).carry(TEN_MEGABYTES[:3], 120 * SECOND, per_needed=3).all_delivered()


@over_seeds(2)
def test_a_receiver_that_restarted_gets_all_the_parts_that_it_had_confirmed_however_many_they_are(seed: int) -> None:
    """1,024 requests may wait at a time; more parts than that were confirmed when it restarts."""
    link = Link(delay_us=20 * MS, bytes_per_second=20_000_000)
    world = World(RupPeer(forgets_us=500 * MS), link, seed=seed)
    world.carry(numbered(1, 10_000_000), 60 * SECOND, per_needed=3).all_delivered()


@over_seeds(4)
def test_an_empty_message_arrives_among_others_over_a_lossy_link(seed: int) -> None:
    """All empty messages have the same tag: one to a run."""
    bodies = [*SOME[:3], b"", *SOME[3:6]]
    World(RupPeer(), Link(delay_us=20 * MS, loss_per_million=100_000), seed=seed).carry(
        bodies, 60 * SECOND, per_needed=4
    ).all_delivered()


@over_links
@over_seeds(1)
def test_senders_whose_messages_fit_only_one_by_one_into_the_receiver_all_get_through(link: Link, seed: int) -> None:
    """Here the receiver is under test, and three of our own senders share it: what was begun is finished before more
    is admitted."""
    pump = Pump(delay_us=link.delay_us)
    limits = make_options("rup", incoming_bytes_max=1 << 20, incoming_bytes_per_peer_max=1 << 20)
    pump.add(make_machine("rup", limits, Seeded(seed)), ("receiver", 0))
    senders = [pump.add(make_machine("rup", None, Seeded(seed).fork(port)), ("sender", port)) for port in range(1, 4)]
    for sender in senders:
        peer = pump.connected(sender, ("receiver", 0))
        for body in numbered(5, 640_000):
            pump.send(sender, peer, body)
    start_us = pump.now_us
    pump.run_until(lambda: not any(sender.machine.unfinished() for sender in senders), 120 * SECOND)
    delivered = [len(sender.all_of(Delivered)) for sender in senders]
    took = f"in {(pump.now_us - start_us) / SECOND:.3f} s, {pump.sent} datagrams"
    assert delivered == [5, 5, 5], f"{delivered} messages of three senders were delivered {took}"


@pytest.mark.parametrize("size", [3_000, 20_000])
@pytest.mark.parametrize("loss_per_million", [10_000, 50_000])
@over_seeds(2)
def test_a_lost_part_of_one_message_does_not_wait_until_all_others_are_delivered(
    loss_per_million: int, size: int, seed: int
) -> None:
    """Nothing is odd about this receiver: while other messages advance, each must still be repaired."""
    link = Link(delay_us=50 * MS, loss_per_million=loss_per_million)
    world = World(RupPeer(), link, seed=seed).carry(numbered(18_000_000 // size // 3, size), 900 * SECOND)
    begun: dict[bytes, int] = {}
    for at_us, data in world.log:
        begun.setdefault(world.peer.message_of(data) or b"", at_us)
    took_us = [outcome.at_us - begun[world.bodies[token][:8]] for token, outcome in world.outcomes.items()]
    at_most(max(took_us), 10 * SECOND, f"the slowest of {world.summary()}")
    world.all_delivered()


def test_a_round_trip_about_as_long_as_the_first_time_out_costs_no_window_where_nothing_is_lost() -> None:
    worlds = [World(RupPeer(), Link(delay_us=100 * MS), seed=seed) for seed in seeds(2)]
    took_us = [world.carry(SOME, 60 * SECOND).all_delivered().took_us for world in worlds]
    at_most(max(took_us), 1.5 * min(took_us), "another seed, a few per cent more delay")


@pytest.mark.parametrize(
    ("delay_us", "bytes_per_second", "factor"),
    [
        (50, GIGABIT, 1.5),
        (20 * MS, GIGABIT, 1.5),
        *((delay_us, rate, 3) for rate in (500_000, 2_000_000) for delay_us in (500, 20 * MS, 100 * MS)),
    ],
)
@pytest.mark.parametrize("bodies", POLLED.values(), ids=POLLED)
@over_seeds(1)
def test_a_polling_receiver_costs_at_most_half_as_much_time_again_and_behind_a_slow_link_three_times_as_much(
    bodies: list[bytes], delay_us: int, bytes_per_second: int, factor: float, seed: int
) -> None:
    """What waits in the queue of the link is asked for before it can have come."""
    link = Link(delay_us=delay_us, bytes_per_second=bytes_per_second)
    plain = World(RupPeer(), link, seed=seed).carry(bodies, 60 * SECOND).all_delivered()
    odd = World(RupPeer(**POLLING), link, seed=seed).carry(bodies, 60 * SECOND, per_needed=5)
    at_most(odd.all_delivered().took_us, factor * plain.took_us, "polling every 4 ms")


@over_seeds(3)
def test_no_round_trip_is_measured_that_is_shorter_than_the_link(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """What is taken back from a message that seems to be ignored is still under way when it leaves again."""
    measured: list[int] = []
    sample = RoundTrip.sample

    def sampled(timing: RoundTrip, rtt_us: int) -> None:
        measured.append(rtt_us)
        sample(timing, rtt_us)

    monkeypatch.setattr(RoundTrip, "sample", sampled)
    measured.clear()
    World(RupPeer(), Link(delay_us=200 * MS, loss_per_million=10_000), seed=seed).carry(SOME[:60], 120 * SECOND)
    assert min(measured) >= 400 * MS, f"a round trip of {min(measured) / MS} ms was measured"
