"""pydevts bytes: one encoding per value, a total decoder, and columns that agree with it."""

from __future__ import annotations

from zlib import crc32

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.core.errors import MalformedDatagram
from fairway.core.machine import split
from fairway.protocols.pydevts import wire
from fairway.protocols.pydevts.columns import decode_columns

BODIES = st.binary(max_size=40)
U16 = st.integers(0, 0xFFFF)
U32 = st.integers(0, 0xFFFFFFFF)
PACKETS = st.builds(wire.Packet, success=st.integers(0, 1), message_id=U16, crc=U32, body=BODIES)
CONTROLS = st.one_of(
    st.builds(wire.Ack, success=st.integers(0, 1), message_id=U16, crc=U32),
    st.builds(wire.Close, success=st.integers(0, 1), message_id=U16, crc=U32),
)


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A good datagram, cut, stretched or with a changed byte."""
    data = bytearray(wire.encode(draw(st.one_of(PACKETS, CONTROLS))))
    data[draw(st.integers(0, 1))] = draw(st.integers(0, 5))
    cut = draw(st.integers(0, len(data)))
    return bytes(data[:cut]) + draw(st.binary(max_size=3))


DATAGRAMS = st.one_of(PACKETS.map(wire.encode), CONTROLS.map(wire.encode), mutated(), st.binary(max_size=24))


@given(st.one_of(PACKETS, CONTROLS))
def test_what_is_encoded_decodes_to_the_same_value(packet: wire.AnyPacket) -> None:
    assert wire.decode(wire.encode(packet)) == packet


def decoded(data: bytes) -> wire.AnyPacket | MalformedDatagram:
    """Return the packet or the error."""
    try:
        return wire.decode(memoryview(data))
    except MalformedDatagram as malformed:
        return malformed


@given(DATAGRAMS)
def test_what_is_decoded_encodes_to_the_same_bytes(data: bytes) -> None:
    packet = decoded(data)
    if isinstance(packet, MalformedDatagram):
        assert packet.reason in wire.REASONS[1:]
        assert packet.found in str(packet)
    else:
        assert wire.encode(packet) == data


@given(st.lists(DATAGRAMS, max_size=12), st.binary(max_size=9))
def test_columns_agree_with_the_scalar_decoder_on_every_input(datagrams: list[bytes], gap: bytes) -> None:
    offsets, buffer = [], bytearray()
    for data in datagrams:
        buffer += gap
        offsets.append(len(buffer))
        buffer += data
    lengths = np.array([len(data) for data in datagrams], dtype=np.int64)
    table = decode_columns(np.frombuffer(bytes(buffer), np.uint8), np.array(offsets, dtype=np.int64), lengths)
    assert (table.kinds, table.reasons, len(table)) == (wire.KINDS, wire.REASONS, len(datagrams))
    for row, data in enumerate(datagrams):
        fields = {name: int(column[row]) for name, column in table.fields.items()}
        start, size = int(table.body_offset[row]), int(table.body_bytes[row])
        packet = decoded(data)
        if isinstance(packet, MalformedDatagram):
            assert wire.KINDS[table.kind[row]] == "malformed"
            assert wire.REASONS[table.reason[row]] == packet.reason
            assert (fields, size) == ({"success": 0, "message_id": 0, "crc": 0}, 0)
            continue
        assert wire.KINDS[table.kind[row]] == type(packet).__name__.lower()
        assert wire.REASONS[table.reason[row]] == ""
        assert fields == {"success": packet.success, "message_id": packet.message_id, "crc": packet.crc}
        assert bytes(buffer[start : start + size]) == getattr(packet, "body", b"")


def test_a_datagram_over_what_udp_carries_is_malformed_alone_and_in_columns() -> None:
    data = bytes(wire.BODY_BYTES_MAX + wire.HEADER_BYTES + 1)
    with pytest.raises(MalformedDatagram, match="too_long"):
        wire.decode(data)
    table = decode_columns(np.frombuffer(data, np.uint8), np.array([0]), np.array([len(data)]))
    assert wire.REASONS[table.reason[0]] == "too_long"
    assert isinstance(wire.decode(data[:-1]), wire.Packet)


def run_of(first: int, bodies: list[bytes]) -> bytes:
    keys = [wire.key((first + place) & 0xFFFF, crc32(body)) for place, body in enumerate(bodies)]
    return wire.packets(keys, bodies)


def test_packets_join_and_part_as_they_are_alone() -> None:
    bodies = [bytes([number]) * 5 for number in range(4)]
    data = run_of(0xFFFE, bodies)
    for place, datagram in enumerate(split(data, 13)):
        packet = wire.Packet(
            success=0, message_id=(0xFFFE + place) & 0xFFFF, crc=crc32(bodies[place]), body=bodies[place]
        )
        assert wire.decode(datagram) == packet
    run = wire.packet_run(data, 13)
    assert run is not None
    assert run.bodies == bodies
    acks = wire.controls(run.keys, wire.TYPE_ACK)
    assert [wire.decode(ack) for ack in split(acks, 8)] == [
        wire.Ack(success=0, message_id=key >> 32, crc=key & 0xFFFFFFFF) for key in run.keys
    ]
    assert wire.control_keys(acks, wire.TYPE_ACK) == run.keys


@pytest.mark.parametrize("place", range(13))
def test_a_run_with_one_changed_byte_is_no_run(place: int) -> None:
    data = bytearray(run_of(7, [bytes([number]) * 5 for number in range(4)]))
    data[2 * 13 + place] ^= 1
    assert wire.packet_run(bytes(data), 13) is None


@pytest.mark.parametrize("place", [0, 1])
def test_controls_of_another_kind_or_success_are_no_run(place: int) -> None:
    acks = bytearray(wire.controls([1, 2, 3], wire.TYPE_ACK))
    acks[8 + place] = 3
    assert wire.control_keys(acks, wire.TYPE_ACK) is None
    assert wire.control_keys(bytes(9), wire.TYPE_ACK) is None
