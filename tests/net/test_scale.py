"""What must hold at size, at a size that a check can wait for; `make scale` and `make soak-net` do the rest."""

from __future__ import annotations

import pytest

from benchmarks.scale.comings import soak
from benchmarks.scale.exact import bad_relay, carry
from benchmarks.scale.gatherings import crowd, flood, made_up

LIMIT_S = 600.0
MB = 1_000_000


def faulty(faults: dict[str, dict[str, int]]) -> bool:
    """Return whether the relay lost, copied and reordered in both directions."""
    return all(way[fault] > 0 for way in faults.values() for fault in ("lost", "copied", "reordered"))


def small(few: int, many: int) -> list[object]:
    """Return a size for `make test` and one for `make test-all`."""
    return [few, pytest.param(many, marks=pytest.mark.long)]


@pytest.mark.parametrize("size", small(20 * MB, 100 * MB))
def test_megabytes_through_rup_over_a_bad_link_are_exact(size: int) -> None:
    carried = carry("rup", size, bad_relay(), seed=11, limit_s=LIMIT_S)
    assert carried["units"] >= size
    assert faulty(carried["faults"])


@pytest.mark.parametrize("peer", ["udpc", "mrp"])
@pytest.mark.parametrize("count", small(4_000, 100_000))
def test_thousands_of_messages_over_a_bad_link_arrive_once_each(peer: str, count: int) -> None:
    carried = carry(peer, count, bad_relay(), seed=12, limit_s=LIMIT_S)
    assert carried["units"] == count
    assert faulty(carried["faults"])


@pytest.mark.parametrize("protocol", ["udpc", "mrp"])
@pytest.mark.parametrize("sessions", small(500, 2_000))
def test_many_sessions_on_one_endpoint_exchange_messages(protocol: str, sessions: int) -> None:
    gathered = crowd(protocol, sessions, limit_s=LIMIT_S)
    assert 0 < gathered["bytes_per_session"] < 32_768


@pytest.mark.parametrize("protocol", ["udpc", "mrp"])
def test_a_flood_of_calls_leaves_open_sessions_working_and_half_open_ones_bounded(protocol: str) -> None:
    flooded = flood(protocol, 20_000, limit_s=LIMIT_S, options="?half_open_max=500&unproved_max=500")
    assert flooded["seen"] > 2 * 500
    # Some containers for each half-open call and each address that was counted; without a bound there were 20,000.
    assert flooded["entries_grown"] < 500 * 16
    assert flooded["grown_mb"] < 40


def test_made_up_addresses_are_many_and_all_on_this_machine() -> None:
    addresses = {made_up(number) for number in range(20_000)}
    assert len(addresses) == 20_000
    assert {address[0] for address in addresses} == {127}


@pytest.mark.parametrize("seconds", small(3, 10))
def test_conversations_that_come_and_go_leave_nothing_behind(seconds: int) -> None:
    soaked = soak(seconds, slow_callback_s=60.0)
    soaked.judge(growth_bytes_max=4 * MB)
    assert soaked.conversations > 10
    assert soaked.abandoned > 0
