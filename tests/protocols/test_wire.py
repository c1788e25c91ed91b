"""Bytes of all protocols: decoding is total, encoding returns the bytes, and columns agree with single datagrams."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairway.core.errors import MalformedDatagram
from fairway.protocols import NAMES, columns
from fairway.protocols.mrp import wire as mrp
from fairway.protocols.pydevts import wire as pydevts
from fairway.protocols.rup import wire as rup
from fairway.protocols.udpc import wire as udpc

u8, u16, u24, u32 = (st.integers(0, (1 << bits) - 1) for bits in (8, 16, 24, 32))
bit = st.integers(0, 1)
body = st.binary(max_size=40)
conid = st.integers(0, 3) | u24
short_conid = st.integers(0, 3) | u16
identity = st.integers(0, 2**128 - 1).map(lambda value: f"{value:032x}")
digits = st.integers(0, rup.UINT_MAX) | st.sampled_from([0, 254, 255, 255**2 - 1, 255**3, rup.UINT_MAX])

STAMPED = st.builds(mrp.StampedData, dest_conid=conid, from_conid=conid, sequence=u16, stamp=u16, body=body)
PIGGYBACK = st.builds(
    mrp.PiggybackData, from_conid=short_conid, dest_conid=short_conid, sequence=u16, from_seq=u16, body=body
)
ENCODED: dict[str, st.SearchStrategy[bytes]] = {
    "udpc": st.builds(
        udpc.datagram, u32, u32, u32, st.sampled_from(sorted(udpc.KIND_OF_FLAG)) | u8, body | st.just(b"")
    ),
    "mrp": st.one_of(
        st.builds(mrp.Ignore, body=body),
        st.builds(mrp.Connect, ver=u8, cl_conid=conid),
        st.builds(mrp.ConReply, stat=st.integers(0, 4), fill=u8, cl_conid=conid, sv_conid=conid),
        STAMPED,
        PIGGYBACK,
        st.builds(mrp.Ack, dest_conid=conid, from_conid=conid, sequence=u16, stamp=u16),
    ).map(mrp.encode),
    "rup": st.one_of(
        st.builds(rup.Data, start=st.booleans(), id=identity, position=digits, total=digits, body=body),
        st.builds(rup.Request, id=identity, position=digits),
        st.builds(rup.Confirm, id=identity, position=digits),
    ).map(rup.encode),
    "pydevts": st.one_of(
        st.builds(pydevts.Packet, success=bit, message_id=u16, crc=u32, body=body),
        st.builds(pydevts.Ack, success=bit, message_id=u16, crc=u32),
        st.builds(pydevts.Close, success=bit, message_id=u16, crc=u32),
    ).map(pydevts.encode),
}


@st.composite
def datagrams(draw: st.DrawFn, protocol: str) -> bytes:
    """Draw a datagram: whole, truncated, lengthened, damaged in a few bytes, or random."""
    data = bytearray(draw(ENCODED[protocol]))
    match draw(st.integers(0, 6)):
        case 0:
            return bytes(data[: draw(st.integers(0, len(data)))])
        case 1:
            return bytes(data) + draw(st.binary(min_size=1, max_size=3))
        case 2 | 3:
            for _ in range(draw(st.integers(1, 3))):
                data[draw(st.integers(0, len(data) - 1))] = draw(u8 | st.sampled_from([0, 255]))
        case 4:
            return draw(st.binary(max_size=60) | st.binary(max_size=30).map(lambda rest: bytes(data[:3]) + rest))
    return bytes(data)


def judged(protocol: str, data: Any) -> Any:
    """Return the packet, or the error that says why there is none."""
    try:
        return import_module(f"fairway.protocols.{protocol}.wire").decode(data)
    except MalformedDatagram as malformed:
        return malformed


@pytest.mark.parametrize("protocol", NAMES)
@given(drawn=st.data())
def test_whatever_decode_accepts_encode_returns_and_the_rest_has_a_known_reason(
    protocol: str, drawn: st.DataObject
) -> None:
    wire, data = import_module(f"fairway.protocols.{protocol}.wire"), drawn.draw(datagrams(protocol))
    for form in (data, bytearray(data), memoryview(data)):
        packet = judged(protocol, form)
        if isinstance(packet, MalformedDatagram):
            assert packet.reason in wire.REASONS[1:]
            assert str(packet).startswith(f"{packet.reason}: found ")
        else:
            assert wire.encode(packet) == data


def expected(protocol: str, data: bytes) -> dict[str, Any]:
    """Return what the columns must say of a datagram, from the decoder of single ones; what is missing is 0."""
    packet = judged(protocol, data)
    if isinstance(packet, MalformedDatagram):
        return {"kind": "malformed", "reason": packet.reason, "body": b"", "id": b""}
    row = {"reason": "", "body": b"", "kind": type(packet).__name__.lower().replace("conreply", "con_reply")}
    if isinstance(packet, mrp.Data):
        return row | readings(packet)
    row |= {name: getattr(packet, name) for name in dir(packet) if not name.startswith("_")}
    if protocol == "udpc":
        row |= {"kind": udpc.KIND_OF_FLAG[packet.flag]}
    return row | {"id": packet.id.encode()} if protocol == "rup" else row


def readings(packet: mrp.Data) -> dict[str, Any]:
    """Return data of mrp as it reads in both layouts."""
    row: dict[str, Any] = {}
    piggyback, stamped = packet.as_piggyback(), packet.as_stamped()
    if piggyback is not None:
        row |= {"piggyback": 1, "piggyback_body_bytes": len(piggyback.body), "from_seq": piggyback.from_seq}
        row |= {"piggyback_from_conid": piggyback.from_conid, "piggyback_dest_conid": piggyback.dest_conid}
        row |= {"piggyback_sequence": piggyback.sequence, "body": piggyback.body}
    if stamped is not None:
        row |= {"stamped": 1, "dest_conid": stamped.dest_conid, "from_conid": stamped.from_conid}
        row |= {"sequence": stamped.sequence, "stamp": stamped.stamp, "body": stamped.body}
    return row


@pytest.mark.parametrize("protocol", NAMES)
@settings(max_examples=200)
@given(drawn=st.data(), gap=st.binary(max_size=20))
def test_columns_agree_with_the_decoder_of_single_datagrams(protocol: str, drawn: st.DataObject, gap: bytes) -> None:
    parts = drawn.draw(st.lists(datagrams(protocol), max_size=12))
    buffer = b"".join(gap + part for part in parts)
    lengths = np.array([len(part) for part in parts], dtype=np.int64)
    table = columns(protocol).decode_columns(
        np.frombuffer(buffer, np.uint8), np.cumsum(lengths + len(gap)) - lengths, lengths
    )
    assert len(table) == len(parts)
    for row, data in enumerate(parts):
        wanted = expected(protocol, data)
        assert table.kinds[table.kind[row]] == wanted["kind"]
        assert table.reasons[table.reason[row]] == wanted["reason"]
        assert data[len(data) - int(table.body_bytes[row]) :] == wanted["body"]
        for name, column in table.fields.items():
            assert column[row] == wanted.get(name, 0), (name, data.hex())


@given(STAMPED | PIGGYBACK)
def test_a_reading_of_encoded_data_is_the_packet_that_was_encoded(packet: mrp.StampedData | mrp.PiggybackData) -> None:
    if packet.dest_conid and packet.from_conid:
        read = mrp.decode(mrp.encode(packet))
        assert isinstance(read, mrp.Data)
        assert packet in (read.as_stamped(), read.as_piggyback())


def test_a_repeat_differs_in_its_stamp_or_from_seq_alone() -> None:
    stamped = mrp.encode(mrp.StampedData(dest_conid=7, from_conid=1, sequence=5, stamp=9, body=b"hi"))
    assert mrp.renumbered(stamped, mrp.STAMPED_BYTES, 0xBEEF).hex() == "4d5250030000070000010005beef6869"
    piggyback = mrp.encode(mrp.PiggybackData(from_conid=1, dest_conid=7, sequence=5, from_seq=9, body=b"hi"))
    assert mrp.renumbered(piggyback, mrp.PIGGYBACK_BYTES, 0xBEEF).hex() == "4d525003000100070005beef6869"
