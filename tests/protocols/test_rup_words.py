"""Requests and confirms in a super-buffer have the result of one by one, and what they end is reported together."""

from __future__ import annotations

from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from fairway.core import outputs
from fairway.core.events import Delivered, Peer
from fairway.core.random_source import Seeded
from fairway.core.timers import Deadlines
from fairway.protocols.rup import wire
from fairway.protocols.rup.context import Context
from fairway.protocols.rup.machine import RupMachine
from fairway.protocols.rup.options import RupOptions
from tests.protocols.rup_outputs import Outputs

PART_BYTES = 22
SIZES = (2_200, 1_555, 60, 10)
LIMIT_US = 200_000


class Speaker(Outputs):
    """A machine with messages under way, and all that it sends and reports."""

    def __init__(self, controller: str) -> None:
        options = RupOptions(controller=controller, datagram_bytes_max=PART_BYTES + 42, window=60)
        super().__init__(RupMachine(options, Seeded(1)))
        self.machine.connect("b", 0)
        self.machine.send_many(Peer("b"), [bytes(size) for size in SIZES], 0)
        self.drain(0)
        self.identities = list(self.machine._conversations["b"].sender._under_way)

    def counts(self) -> dict[str, object]:
        return {name: value for name, value in self.machine.statistics.as_dict().items() if name != "batches"}


@st.composite
def words(draw: st.DrawFn) -> tuple[int, int, int, int | None]:
    """Kind, message, part and, now and then, the byte that is damaged."""
    kind = draw(st.sampled_from([wire.CONFIRM, wire.CONFIRM, wire.CONFIRM, wire.REQUEST]))
    damage = draw(st.one_of(st.none(), st.none(), st.none(), st.integers(0, 37)))
    return kind, draw(st.integers(0, len(SIZES))), draw(st.integers(0, 101)), damage


def datagram(word: tuple[int, int, int, int | None], identities: list[bytes]) -> bytes:
    kind, message, part, damage = word
    if message == len(SIZES):
        return wire.control(kind, bytes(reversed(identities[0])), part * PART_BYTES)
    position = part * PART_BYTES
    if kind == wire.CONFIRM and position > SIZES[message] - PART_BYTES:
        position = SIZES[message]
    encoded = bytearray(wire.control(kind, identities[message], position))
    if damage is not None:
        encoded[damage] ^= 0x90
    return bytes(encoded)


@settings(max_examples=80)
@given(
    st.lists(st.lists(words(), min_size=1, max_size=12), min_size=1, max_size=6),
    st.sampled_from(["newreno", "eager"]),
    st.sampled_from([100, 2_000, 25_000]),
)
def test_words_together_have_the_result_of_one_by_one(
    turns: list[list[tuple[int, int, int, int | None]]], controller: str, apart_us: int
) -> None:
    singly, together = Speaker(controller), Speaker(controller)
    now_us = 0
    for turn in turns:
        now_us += apart_us
        for speaker in (singly, together):
            speaker.wake_until(now_us)
        encoded = [datagram(word, singly.identities) for word in turn]
        together.machine.receive(b"".join(encoded), "b", now_us, wire.CONTROL_BYTES if len(encoded) > 1 else None)
        for one in encoded:
            singly.machine.receive(one, "b", now_us)
        for speaker in (singly, together):
            speaker.drain(now_us)
    for speaker in (singly, together):
        speaker.wake_until(now_us + LIMIT_US)
    assert together.sent == singly.sent
    assert together.events == singly.events
    assert together.counts() == singly.counts()
    assert together.machine.next_deadline_us() == singly.machine.next_deadline_us()


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
