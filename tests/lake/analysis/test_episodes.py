"""An episode is one flow at all points, cut where it is silent for too long."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from fairway.core.tables import RECORDS
from fairway.lake.analysis.episodes import SILENCE_NS, are_open, first_of_episodes, numbers_of
from fairway.lake.arrays import Rows
from fairway.lake.captures.files import Capture, Span
from fairway.lake.schemas import arrow_schema

HOUR_NS = 12 * SILENCE_NS
DAY_NS = 24 * HOUR_NS
DAY = {1: Capture("", "", False, Span(0, DAY_NS))}


def rows(*records: tuple[int, int | None], **more: Any) -> Rows:
    """Return records of one file, each a flow and a time."""
    filled = {"file_id": 1, "offset": 0, "frame": 1, "point": "", "frame_bytes": 60, "truncated": False, "undecoded": 0}
    made = [filled | {"flow": flow, "at_ns": at_ns} | more for flow, at_ns in records]
    return Rows(pa.Table.from_pylist(made, schema=arrow_schema(RECORDS)))


def test_a_flow_is_cut_where_it_is_silent_for_more_than_the_limit() -> None:
    found = rows((1, None), (1, 0), (1, SILENCE_NS), (1, 2 * SILENCE_NS + 1), (2, 2 * SILENCE_NS + 2))
    first = first_of_episodes(found)
    assert first.tolist() == [True, True, False, True, True]
    numbers = numbers_of(found, first).tolist()
    assert numbers[1] == numbers[2]
    assert len(set(numbers)) == 4


def test_the_number_of_an_episode_depends_on_its_flow_and_its_beginning_alone() -> None:
    whole, part = rows((1, 5), (1, 9), (2, 5)), rows((1, 5))
    assert numbers_of(whole, first_of_episodes(whole))[0] == numbers_of(part, first_of_episodes(part))[0]


@pytest.mark.parametrize(
    ("first_ns", "last_ns", "is_open"),
    [(0, HOUR_NS, True), (HOUR_NS, DAY_NS, True), (HOUR_NS, 2 * HOUR_NS, False), (SILENCE_NS + 1, HOUR_NS, False)],
)
def test_an_episode_near_an_edge_of_its_capture_is_open(first_ns: int, last_ns: int, is_open: bool) -> None:
    steps = range(first_ns, last_ns, SILENCE_NS)
    found = rows(*((1, at_ns) for at_ns in (*steps, last_ns)))
    first = first_of_episodes(found)
    assert first.sum() == 1
    assert set(are_open(found, first, DAY).tolist()) == {is_open}


def test_what_another_capture_has_continued_is_open_no_more() -> None:
    found = Rows(pa.concat_tables([rows((1, DAY_NS - 5)).table, rows((1, DAY_NS + 5), file_id=2).table]))
    captures = DAY | {2: Capture("", "", False, Span(DAY_NS, 2 * DAY_NS))}
    assert are_open(found, first_of_episodes(found), captures).tolist() == [False, False]


def test_a_record_without_a_datagram_belongs_to_no_open_episode() -> None:
    found = rows((1, 5), undecoded=3)
    assert are_open(found, first_of_episodes(found), DAY).tolist() == [False]
