"""pydevts bytes: one encoding per value, a total decoder, and columns that agree with it."""

from __future__ import annotations

from zlib import crc32

import numpy as np
import pytest

from fairway.core.errors import MalformedDatagram
from fairway.core.machine import split
from fairway.protocols.pydevts import wire
from fairway.protocols.pydevts.columns import decode_columns


def test_a_datagram_over_what_udp_carries_is_malformed_alone_and_in_columns() -> None:
    data = bytes(wire.BODY_BYTES_MAX + wire.HEADER_BYTES + 1)
    with pytest.raises(MalformedDatagram, match="too_long"):
        wire.decode(data)
    table = decode_columns(np.frombuffer(data, np.uint8), np.array([0]), np.array([len(data)]))
    assert wire.REASONS[table.reason[0]] == "too_long"
    assert isinstance(wire.decode(data[:-1]), wire.Packet)


def run_of(first: int, bodies: list[bytes]) -> bytes:
    keys = [wire.key((first + offset) & 0xFFFF, crc32(body)) for offset, body in enumerate(bodies)]
    return wire.packets(keys, bodies)


def test_packets_join_and_part_as_they_are_alone() -> None:
    bodies = [bytes([number]) * 5 for number in range(4)]
    data = run_of(0xFFFE, bodies)
    for offset, datagram in enumerate(split(data, 13)):
        packet = wire.Packet(
            success=0, message_id=(0xFFFE + offset) & 0xFFFF, crc=crc32(bodies[offset]), body=bodies[offset]
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


@pytest.mark.parametrize("offset", range(13))
def test_a_run_with_one_changed_byte_is_no_run(offset: int) -> None:
    data = bytearray(run_of(7, [bytes([number]) * 5 for number in range(4)]))
    data[2 * 13 + offset] ^= 1
    assert wire.packet_run(bytes(data), 13) is None


@pytest.mark.parametrize("offset", [0, 1])
def test_controls_of_another_kind_or_success_are_no_run(offset: int) -> None:
    acks = bytearray(wire.controls([1, 2, 3], wire.TYPE_ACK))
    acks[8 + offset] = 3
    assert wire.control_keys(acks, wire.TYPE_ACK) is None
    assert wire.control_keys(bytes(9), wire.TYPE_ACK) is None
