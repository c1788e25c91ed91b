"""Requests and confirms are read together as one by one, and what they end is reported together."""

from __future__ import annotations

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from fairway.core import outputs
from fairway.core.events import Delivered, Peer
from fairway.core.random_source import Seeded
from fairway.core.timers import Deadlines
from fairway.protocols.rup import wire
from fairway.protocols.rup.context import Context
from fairway.protocols.rup.machine import RupMachine
from fairway.protocols.rup.options import RupOptions


@given(st.lists(st.tuples(st.sampled_from([wire.REQUEST, wire.CONFIRM]), st.integers(0, wire.UINT_MAX)), max_size=5))
def test_words_are_read_together_as_one_by_one(found: list[tuple[int, int]]) -> None:
    identity = b"0123456789abcdef" * 2
    encoded = [wire.control(kind, identity, position) for kind, position in found]
    assert wire.controls(b"".join(encoded)) == [(kind, identity, position) for kind, position in found]
    headers = [wire.header(one) for one in encoded]
    assert [(header.kind, header.position) for header in headers] == found


def test_one_damaged_word_has_all_of_them_read_one_by_one() -> None:
    good = wire.control(wire.CONFIRM, b"0123456789abcdef" * 2, 5)
    assert wire.controls(good + good[:-1]) is None
    assert wire.controls(good + b"x" + good[1:]) is None
    assert wire.controls(good + good[:-1] + b"\xff") is None


def test_neighbours_that_are_confirmed_together_are_reported_together() -> None:
    machine = RupMachine(RupOptions(controller="eager"), Seeded(1))
    machine.connect("b", 0)
    tokens = list(machine.send_many(Peer("b"), [bytes(10)] * 6, 0))
    machine.transmits()
    machine.events()
    identities = list(machine._conversations["b"].sender._under_way)
    told = [identities[place] for place in (0, 1, 2, 5, 4)]
    machine.receive(b"".join(wire.control(wire.CONFIRM, one, 10) for one in told), "b", 100, wire.CONTROL_BYTES)
    delivered = [list(event.tokens) for event in machine.events() if isinstance(event, Delivered)]
    assert delivered == [tokens[:3], tokens[5:6], tokens[4:5]]


def test_ids_are_drawn_ahead_in_the_order_of_one_by_one() -> None:
    options, chance = RupOptions(), Seeded(7)
    context = Context(options, Seeded(7), outputs.Outputs(options), Deadlines())
    drawn = [context.draw_identity() for _ in range(3_000)]
    expected = [UUID(int=chance.bits(128), version=4).hex.encode() for _ in range(3_000)]
    assert drawn == expected
