"""The bytes of udpc: scalar and column decoders agree on every input, and encoding gives back what was decoded."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.core.errors import MalformedDatagram
from fairway.protocols.udpc import columns, wire
from fairway.protocols.udpc.wire import ACK, ASY, FIN, HBT, IMP, REQ, SYN


def reason(data: bytes) -> str:
    """Return why a datagram is malformed; nothing if it is not."""
    try:
        wire.decode(data)
    except MalformedDatagram as malformed:
        return malformed.reason
    return ""


def test_every_flag_byte_is_judged_as_the_table_says() -> None:
    accepted = {0, IMP, REQ, REQ | ASY, ACK, ACK | REQ, ACK | REQ | ASY, IMP | ACK}
    accepted |= {SYN, SYN | ACK, FIN, HBT, HBT | ACK}
    judged = {flag: reason(wire.datagram(1, 1, 0, flag)) for flag in range(256)}
    assert judged == {flag: "" if flag in accepted else "bad_flag" for flag in range(256)}


@pytest.mark.parametrize("flag", wire.CONTROL_FLAGS)
def test_a_control_packet_with_a_body_is_malformed(flag: int) -> None:
    assert reason(wire.datagram(1, 1, 0, flag, b"x")) == "control_with_body"


def test_a_malformed_datagram_says_what_was_found_and_what_was_expected() -> None:
    with pytest.raises(MalformedDatagram, match="bad_flag: found REQ\\+IMP, expected a combination"):
        wire.decode(wire.datagram(1, 1, 0, REQ | IMP))


@given(
    st.integers(1, (1 << 32) - 50),
    st.integers(1, (1 << 32) - 1),
    st.integers(0, 4).flatmap(lambda size: st.lists(st.binary(min_size=size, max_size=size), min_size=1, max_size=40)),
)
def test_a_run_is_encoded_as_its_packets_are(index: int, session_id: int, bodies: list[bytes]) -> None:
    run = columns.encode_run(index, session_id, IMP, bodies, len(bodies[0]))
    assert run == b"".join(
        wire.encode(wire.Message(index=index + number, session_id=session_id, flag=IMP, body=body))
        for number, body in enumerate(bodies)
    )
    assert wire.bodies(run, 13 + len(bodies[0])) == tuple(bodies)


@given(st.integers(1, (1 << 32) - 50), st.integers(1, (1 << 32) - 50), st.integers(1, 40))
def test_acknowledgements_are_encoded_as_their_packets_are(index: int, ack_index: int, count: int) -> None:
    acks = columns.encode_acks(index, 7, ack_index, count)
    assert acks == b"".join(
        wire.encode(wire.Control(index=index + number, session_id=7, ack_index=ack_index + number, flag=IMP | ACK))
        for number in range(count)
    )


def test_a_super_buffer_is_cut_where_session_flag_or_order_change() -> None:
    headers = [
        (1, 7, 0, IMP),
        (2, 7, 0, IMP),
        (4, 7, 9, IMP),
        (5, 8, 0, IMP),
        (6, 8, 1, IMP | ACK),
        (7, 8, 3, IMP | ACK),
    ]
    data = b"".join(wire.datagram(*header, b"x") for header in headers)
    found = [(stretch.start, stretch.end, stretch.first_index) for stretch in columns.stretches(data + b"y", 14)]
    assert found == [(0, 2, 1), (2, 3, 4), (3, 4, 5), (4, 5, 6), (5, 6, 7)]


@given(
    st.integers(1, (1 << 32) - 400),
    st.integers(1, (1 << 32) - 400),
    st.integers(1, 300),
    st.sampled_from([0, IMP, IMP | ACK]),
    st.sampled_from([0, 3]),
    st.integers(0, 299),
    st.integers(0, 12),
    st.integers(0, 255),
)
def test_one_stretch_never_says_yes_where_the_columns_see_more_than_one(
    index: int, ack_index: int, count: int, flag: int, size: int, number: int, byte: int, damage: int
) -> None:
    rows = [bytearray(wire.datagram(index + row, 7, ack_index + row, flag, bytes(size))) for row in range(count)]
    whole = b"".join(rows)
    assert columns.stretches(whole, 13 + size) == [wire.Stretch(0, count, index, 7, ack_index, flag)]
    rows[number % count][byte] ^= damage
    found = wire.one_stretch(b"".join(rows) + b"tail"[: size + 1], 13 + size)
    assert found is None or [found] == columns.stretches(b"".join(rows), 13 + size)


@pytest.mark.parametrize("index", [1, 200, 0x1FF, 0xFFFE80])
def test_one_stretch_is_seen_across_a_carry(index: int) -> None:
    data = b"".join(wire.datagram(index + row, 7, 9 + row, IMP | ACK) for row in range(64))
    assert wire.one_stretch(data, 13) == wire.Stretch(0, 64, index, 7, 9, IMP | ACK)
