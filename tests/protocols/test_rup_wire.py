"""The bytes of rup, alone and in columns, and the bursts that are built and checked as a whole."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.core import outputs
from fairway.core.events import Delivered, Peer
from fairway.core.random_source import Seeded
from fairway.core.timers import Deadlines
from fairway.protocols.rup import wire
from fairway.protocols.rup.columns import BLOCK_PARTS, Bursts, encode_headers
from fairway.protocols.rup.context import Context
from fairway.protocols.rup.machine import RupMachine
from fairway.protocols.rup.options import RupOptions

ID = b"0123456789abcdef0123456789abcdef"


@given(st.integers(1, 70_000), st.integers(0, 60_000), st.integers(1, 40))
def test_headers_made_together_are_those_made_one_by_one(part_bytes: int, first: int, count: int) -> None:
    if (first + count) * part_bytes > wire.UINT_MAX:
        first = 0
    total = (first + count) * part_bytes
    alone = [wire.part(ID, index * part_bytes, total, b"") for index in range(first, first + count)]
    assert encode_headers(ID, total, part_bytes, first, count) == b"".join(alone)


@pytest.mark.parametrize("digit", [255, 255**2, 255**3])
def test_positions_carry_into_the_next_digit(digit: int) -> None:
    assert wire.header(wire.part(ID, digit - 1, digit + 9, b"x" * 10)).position == digit - 1
    assert wire.header(wire.part(ID, digit, digit + 9, b"x" * 9)).position == digit
    headers = encode_headers(ID, digit + 9, 1, digit - 2, 4)
    positions = [wire.header(headers[start : start + 42]).position for start in range(0, len(headers), 42)]
    assert positions == [digit - 2, digit - 1, digit, digit + 1]


@pytest.mark.parametrize(("first", "count"), [(BLOCK_PARTS - 3, 7), (0, 2 * BLOCK_PARTS + 1), (BLOCK_PARTS, 1)])
def test_a_run_of_headers_crosses_the_blocks_in_which_positions_are_made(first: int, count: int) -> None:
    alone = [wire.part(ID, index * 100, 10**6, b"") for index in range(first, first + count)]
    assert encode_headers(ID, 10**6, 100, first, count) == b"".join(alone)


@given(st.integers(1, 50), st.integers(1, 12), st.integers(0, 5), st.data())
def test_a_burst_is_its_parts_one_after_another(part_bytes: int, count: int, first: int, data: st.DataObject) -> None:
    last = data.draw(st.integers(1, part_bytes))
    body = data.draw(st.binary(min_size=(count - 1) * part_bytes + last, max_size=(count - 1) * part_bytes + last))
    total = first * part_bytes + len(body)
    burst = Bursts().encode(ID, total, part_bytes, first, memoryview(body))
    alone = [
        wire.part(ID, (first + row) * part_bytes, total, body[row * part_bytes : (row + 1) * part_bytes])
        for row in range(count)
    ]
    assert bytes(burst) == b"".join(alone)


@given(st.integers(2, 10), st.integers(0, 3), st.integers(0, 10), st.integers(0, 41))
def test_a_changed_header_byte_ends_the_match_at_its_datagram(count: int, row: int, changed: int, byte: int) -> None:
    part_bytes, total = 9, 9 * 50
    encoded = Bursts().encode(ID, total, part_bytes, 5, bytes(count * part_bytes))
    burst = bytearray(bytes(row * 51) + bytes(encoded))
    assert Bursts().leading_matches(burst, part_bytes, row, count, ID, total, 5) == count
    burst[(row + changed % count) * 51 + byte] ^= 0x10
    assert Bursts().leading_matches(burst, part_bytes, row, count, ID, total, 5) == changed % count


def test_bodies_are_taken_without_their_headers() -> None:
    burst = b"".join(wire.part(ID, index * 3, 12, bytes([index]) * 3) for index in range(4))
    assert Bursts().bodies(burst, 3, 1, 2) == b"\x01\x01\x01\x02\x02\x02"


def test_bodies_are_put_where_they_belong_and_nothing_else_is_touched() -> None:
    burst = b"".join(wire.part(ID, index * 3, 12, bytes([index]) * 3) for index in range(4))
    room = bytearray(b"." * 12)
    Bursts().put_bodies(memoryview(room), 3, burst, 3, 1, 2)
    assert room == b"...\x01\x01\x01\x02\x02\x02..."


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
    told = [identities[index] for index in (0, 1, 2, 5, 4)]
    machine.receive(b"".join(wire.control(wire.CONFIRM, one, 10) for one in told), "b", 100, wire.CONTROL_BYTES)
    delivered = [list(event.tokens) for event in machine.events() if isinstance(event, Delivered)]
    assert delivered == [tokens[:3], tokens[5:6], tokens[4:5]]


def test_ids_are_drawn_ahead_in_the_order_of_one_by_one() -> None:
    options, random = RupOptions(), Seeded(7)
    context = Context(options, Seeded(7), outputs.Outputs(options), Deadlines())
    drawn = [context.draw_identity() for _ in range(3_000)]
    expected = [UUID(int=random.bits(128), version=4).hex.encode() for _ in range(3_000)]
    assert drawn == expected
