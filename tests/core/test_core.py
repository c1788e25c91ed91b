"""Serial numbers, deadlines, the ledger and the seeded generator."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.core.outputs import Ledger
from fairway.core.random_source import MILLION, Seeded
from fairway.core.serial import widen
from fairway.core.timers import Deadlines


@given(st.integers(0, 2**40), st.integers(-(2**15) + 1, 2**15 - 1))
def test_widening_finds_the_number_that_was_sent_while_it_is_less_than_half_a_turn_away(near: int, away: int) -> None:
    assert widen((near + away) & 0xFFFF, near, 16) == near + away


@pytest.mark.parametrize("stale_max", [0, 64])
@given(moves=st.lists(st.tuples(st.integers(0, 5), st.one_of(st.none(), st.integers(0, 50))), max_size=40))
def test_deadlines_come_up_when_a_plain_dictionary_says(stale_max: int, moves: list[tuple[int, int | None]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fairway.core.timers.STALE_MAX", stale_max)
        deadlines_agree(moves)


def deadlines_agree(moves: list[tuple[int, int | None]]) -> None:
    deadlines: Deadlines[int] = Deadlines()
    naive: dict[int, int] = {}
    for now_us, (key, due_us) in enumerate(moves):
        deadlines.set(key, due_us)
        if due_us is None:
            naive.pop(key, None)
        else:
            naive[key] = due_us
        assert deadlines.next_us() == min(naive.values(), default=None)
        due = deadlines.pop_due(now_us)
        assert sorted(due) == sorted(key for key, when in naive.items() if when <= now_us)
        naive = {key: when for key, when in naive.items() if when > now_us}
        assert len(deadlines) == len(naive)


def test_pushing_one_deadline_away_for_ever_keeps_one_heap_entry() -> None:
    deadlines: Deadlines[str] = Deadlines()
    for due_us in range(10_000):
        deadlines.set("silence", due_us)
    assert len(deadlines._heap) == 1


def test_deadlines_set_and_cleared_do_not_pile_up() -> None:
    deadlines: Deadlines[int] = Deadlines()
    for key in range(10_000):
        deadlines.set(key, 1_000_000 - key)
        deadlines.set(key, None)
    assert len(deadlines._heap) < 100
    assert len(deadlines._queued) < 100


def test_clearing_out_stale_entries_while_looking_for_the_next_brings_nothing_up_early() -> None:
    deadlines: Deadlines[int] = Deadlines()
    for key in range(3):
        deadlines.set(key, 100 + 5 * key)
    for key in range(100, 168):
        deadlines.set(key, 10_000 + key)
        deadlines.set(key + 100, None)
    for key in range(100, 168):
        deadlines.set(key, None)
    deadlines.set(0, 300)
    deadlines.set(1, 400)
    assert deadlines.pop_due(110) == [2]
    assert deadlines.pop_due(400) == [0, 1]


def test_evicting_from_the_ledger_never_raises_a_budget() -> None:
    ledger = Ledger(unproved_max=2)
    for address in ("a", "b", "c"):
        ledger.received(address, 10)
    assert len(ledger) == 2
    assert not ledger.allows("a", 1)
    assert ledger.allows("c", 30)


def test_chances_come_up_about_as_often_as_they_say() -> None:
    random = Seeded(1)
    hits = sum(random.happens(MILLION // 4) for _ in range(40_000))
    assert 9_700 < hits < 10_300
    assert not any(random.happens(0) for _ in range(100))
    assert all(random.happens(MILLION) for _ in range(100))


def test_the_seeded_generator_gives_the_published_numbers() -> None:
    random = Seeded(1_234_567)
    assert [random.bits(64) for _ in range(3)] == [6457827717110365317, 3203168211198807973, 9817491932198370423]
