"""`Flight` against a plain dictionary of packets."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fairway.core.flight import OVERTAKEN_BY, Flight


class NaiveFlight:
    """Each packet on its own: number to the order of its latest transmission."""

    def __init__(self) -> None:
        self.latest: dict[int, int] = {}
        self.first_order: dict[int, int] = {}
        self.acknowledged: list[int] = []
        self.order = 0

    def add(self, first: int, count: int) -> None:
        for number in range(first, first + count):
            self.latest[number] = self.first_order[number] = self.order
            self.order += 1

    def acknowledge(self, number: int) -> bool:
        if number not in self.latest:
            return False
        del self.latest[number]
        self.acknowledged.append(self.first_order[number])
        return True

    def repeat(self, number: int) -> None:
        self.latest[number] = self.order
        self.order += 1

    def overtaken(self) -> list[int]:
        return sorted(
            number
            for number, order in self.latest.items()
            if sum(later > order for later in self.acknowledged) >= OVERTAKEN_BY
        )


actions = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(1, 9), st.just(0)),
        st.tuples(st.just("ack"), st.integers(0, 60), st.integers(1, 12)),
        st.tuples(st.just("drop"), st.integers(0, 60), st.just(0)),
        st.tuples(st.just("repair"), st.just(0), st.just(0)),
        st.tuples(st.just("time"), st.integers(1, 400), st.just(0)),
    ),
    max_size=50,
)


@given(actions)
def test_it_agrees_with_packets_kept_one_by_one(steps: list[tuple[str, int, int]]) -> None:
    flight, naive, next_number, now_us = Flight(), NaiveFlight(), 100, 0
    for action, value, count in steps:
        if action == "add":
            data = b"".join(number.to_bytes(2, "big") for number in range(next_number, next_number + value))
            flight.add(next_number, value, data, 2, token=next_number + 7, now_us=now_us, due_us=now_us + 100)
            naive.add(next_number, value)
            next_number += value
        elif action == "ack":
            first = 100 + value
            expected = [number for number in range(first, first + count) if naive.acknowledge(number)]
            pieces = flight.acknowledge(first, count)
            assert [n for piece in pieces for n in range(piece.first, piece.first + piece.count)] == expected
            assert [token - 7 for piece in pieces for token in piece.tokens] == expected
        elif action == "drop":
            naive.latest.pop(100 + value, None)
            flight.drop(100 + value)
        elif action == "repair":
            overtaken = flight.overtaken()
            assert overtaken == naive.overtaken()
            for number in overtaken:
                run = flight.repeat(number, now_us, now_us + 100)
                assert bytes(run.datagram(number)) == number.to_bytes(2, "big")
                naive.repeat(number)
            assert flight.overtaken() == naive.overtaken() == []
        else:
            now_us += value
            due = sorted(number for run in flight.pop_due(now_us) for number in run.waiting())
            for number in due:
                flight.repeat(number, now_us, now_us + 100)
                naive.repeat(number)
            next_due_us = flight.next_due_us()
            assert next_due_us is None or next_due_us > now_us
        assert len(flight) == len(naive.latest)
        assert flight.waiting() == sorted(naive.latest)
        assert flight.oldest() == min(naive.latest, default=None)


def test_a_packet_is_overtaken_by_three_later_acknowledgements_and_not_by_two() -> None:
    flight = Flight()
    flight.add(1, 5, b"", 0, token=1, now_us=0, due_us=100)
    flight.acknowledge(2, 2)
    assert flight.overtaken() == []
    flight.acknowledge(5)
    assert flight.overtaken() == [1]


def test_a_repair_is_overtaken_again_only_by_what_left_after_it() -> None:
    flight = Flight()
    flight.add(1, 8, b"", 0, token=1, now_us=0, due_us=100)
    flight.acknowledge(2, 3)
    flight.repeat(1, 10, 110)
    flight.acknowledge(5, 4)
    assert flight.overtaken() == []
    flight.add(9, 3, b"", 0, token=9, now_us=20, due_us=120)
    flight.acknowledge(9, 3)
    assert flight.overtaken() == [1]


def test_a_whole_run_acknowledged_at_once_leaves_as_one_piece() -> None:
    flight = Flight()
    flight.add(1, 64, b"", 0, token=5, now_us=0, due_us=100)
    (piece,) = flight.acknowledge(1, 64)
    assert piece.tokens == range(5, 69)
    assert len(flight) == 0
    assert flight.next_due_us() is None


def test_a_timer_armed_twice_for_one_instant_comes_up_once() -> None:
    flight = Flight()
    run = flight.add(1, 1, b"x", 1, token=1, now_us=0, due_us=50)
    flight.postpone(run, 100)
    flight.postpone(run, 80)
    flight.postpone(run, 100)
    assert flight.pop_due(100) == [run]
    assert flight.next_due_us() is None
