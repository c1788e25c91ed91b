"""The bytes of udpc: scalar and column decoders agree on every input, and encoding gives back what was decoded."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.core.errors import MalformedDatagram
from fairway.protocols.udpc import columns, wire
from fairway.protocols.udpc.wire import ACK, ASY, FIN, HBT, IMP, REQ, SYN

NUMBERS = st.integers(0, (1 << 32) - 1) | st.sampled_from([0, 1, (1 << 32) - 1])
RANDOM = st.binary(max_size=40)
FLAGGED = st.builds(wire.datagram, NUMBERS, NUMBERS, NUMBERS, st.integers(0, 255), st.binary(max_size=5))
LEGAL = st.builds(
    wire.datagram,
    st.integers(1, (1 << 32) - 1),
    st.integers(1, (1 << 32) - 1),
    NUMBERS,
    st.sampled_from(sorted(wire.KIND_OF_FLAG)),
    st.binary(max_size=5) | st.just(b""),
)
TRUNCATED = st.builds(lambda data, keep: data[:keep], LEGAL, st.integers(0, 13))
DATAGRAMS = st.lists(RANDOM | FLAGGED | LEGAL | TRUNCATED, max_size=30)


def scalar(data: bytes) -> tuple[str, str, tuple[int, ...], bytes]:
    """Return kind, reason, fields and body as the scalar decoder sees them."""
    try:
        packet = wire.decode(data)
    except MalformedDatagram as malformed:
        return "malformed", malformed.reason, (0, 0, 0, 0), b""
    body = b"" if isinstance(packet, wire.Control) else packet.body
    fields = (packet.index, packet.session_id, packet.ack_index, packet.flag)
    return wire.KIND_OF_FLAG[packet.flag], "", fields, body


def by_columns(datagrams: Sequence[bytes], gap: bytes = b"") -> list[tuple[str, str, tuple[int, ...], bytes]]:
    """Return the same as the column decoder sees it."""
    joined = gap.join(datagrams)
    lengths = np.array([len(data) for data in datagrams], dtype=np.int64)
    offsets = np.cumsum(lengths + len(gap)) - lengths - len(gap)
    decoded = columns.decode_columns(np.frombuffer(joined, dtype=np.uint8), offsets, lengths)
    names = ("index", "session_id", "ack_index", "flag")
    return [
        (
            decoded.kinds[decoded.kind[row]],
            decoded.reasons[decoded.reason[row]],
            tuple(int(decoded.fields[name][row]) for name in names),
            joined[decoded.body_offset[row] : decoded.body_offset[row] + decoded.body_bytes[row]],
        )
        for row in range(len(decoded))
    ]


@given(DATAGRAMS, st.sampled_from([b"", b"\xff\xff\xff"]))
def test_columns_agree_with_the_scalar_decoder_on_every_input(datagrams: list[bytes], gap: bytes) -> None:
    assert by_columns(datagrams, gap) == [scalar(data) for data in datagrams]


@given(RANDOM | FLAGGED | LEGAL | TRUNCATED)
def test_encode_gives_back_whatever_decode_accepts(data: bytes) -> None:
    if scalar(data)[1]:
        with pytest.raises(MalformedDatagram, match=f"{scalar(data)[1]}: found .+, expected .+"):
            wire.decode(data)
    else:
        assert wire.encode(wire.decode(data)) == data
        assert wire.decode(memoryview(bytearray(data))) == wire.decode(data)


def test_every_flag_byte_is_judged_as_the_table_says() -> None:
    accepted = {0, IMP, REQ, REQ | ASY, ACK, ACK | REQ, ACK | REQ | ASY, IMP | ACK}
    accepted |= {SYN, SYN | ACK, FIN, HBT, HBT | ACK}
    judged = {flag: scalar(wire.datagram(1, 1, 0, flag))[1] for flag in range(256)}
    assert judged == {flag: "" if flag in accepted else "bad_flag" for flag in range(256)}


@pytest.mark.parametrize("flag", wire.CONTROL_FLAGS)
def test_a_control_packet_with_a_body_is_malformed(flag: int) -> None:
    assert scalar(wire.datagram(1, 1, 0, flag, b"x"))[1] == "control_with_body"


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
        wire.encode(wire.Important(index=index + place, session_id=session_id, body=body))
        for place, body in enumerate(bodies)
    )
    assert wire.bodies(run, 13 + len(bodies[0])) == tuple(bodies)


@given(st.integers(1, (1 << 32) - 50), st.integers(1, (1 << 32) - 50), st.integers(1, 40))
def test_acknowledgements_are_encoded_as_their_packets_are(index: int, ack_index: int, count: int) -> None:
    acks = columns.encode_acks(index, 7, ack_index, count)
    assert acks == b"".join(
        wire.encode(wire.ImportantAck(index=index + place, session_id=7, ack_index=ack_index + place))
        for place in range(count)
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
    index: int, ack_index: int, count: int, flag: int, size: int, place: int, byte: int, damage: int
) -> None:
    rows = [bytearray(wire.datagram(index + row, 7, ack_index + row, flag, bytes(size))) for row in range(count)]
    whole = b"".join(rows)
    assert columns.stretches(whole, 13 + size) == [wire.Stretch(0, count, index, 7, ack_index, flag)]
    rows[place % count][byte] ^= damage
    found = wire.one_stretch(b"".join(rows) + b"tail"[: size + 1], 13 + size)
    assert found is None or [found] == columns.stretches(b"".join(rows), 13 + size)


@pytest.mark.parametrize("index", [1, 200, 0x1FF, 0xFFFE80])
def test_one_stretch_is_seen_across_a_carry(index: int) -> None:
    data = b"".join(wire.datagram(index + row, 7, 9 + row, IMP | ACK) for row in range(64))
    assert wire.one_stretch(data, 13) == wire.Stretch(0, 64, index, 7, 9, IMP | ACK)
