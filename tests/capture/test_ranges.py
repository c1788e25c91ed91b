"""A capture read in ranges gives the rows of one that is read whole, wherever the cuts fall."""

from __future__ import annotations

import struct
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairway.capture.columns.chains import CHAIN_BYTES
from fairway.capture.columns.ranges import (
    HEAD_BYTES,
    Probe,
    Range,
    cuts,
    form_of,
    joined,
    probe,
    probe_from,
    records,
    walked,
)
from fairway.capture.columns.records import DAMAGES, NO_TIME, Position
from fairway.core.errors import DamagedCapture
from tests.capture.adversaries import CAPTURES, PLAIN, pcap, pcapng

Row = tuple[int, int, int, int, int, int, str, str]


def rows(data: bytes, ranges: list[Range]) -> list[Row]:
    """Return every row as plain values, with the frame's number as a reader counts it."""
    view, form, found = memoryview(data), form_of(data[:HEAD_BYTES]), []
    for part in ranges:
        frame = part.frames_before
        for batch in records(form, view, part):
            numbers = (batch.offset, batch.data_offset, batch.captured, batch.wire_bytes, batch.at_ns)
            columns = [column.tolist() for column in (*numbers, batch.point, batch.damage, batch.counted)]
            for *values, point, damage, counted in zip(*columns, strict=True):
                frame += counted
                found.append((frame, *values, batch.points[point], DAMAGES[damage]))
    return found


def whole(data: bytes) -> list[Row]:
    return rows(data, [Range(form_of(data[:HEAD_BYTES]).start, len(data), 0)])


def in_ranges(data: bytes, edges: list[tuple[int, int]]) -> tuple[list[Range], int]:
    """Cut a capture by guesses that are verified; return the ranges and how many guesses were wrong."""
    view, form = memoryview(data), form_of(data[:HEAD_BYTES])
    wrong = 0

    def again(position: Position, stop: int) -> Probe:
        nonlocal wrong
        wrong += 1
        return probe_from(form, view, position, stop)

    return joined(form.start, [probe(form, view, cut, stop) for cut, stop in edges], again), wrong


@pytest.mark.parametrize("name", CAPTURES)
def test_one_cut_at_any_byte_changes_no_row(name: str) -> None:
    """At each of the first ones, where the heads are, and then at every third: of records of all lengths there are."""
    data = CAPTURES[name]()
    expected = whole(data)
    for cut in [cut for cut in range(1, len(data)) if cut < 200 or cut % 3 == 0]:
        ranges, _ = in_ranges(data, [(0, cut), (cut, len(data))])
        assert rows(data, ranges) == expected, cut


