"""mrp bytes: decoding is total, encoding gives the bytes back, and columns agree with single datagrams."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fairway.core.columns import Columns
from fairway.core.errors import MalformedDatagram
from fairway.core.machine import Buffer
from fairway.protocols.mrp import wire
from fairway.protocols.mrp.columns import decode_columns

u8, u16, u24 = (st.integers(0, (1 << bits) - 1) for bits in (8, 16, 24))
conid = st.one_of(st.integers(0, 3), u24)
short_conid = st.one_of(st.integers(0, 3), u16)
body = st.binary(max_size=24)
packets = st.one_of(
    st.builds(wire.Ignore, body=body),
    st.builds(wire.Connect, ver=u8, cl_conid=conid),
    st.builds(wire.ConReply, stat=st.integers(0, 4), fill=u8, cl_conid=conid, sv_conid=conid),
    st.builds(wire.StampedData, dest_conid=conid, from_conid=conid, sequence=u16, stamp=u16, body=body),
    st.builds(
        wire.PiggybackData, from_conid=short_conid, dest_conid=short_conid, sequence=u16, from_seq=u16, body=body
    ),
    st.builds(wire.Ack, dest_conid=conid, from_conid=conid, sequence=u16, stamp=u16),
)


@st.composite
def datagrams(draw: st.DrawFn) -> bytes:
    """Draws a datagram: whole, cut short, lengthened, damaged in one byte, or random."""
    data = wire.encode(draw(packets))
    match draw(st.integers(0, 5)):
        case 0:
            return data[: draw(st.integers(0, len(data)))]
        case 1:
            return data + draw(st.binary(min_size=1, max_size=3))
        case 2:
            place = draw(st.integers(0, len(data) - 1))
            return data[:place] + bytes([draw(u8)]) + data[place + 1 :]
        case 3:
            return draw(st.one_of(st.binary(max_size=30), st.binary(max_size=30).map(lambda rest: b"MRP" + rest)))
        case _:
            return data


def table_of(parts: list[bytes], gap: int) -> tuple[Columns, bytes]:
    """Decodes datagrams that lie in one buffer with some bytes between them."""
    filler = b"\xa5" * gap
    buffer = filler + filler.join(parts)
    lengths = np.array([len(part) for part in parts], dtype=np.int64)
    offsets = np.cumsum(np.concatenate(([gap], lengths[:-1] + gap))).astype(np.int64)
    return decode_columns(np.frombuffer(buffer, dtype=np.uint8), offsets, lengths), buffer


def expected_row(data: bytes) -> dict[str, object]:
    """Return what the columns must say of a datagram, from the single decoder."""
    try:
        packet = wire.decode(data)
    except MalformedDatagram as malformed:
        return {"kind": "malformed", "reason": malformed.reason, "body": b""}
    row: dict[str, object] = {"reason": "", "body": b""}
    match packet:
        case wire.Ignore():
            row |= {"kind": "ignore", "body": packet.body}
        case wire.Connect():
            row |= {"kind": "connect", "ver": packet.ver, "cl_conid": packet.cl_conid}
        case wire.ConReply():
            row |= {"kind": "con_reply", "stat": packet.stat, "fill": packet.fill}
            row |= {"cl_conid": packet.cl_conid, "sv_conid": packet.sv_conid}
        case wire.Ack():
            row |= {"kind": "ack", "dest_conid": packet.dest_conid, "from_conid": packet.from_conid}
            row |= {"sequence": packet.sequence, "stamp": packet.stamp}
        case wire.Data():
            row |= {"kind": "data", **readings(packet)}
    return row


def readings(packet: wire.Data) -> dict[str, object]:
    row: dict[str, object] = {}
    piggyback, stamped = packet.as_piggyback(), packet.as_stamped()
    if piggyback is not None:
        row |= {"piggyback": 1, "piggyback_body_bytes": len(piggyback.body), "from_seq": piggyback.from_seq}
        row |= {"piggyback_from_conid": piggyback.from_conid, "piggyback_dest_conid": piggyback.dest_conid}
        row |= {"piggyback_sequence": piggyback.sequence, "body": piggyback.body}
    if stamped is not None:
        row |= {"stamped": 1, "dest_conid": stamped.dest_conid, "from_conid": stamped.from_conid}
        row |= {"sequence": stamped.sequence, "stamp": stamped.stamp, "body": stamped.body}
    return row


@settings(max_examples=600, deadline=None)
@given(st.lists(datagrams(), min_size=1, max_size=12), st.integers(0, 20))
def test_columns_agree_with_the_single_decoder_on_every_input(parts: list[bytes], gap: int) -> None:
    table, buffer = table_of(parts, gap)
    for row, data in enumerate(parts):
        expected = expected_row(data)
        start = int(table.body_offset[row])
        assert wire.KINDS[table.kind[row]] == expected["kind"]
        assert wire.REASONS[table.reason[row]] == expected["reason"]
        assert buffer[start : start + int(table.body_bytes[row])] == expected["body"]
        for name, column in table.fields.items():
            assert int(column[row]) == expected.get(name, 0), (name, data.hex())


def judged(data: Buffer) -> wire.Packet | str:
    """Return the packet, or why there is none."""
    try:
        return wire.decode(data)
    except MalformedDatagram as malformed:
        return str(malformed)


@given(datagrams())
def test_whatever_decode_accepts_encode_gives_back(data: bytes) -> None:
    for form in (data, bytearray(data), memoryview(data)):
        packet = judged(form)
        if isinstance(packet, str):
            assert packet.split(":")[0] in wire.REASONS[1:]
            assert ": found " in packet
        else:
            assert wire.encode(packet) == data


@given(packets)
def test_a_reading_of_encoded_data_is_the_packet_that_was_encoded(packet: wire.Encodable) -> None:
    if not isinstance(packet, wire.StampedData | wire.PiggybackData) or not packet.dest_conid or not packet.from_conid:
        return
    read = wire.decode(wire.encode(packet))
    assert isinstance(read, wire.Data)
    assert packet in (read.as_stamped(), read.as_piggyback())


def test_an_empty_batch_of_datagrams_gives_empty_columns() -> None:
    nothing = np.zeros(0, dtype=np.int64)
    table = decode_columns(np.zeros(0, dtype=np.uint8), nothing, nothing)
    assert len(table) == 0


def test_more_rows_than_one_chunk_are_decoded_alike() -> None:
    parts = [wire.encode(wire.Ack(dest_conid=n + 1, from_conid=7, sequence=n % 65_536, stamp=3)) for n in range(9_000)]
    table, _ = table_of(parts, 0)
    assert table.fields["dest_conid"].tolist() == list(range(1, 9_001))
    assert set(table.kind.tolist()) == {wire.KINDS.index("ack")}


def test_a_repeat_differs_in_its_stamp_or_from_seq_alone() -> None:
    stamped = wire.encode(wire.StampedData(dest_conid=7, from_conid=1, sequence=5, stamp=9, body=b"hi"))
    assert wire.restamped(stamped, 0xBEEF).hex() == "4d5250030000070000010005beef6869"
    piggyback = wire.encode(wire.PiggybackData(from_conid=1, dest_conid=7, sequence=5, from_seq=9, body=b"hi"))
    assert wire.with_from_seq(piggyback, 0xBEEF).hex() == "4d525003000100070005beef6869"
