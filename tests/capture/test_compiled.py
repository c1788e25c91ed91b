"""Compiled loops agree with what they stand for, byte by byte."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from random import Random
from zlib import crc32

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.capture.columns.crcs import crcs, crcs_of_rest
from fairway.capture.columns.merging import may_be_merged
from fairway.capture.merged import SHORTEST, segment_bytes
from fairway.core.columns import Bytes

RUP_ID, OTHER_ID = b"0123456789abcdef" * 2, b"fedcba9876543210" * 2
HEADS = st.sampled_from(
    [
        b"MRP\x03\0\0\0\x07",
        b"MRP\x04\0\0\0\x07\0\0\0\x01",
        b"d\0" + RUP_ID + b"\1\1\1\1\1\1\1\1",
        b"d\1" + RUP_ID + b"\1\1\1\1\1\1\1\1",
        b"d\0" + OTHER_ID + b"\1\1\1\1\1\1\1\1",
        b"c" + RUP_ID + b"\0\1\1\1\1",
        b"c" + OTHER_ID + b"\0\1\1\1\1",
        b"r" + RUP_ID + b"\0\1\1\1\1",
        b"\1\0\0\x05\0\0\0\0",
        b"\3\1\0\x06\0\0\0\0",
        b"\0\0\0\x01\0\0\0\x09\0\0\0\0\x02",
        b"\0\0\0\x02\0\0\0\x09\0\0\0\0\x02",
        b"d\0\0\x02\0\0\0\x09\0\0\0\0\x02",
        b"d\0\0\x03\0\0\0\x09\0\0\0\0\x02",
    ]
)


@st.composite
def pydevts_packets(draw: st.DrawFn) -> bytes:
    body = draw(st.binary(min_size=1, max_size=24))
    return bytes((0, draw(st.integers(0, 1)), 0, draw(st.integers(1, 3)))) + crc32(body).to_bytes(4) + body


PIECES = st.one_of(
    HEADS, st.binary(max_size=40), pydevts_packets(), st.tuples(HEADS, st.binary(max_size=9)).map(b"".join)
)


def as_array(data: bytes) -> Bytes:
    return np.frombuffer(data, dtype=np.uint8)


@given(st.binary(max_size=300), st.lists(st.tuples(st.integers(0, 300), st.integers(0, 300)), max_size=10))
def test_crcs_are_those_of_zlib(data: bytes, edges: list[tuple[int, int]]) -> None:
    spans = [sorted((min(one, len(data)), min(other, len(data)))) for one, other in edges]
    starts, ends = np.array([*spans, [0, 0]], dtype=np.int64).T
    assert crcs(as_array(data), starts, ends).tolist() == [crc32(data[start:end]) for start, end in spans] + [0]


@given(st.lists(PIECES, min_size=1, max_size=6), st.binary(max_size=20), st.booleans())
def test_whatever_is_merged_is_suspected(pieces: list[bytes], around: bytes, same_size: bool) -> None:
    if same_size:
        size = max(map(len, pieces))
        pieces = [piece.ljust(size, b"\x07") for piece in pieces]
    payload = b"".join(pieces).ljust(SHORTEST, b"\0")
    buffer = as_array(around + payload + around)
    start = np.array([len(around)])
    suspected = bool(may_be_merged(buffer, start, start + len(payload))[0])
    assert suspected or segment_bytes(payload) == 0


def rup_part(first: int, identity: bytes, body: bytes) -> bytes:
    return bytes((ord("d"), first)) + identity + b"\1\1\1\1\1\1\1\1" + body


def udpc_packet(index: int, session: int, body: bytes) -> bytes:
    return index.to_bytes(4) + session.to_bytes(4) + bytes(4) + b"\x02" + body


UDPC_BODY = bytes(range(60, 90))

MERGED = {
    "a part, and a confirm of another message": rup_part(1, RUP_ID, b"x" * 20) + b"c" + OTHER_ID + b"\0\1\1\1\1",
    "a part, and a request of another message": rup_part(0, RUP_ID, b"x" * 20) + b"r" + OTHER_ID + b"\0\1\1\1\1",
    "parts of two messages": rup_part(0, RUP_ID, b"x" * 20) + rup_part(0, OTHER_ID, b"y" * 20),
    "the first part, and one of another message": rup_part(1, RUP_ID, b"x" * 20) + rup_part(0, OTHER_ID, b"y" * 20),
    "udpc whose index begins like a part": udpc_packet(0x64000001, 9, UDPC_BODY)
    + udpc_packet(0x64000002, 9, b"z" * 30),
    "udpc whose index begins like a confirm": udpc_packet(0x63000001, 9, bytes(30))
    + udpc_packet(0x63000002, 9, b"z" * 30),
}


@pytest.mark.parametrize("name", MERGED)
def test_each_kind_of_second_datagram_is_suspected(name: str) -> None:
    payload = MERGED[name]
    assert segment_bytes(payload), "else the example shows nothing"
    assert may_be_merged(as_array(payload), np.array([0]), np.array([len(payload)]))[0]


def test_what_was_kept_and_damaged_is_compiled_again(tmp_path: Path) -> None:
    """A machine that lost power while it wrote leaves files of no bytes."""
    program = (
        "import numpy as np\nfrom fairway.capture.columns.crcs import crcs\n"
        "print(crcs(np.frombuffer(b'abc', dtype=np.uint8), np.array([0]), np.array([3]))[0])"
    )
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    for _ in range(2):
        ran = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
        )
        assert int(ran.stdout) == crc32(b"abc")
        kept = list(tmp_path.rglob("*.nbi"))
        assert kept
        for index in kept:
            index.write_bytes(b"")


def test_nothing_behind_a_payload_is_looked_at() -> None:
    """A second datagram that begins behind the end is somebody else's."""
    head = b"MRP\x03\0\0\0\x07" + bytes(8)
    buffer = as_array(head + head)
    assert not may_be_merged(buffer, np.array([0]), np.array([len(head)]))[0]
    assert may_be_merged(buffer, np.array([0]), np.array([2 * len(head)]))[0]


def test_the_crc_of_the_rest_is_that_of_its_bytes() -> None:
    random = Random(4)
    messages = [random.randbytes(random.choice((42, 64, 1_400, 65_507))) for _ in range(200)]
    headers = [random.randrange(43) for _ in messages]
    pairs = list(zip(messages, headers, strict=True))
    found = crcs_of_rest(
        np.array([crc32(message) for message in messages]),
        np.array([crc32(message[:header]) for message, header in pairs]),
        np.array([len(message) - header for message, header in pairs]),
    )
    assert found.tolist() == [crc32(message[header:]) for message, header in pairs]