@pytest.mark.parametrize("name", CAPTURES)
def test_any_number_of_ranges_up_to_64_changes_no_row(name: str) -> None:
    data = CAPTURES[name]()
    expected = whole(data)
    for count in (1, 2, 3, 4, 5, 7, 8, 13, 16, 31, 32, 33, 63, 64):
        ranges, _ = in_ranges(data, cuts(0, len(data), -(-len(data) // count)))
        assert rows(data, ranges) == expected, count
        assert (
            rows(data, walked(form_of(data[:HEAD_BYTES]), memoryview(data), cuts(0, len(data), -(-len(data) // count))))
            == expected
        )


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.binary(max_size=60), max_size=8),
    st.lists(st.tuples(st.integers(24, 600), st.binary(min_size=1, max_size=6)), max_size=3),
    st.lists(st.integers(1, 700), min_size=1, max_size=5),
    st.sampled_from([pcap, pcapng]),
)
def test_damage_anywhere_and_cuts_anywhere_change_no_row(
    payloads: list[bytes], damages: list[tuple[int, bytes]], cuts: list[int], write: Callable[[list[bytes]], bytes]
) -> None:
    data = bytearray(write(payloads))
    for position, noise in damages:
        data[position : position + len(noise)] = noise
    edges = [(low, high) for low, high in pairwise(sorted({0, len(data), *(p for p in cuts if p < len(data))}))]
    ranges, _ = in_ranges(bytes(data), edges)
    assert rows(bytes(data), ranges) == whole(bytes(data))


@pytest.mark.parametrize("name", CAPTURES)
def test_every_byte_is_accounted_for(name: str) -> None:
    """A record or a gap ends where the next begins, and the last at the end of the file."""
    data = CAPTURES[name]()
    found = whole(data)
    if data[:4] == b"\n\r\r\n":
        gaps = sum(row[4] for row in found if row[7])
        assert gaps <= len(data)
        return
    ends = [row[1] + (row[4] if row[7] else 16 + row[3]) for row in found]
    assert [24, *ends] == [*(row[1] for row in found), len(data)]


@pytest.mark.parametrize("name", ["a damaged length", "a length that is too long"])
def test_a_damaged_length_is_reported_with_its_offset_and_reading_resumes_at_the_next_record(name: str) -> None:
    data = CAPTURES[name]()
    found, sound = whole(data), whole(pcap(PLAIN))
    assert [row for row in found if row[7]] == [
        (1, sound[1][1], sound[1][1], 0, sound[2][1] - sound[1][1], NO_TIME, "", "damaged")
    ]
    assert [row[1:] for row in found if not row[7]] == [row[1:] for number, row in enumerate(sound) if number != 1]


@pytest.mark.parametrize("name", ["pcapng, a damaged block", "pcapng, a block that is too long"])
def test_a_damaged_block_is_reported_and_reading_resumes_at_the_next_block(name: str) -> None:
    found, sound = whole(CAPTURES[name]()), whole(pcapng(PLAIN))
    (lost,) = [row for row in sound if row[1] not in [other[1] for other in found if not other[7]]]
    assert [(row[1], row[7]) for row in found if row[7]] == [(lost[1], "damaged")]


def test_a_file_that_ends_inside_a_record_says_so() -> None:
    data = CAPTURES["truncated tail"]()
    last = whole(data)[-1]
    assert last[7] == "file_ends_inside"
    assert last[1] + last[4] == len(data)
    assert whole(CAPTURES["pcapng, truncated tail"]())[-1][7] == "file_ends_inside"


def test_zeros_behind_the_last_record_are_not_records() -> None:
    """As a file has that was made larger beforehand: each 16 of them would pass for an empty record of 1970."""
    data = pcap(PLAIN)
    assert whole(data + bytes(160))[:-1] == whole(data)
    assert whole(data + bytes(160))[-1][4:] == (160, NO_TIME, "", "damaged")


def test_an_honest_guess_is_right_and_a_capture_in_a_payload_needs_a_second_walk() -> None:
    """Otherwise every range is read twice, or the verification has never been seen at work."""
    long = pcap([bytes(200)] * 3_000)
    ranges, wrong = in_ranges(long, cuts(0, len(long), len(long) // 16))
    assert (len(ranges), wrong) == (17, 0)
    inside = pcap([CAPTURES["plain"]()[24:] * 40] * 12)
    assert any(in_ranges(inside, [(0, cut), (cut, len(inside))])[1] for cut in range(200, len(inside), 997))


def test_a_capture_in_one_datagram_does_not_pass_for_the_one_around_it() -> None:
    """The chain is longer than a datagram; only very many small records in one payload would be believed."""
    payload = pcap([bytes(1_400)] * 40)[24:] + b"behind it"
    data = bytearray(pcap([payload, *([bytes(900)] * 200)]))
    assert len(data) > 2 * CHAIN_BYTES
    struct.pack_into("<I", data, 24 + 8, 0x7FFFFFFF)
    second = 24 + 16 + 28 + len(payload)
    assert [row[:2] for row in whole(bytes(data))][:2] == [(0, 24), (1, second)]


def test_a_section_knows_its_own_interfaces_in_whichever_range_it_is() -> None:
    data = CAPTURES["pcapng, two sections"]()
    ranges, _ = in_ranges(data, cuts(0, len(data), 100))
    assert {row[6] for row in rows(data, ranges)} == {"client", "server", "third", "fourth", "fifth"}
    assert len(ranges) > 8


@pytest.mark.parametrize(
    ("head", "sentence"),
    [
        (b"", "is empty"),
        (b"\x89PNG\r\n\x1a\n" + bytes(30), "89504e47"),
        (b"\xd4\xc3\xb2\xa1\2\0", "in the middle of its header"),
        (b"\n\r\r\n" + bytes(20), "section header"),
    ],
)
def test_what_is_no_capture_is_refused_in_a_sentence(head: bytes, sentence: str) -> None:
    with pytest.raises(DamagedCapture, match=sentence):
        form_of(head)
