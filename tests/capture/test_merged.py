"""Datagrams that Linux merged into one are found by their framing, and single ones are left alone."""

from __future__ import annotations

from zlib import crc32

import pytest

from fairway.capture.merged import SHORTEST, segment_bytes
from fairway.protocols import NAMES
from tests.capture.datagrams import Datagram, decode_frame
from tests.capture.reading import read_capture
from tests.lake.captures.traces import simulated

ID = b"0123456789abcdef0123456789abcdef"
SESSION = bytes.fromhex("0a0b0c0d")


def udpc(index: int, flag: int, body: bytes = b"", session: bytes = SESSION) -> bytes:
    return index.to_bytes(4) + session + bytes(4) + bytes([flag]) + body


def mrp(kind: int, sequence: int, body: bytes = b"", destination: int = 7) -> bytes:
    return (
        b"MRP" + bytes([kind]) + destination.to_bytes(3) + (1).to_bytes(3) + sequence.to_bytes(2) + b"\xbe\xef" + body
    )


def rup(position: int, body: bytes) -> bytes:
    return b"d" + bytes([position == 0]) + ID + bytes([position, 0, 0, 0, 90, 0, 0, 0]) + body


def confirm(position: int) -> bytes:
    return b"c" + ID + bytes([0, position, 0, 0, 0])


def pydevts(number: int, body: bytes) -> bytes:
    return bytes([0, 0]) + number.to_bytes(2) + crc32(body).to_bytes(4) + body


def answer(kind: int, number: int) -> bytes:
    return bytes([kind, 0]) + number.to_bytes(2) + crc32(b"x").to_bytes(4)


BATCHES = {
    "udpc messages": [udpc(100 + number, 0x10, b"message %d" % number) for number in range(5)],
    "udpc messages, the last shorter": [udpc(100, 0x10, b"longer"), udpc(101, 0x10, b"short")],
    "udpc acknowledgements": [udpc(100 + number, 0x11) for number in range(4)],
    "mrp messages": [mrp(3, 1 + number, b"body %d" % number) for number in range(3)],
    "mrp acknowledgements": [mrp(4, 1 + number) for number in range(2)],
    "rup parts": [rup(0, b"a" * 30), rup(30, b"b" * 30), rup(60, b"c" * 30)],
    "rup confirms": [confirm(30), confirm(60)],
    "pydevts packets": [pydevts(7 + number, b"body %d" % number) for number in range(6)],
    "pydevts packets that repeat others": [pydevts(7, b"one"), pydevts(19, b"two")],
    "pydevts acknowledgements": [answer(1, number) for number in range(10)],
    "pydevts acknowledgements and closes": [answer(1, 1), answer(3, 1), answer(1, 2)],
}

SINGLES = {
    "one byte again and again": bytes([0x11]) * 300,
    "a pattern": bytes([1, 0, 5, 5, 5, 5, 5, 5]) * 20,
    "a body that holds the session": udpc(100, 0x10, b"text " + SESSION + b" and more text"),
    "a body that holds a datagram of another session": udpc(100, 0x10, b"") + udpc(5, 0x10, b"", b"abcd"),
    "a session of zeros": udpc(100, 0x10, bytes(40), bytes(4)),
    "an index that is far away": udpc(100, 0x10) + udpc(100_000_000, 0x10),
    "a flag that is not used": udpc(100, 0x10) + udpc(101, 0x18),
    "an mrp message about mrp": mrp(3, 1, b"MRP, the protocol, MRP again"),
    "mrp to another connection": mrp(3, 1) + mrp(3, 2, destination=8),
    "a rup part that is too short": rup(0, b"") + rup(30, b"")[:41],
    "a damaged pydevts packet": pydevts(7, b"one")[:-1] + b"x" + pydevts(8, b"two"),
    "half an acknowledgement": answer(1, 1) + answer(1, 2) + answer(1, 3)[:4],
    "zeros": bytes(1_000),
    "text": b"GET / HTTP/1.1\r\nHost: example\r\n\r\n" * 20,
}


@pytest.mark.parametrize("name", BATCHES)
def test_a_batch_is_cut_where_its_datagrams_begin(name: str) -> None:
    batch = BATCHES[name]
    assert segment_bytes(b"".join(batch)) == len(batch[0])
    assert all(segment_bytes(datagram) == 0 for datagram in batch if len(datagram) >= SHORTEST)


@pytest.mark.parametrize("name", SINGLES)
def test_what_is_not_certain_is_left_alone(name: str) -> None:
    assert segment_bytes(SINGLES[name]) == 0


@pytest.mark.parametrize("protocol", NAMES)
def test_no_datagram_of_a_simulated_run_is_cut(protocol: str) -> None:
    datagrams = [decode_frame(frame) for frame in read_capture(simulated(protocol))]
    payloads = [datagram.payload for datagram in datagrams if isinstance(datagram, Datagram)]
    assert len(payloads) > 50
    assert [payload for payload in payloads if len(payload) >= SHORTEST and segment_bytes(payload)] == []
