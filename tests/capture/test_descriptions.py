"""The packet descriptions read every datagram as the protocols' own decoders do."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.capture.dissectors import DESCRIPTIONS, Description
from fairway.core.errors import MalformedDatagram
from fairway.protocols import NAMES, wire
from fairway.protocols.mrp import wire as mrp
from fairway.protocols.pydevts import wire as pydevts
from fairway.protocols.rup import wire as rup
from fairway.protocols.udpc import wire as udpc
from tests.capture.described import read

ID = "0123456789abcdef" * 2
SAMPLES = {
    "udpc": [
        udpc.datagram(7, 0x0A0B0C0D, 3, flag, b"" if flag in udpc.CONTROL_FLAGS else b"hi")
        for flag in udpc.KIND_OF_FLAG
    ],
    "mrp": [
        mrp.encode(mrp.Ignore(body=b"?")),
        mrp.encode(mrp.Connect(ver=1, cl_conid=65_536)),
        mrp.encode(mrp.ConReply(stat=mrp.ACCEPT, cl_conid=1, sv_conid=7, fill=9)),
        mrp.encode(mrp.ConReply(stat=mrp.REJECT, cl_conid=1, sv_conid=0)),
        mrp.encode(mrp.StampedData(dest_conid=70_000, from_conid=1, sequence=2, stamp=0xBEEF, body=b"hi")),
        mrp.encode(mrp.PiggybackData(from_conid=1, dest_conid=7, sequence=2, from_seq=3, body=b"hi")),
        mrp.encode(mrp.PiggybackData(from_conid=1, dest_conid=7, sequence=2, from_seq=3, body=b"")),
        mrp.encode(mrp.Ack(dest_conid=1, from_conid=7, sequence=2, stamp=5)),
    ],
    "rup": [
        rup.encode(rup.Data(start=True, id=ID, position=0, total=8_150, body=b"hello")),
        rup.encode(rup.Data(start=False, id=ID, position=rup.UINT_MAX, total=rup.UINT_MAX, body=b"")),
        rup.encode(rup.Request(id=ID, position=1_024)),
        rup.encode(rup.Confirm(id=ID, position=4_096)),
    ],
    "pydevts": [
        pydevts.encode(pydevts.Packet(success=1, message_id=0x1234, crc=0x3610A686, body=b"hello")),
        pydevts.encode(pydevts.Ack(success=0, message_id=1, crc=2)),
        pydevts.encode(pydevts.Close(success=0, message_id=1, crc=2)),
    ],
}
DESCRIBED = {description.protocol: description for description in DESCRIPTIONS}


def kind_of(packet: object) -> str:
    """Return the kind of a decoded packet: where it does not say, its class in small letters."""
    name: str = getattr(packet, "kind", type(packet).__name__).removeprefix("Stamped").removeprefix("Piggyback")
    return re.sub(r"(?<!^)([A-Z])", r"_\1", name).lower()


def agree(description: Description, datagram: bytes, packet: Any, layout: str | None = None) -> None:
    """Compares what the description reads with a decoded packet, or with None for a malformed datagram."""
    reading = read(description, datagram, layout)
    if packet is None:
        assert reading is None
        return
    assert reading is not None
    assert reading.form.kind == kind_of(packet)
    for field in fields(packet):
        if field.name == "body":
            assert reading.body == packet.body
        else:
            assert reading.values[field.name] == getattr(packet, field.name)


def check(protocol: str, datagram: bytes) -> None:
    description = DESCRIBED[protocol]
    try:
        packet = wire(protocol).decode(datagram)
    except MalformedDatagram:
        packet = None
    if isinstance(packet, mrp.Data):
        agree(description, datagram, packet.as_stamped(), "stamped")
        agree(description, datagram, packet.as_piggyback(), "piggyback")
    else:
        agree(description, datagram, packet)


def test_every_protocol_is_described() -> None:
    assert tuple(DESCRIBED) == NAMES


@pytest.mark.parametrize("protocol", NAMES)
def test_every_kind_of_packet_is_described_and_read_as_the_decoder_does(protocol: str) -> None:
    for datagram in SAMPLES[protocol]:
        check(protocol, datagram)
    readings = [read(DESCRIBED[protocol], datagram) for datagram in SAMPLES[protocol]]
    kinds = {reading.form.kind for reading in readings if reading is not None}
    assert kinds == set(wire(protocol).KINDS) - {"malformed"}


@given(
    protocol=st.sampled_from(NAMES),
    sample=st.integers(0, 100),
    edits=st.lists(st.tuples(st.integers(0, 50), st.integers(0, 255)), max_size=4),
    cut=st.one_of(st.none(), st.integers(0, 60)),
    extra=st.binary(max_size=3),
)
def test_a_damaged_datagram_is_judged_as_the_decoder_judges_it(
    protocol: str, sample: int, edits: list[tuple[int, int]], cut: int | None, extra: bytes
) -> None:
    datagram = bytearray(SAMPLES[protocol][sample % len(SAMPLES[protocol])])
    for place, byte in edits:
        datagram[place % len(datagram)] = byte
    check(protocol, bytes(datagram[:cut]) + extra)
