"""Compiled loops agree with what they stand for, byte by byte."""

from __future__ import annotations

from zlib import crc32

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fairway.capture.columns.crcs import crcs
from fairway.capture.columns.merging import may_be_merged
from fairway.capture.merged import SHORTEST, segment_bytes
from fairway.core.columns import Bytes

RUP_ID = b"0123456789abcdef" * 2
HEADS = st.sampled_from(
    [
        b"MRP\x03\0\0\0\x07",
        b"MRP\x04\0\0\0\x07\0\0\0\x01",
        b"d\0" + RUP_ID + b"\1\1\1\1\1\1\1\1",
        b"d\1" + RUP_ID + b"\1\1\1\1\1\1\1\1",
        b"c" + RUP_ID + b"\0\1\1\1\1",
        b"r" + RUP_ID + b"\0\1\1\1\1",
        b"\1\0\0\x05\0\0\0\0",
        b"\3\1\0\x06\0\0\0\0",
        b"\0\0\0\x01\0\0\0\x09\0\0\0\0\x02",
        b"\0\0\0\x02\0\0\0\x09\0\0\0\0\x02",
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
def test_crcs_are_those_of_zlib(data: bytes, places: list[tuple[int, int]]) -> None:
    spans = [sorted((min(one, len(data)), min(other, len(data)))) for one, other in places]
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


def test_nothing_behind_a_payload_is_looked_at() -> None:
    """A second datagram that begins behind the end is somebody else's."""
    head = b"MRP\x03\0\0\0\x07" + bytes(8)
    buffer = as_array(head + head)
    assert not may_be_merged(buffer, np.array([0]), np.array([len(head)]))[0]
    assert may_be_merged(buffer, np.array([0]), np.array([2 * len(head)]))[0]
