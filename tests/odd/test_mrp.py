"""mrp against servers with another window, another order of acknowledgements, or another round trip than expected."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from .mrp_peers import MrpPeer
from .world import MS, SECOND, Link, World, at_most, numbered, over_seeds, tag

LAYOUTS = ("stamped", "piggyback")
LINK = Link(delay_us=20 * MS)
BODIES = numbered(5_000)
PER_LOSS_US = 2 * SECOND

over_layouts = pytest.mark.parametrize("layout", LAYOUTS)


def lost_once(*numbers: int) -> Callable[[bytes], bool]:
    """Return a fault that loses the first transmission of these messages."""
    left = {tag(number) for number in numbers}

    def loses(data: bytes) -> bool:
        found = next((name for name in left if name in data), None)
        if found is not None:
            left.discard(found)
        return found is not None

    return loses


@over_layouts
@pytest.mark.parametrize("rtt_us", [200 * MS, 300 * MS])
@pytest.mark.parametrize("lost", [(100,), (0, 100, 101, 299)], ids=["one", "four"])
@over_seeds(4)
def test_a_strict_ping_pong_server_takes_a_round_trip_a_message_and_two_seconds_a_loss(
    layout: str, rtt_us: int, lost: tuple[int, ...], seed: int
) -> None:
    bodies = numbered(300)
    world = World(MrpPeer(layout, window=1), Link(delay_us=rtt_us // 2), seed=seed, loses=lost_once(*lost))
    bound_us = 1.3 * len(bodies) * world.rtt_us + PER_LOSS_US * len(lost)
    world.carry(bodies, 4 * round(bound_us), per_needed=4)
    at_most(world.all_delivered().took_us, bound_us, f"{len(lost)} lost of {len(bodies)} messages")


@over_layouts
@pytest.mark.parametrize(
    ("rtt_us", "window", "loss_per_cent"),
    [(40 * MS, 1, 2), *((rtt_us, window, 10) for rtt_us in (200 * MS, 300 * MS) for window in (1, 2))],
)
@over_seeds(3)
def test_a_strict_server_is_served_over_a_lossy_link(
    layout: str, rtt_us: int, window: int, loss_per_cent: int, seed: int
) -> None:
    """Twice as many exchanges fail as datagrams are lost in each direction: the bound allows 2 s for each. A resend
    delay that never learns the round trip costs time where it is too long and datagrams where it is too short."""
    bodies = numbered(300)
    link = Link(delay_us=rtt_us // 2, loss_per_million=10_000 * loss_per_cent)
    world = World(MrpPeer(layout, window=window), link, seed=seed)
    bound_us = 1.3 * len(bodies) * world.rtt_us + PER_LOSS_US * len(bodies) * 2 * loss_per_cent // 100
    world.carry(bodies, 4 * round(bound_us), per_needed=4)
    at_most(world.all_delivered().took_us, bound_us, f"{loss_per_cent} % loss")


@over_layouts
@pytest.mark.parametrize("rtt_us", [40 * MS, 200 * MS])
@over_seeds(2)
def test_a_server_with_a_window_of_eight_takes_at_most_two_round_trips_for_eight_messages(
    layout: str, rtt_us: int, seed: int
) -> None:
    bodies = numbered(1_600)
    world = World(MrpPeer(layout, window=8), Link(delay_us=rtt_us // 2), seed=seed, loses=lost_once(100))
    bound_us = 2 * len(bodies) * world.rtt_us / 8 + PER_LOSS_US
    world.carry(bodies, 4 * round(bound_us), per_needed=4)
    at_most(world.all_delivered().took_us, bound_us, "a window of 8, one loss")


@over_layouts
@over_seeds(5)
def test_a_near_server_with_one_open_receipt_is_served_without_the_longest_resend_delay(layout: str, seed: int) -> None:
    """Nearly every packet is dropped once and acknowledged a round trip after its retransmission. Taken for a late
    acknowledgement of the first transmission, that had the delay grow with each packet, to three seconds."""
    bodies = numbered(300)
    world = World(MrpPeer(layout, rests_us=2 * MS), Link(delay_us=500), seed=seed)
    world.carry(bodies, 600 * SECOND, per_needed=4)
    at_most(world.all_delivered().took_us, len(bodies) * 100 * MS, "one open receipt")


@over_layouts
@over_seeds(1)
def test_a_window_of_32767_delivers_everything_to_a_window_of_256_at_a_loss_of_one_in_a_thousand(
    layout: str, seed: int
) -> None:
    link = Link(delay_us=20 * MS, loss_per_million=1_000)
    equal = World(MrpPeer(layout), link, seed=seed, window=256).carry(BODIES, 120 * SECOND)
    wide = World(MrpPeer(layout), link, seed=seed, window=32_767).carry(BODIES, 120 * SECOND, per_needed=4)
    losses = len(BODIES) // 500
    bound_us = 1.5 * equal.all_delivered().took_us + PER_LOSS_US * losses
    at_most(wide.all_delivered().took_us, bound_us, "a window of 32,767 against 256")


@over_layouts
@over_seeds(1)
def test_a_round_trip_that_grows_from_20_to_100_ms_costs_at_most_half_as_much_as_one_that_was_always_so_long(
    layout: str, seed: int
) -> None:
    bodies = numbered(10_000)
    long = World(MrpPeer(layout), Link(delay_us=50 * MS), seed=seed).carry(bodies, 120 * SECOND)
    grows = Link(delay_us=10 * MS, grows=(500 * MS, 50 * MS))
    odd = World(MrpPeer(layout), grows, seed=seed).carry(bodies, 120 * SECOND)
    at_most(odd.all_delivered().took_us, 1.5 * long.all_delivered().took_us, "a grown round trip")
