"""Segments in order: how far a batch goes, and that a gap stops it."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairway.core.layout import segment_name
from fairway.lake.landing import segments
from fairway.lake.landing.segments import DamagedLanding, Segment, ends, groups, newest
from fairway.lake.landing.source import BATCH_BYTES_MAX
from fairway.store.locations import Location


@pytest.fixture
def landing(tmp_path: Path) -> Location:
    return Location(str(tmp_path))


def put(landing: Location, gateway: str, first: int, last: int, size: int = 10) -> Path:
    path = landing.folder / gateway / segment_name(first, last)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes(size))
    return path


def test_a_batch_goes_to_the_newest_segment_of_every_gateway(landing: Location) -> None:
    put(landing, "b", 0, 9)
    put(landing, "b", 10, 14)
    put(landing, "a", 0, 0)
    assert newest(landing, {}) == {"a": 1, "b": 15}
    assert newest(landing, {"a": 1, "b": 10}) == {"a": 1, "b": 15}
    assert list(newest(landing, {})) == ["a", "b"]


def test_a_gateway_without_segments_and_files_with_other_names_change_nothing(landing: Location) -> None:
    (landing.folder / "empty").mkdir()
    put(landing, "a", 0, 9)
    (landing.folder / "a" / ".aside.parquet").write_bytes(b"half")
    assert newest(landing, {}) == {"a": 10}


def test_gateways_take_turns_until_the_batch_is_full(landing: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "SEGMENT_BYTES_MIN", 0)
    for first in range(0, 100, 10):
        put(landing, "a", first, first + 9, size=100)
    put(landing, "b", 0, 9, size=100)
    assert newest(landing, {}, bytes_max=350) == {"a": 30, "b": 10}
    assert newest(landing, {}, bytes_max=1) == {"a": 10, "b": 10}


def test_a_backlog_of_many_small_segments_becomes_several_batches_and_tasks(landing: Location) -> None:
    """Opening one takes time whatever it holds: a stream that is ended every few minutes must get somewhere."""
    for first in range(300):
        put(landing, "a", first, first)
    assert newest(landing, {}, bytes_max=BATCH_BYTES_MAX) == {"a": 256}
    assert newest(landing, {"a": 256}, bytes_max=BATCH_BYTES_MAX) == {"a": 300}
    assert [len(group) for group in groups(landing, {}, {"a": 256})] == [64] * 4


def test_one_pass_ends_with_what_was_there_when_it_began(landing: Location) -> None:
    put(landing, "a", 0, 9)
    target = ends(landing)
    put(landing, "a", 10, 19)
    put(landing, "b", 0, 9)
    assert newest(landing, {}, target=target) == {"a": 10}


def test_a_gap_is_an_error_that_names_the_missing_offsets(landing: Location) -> None:
    put(landing, "a", 0, 9)
    put(landing, "a", 20, 29)
    with pytest.raises(DamagedLanding, match="Offsets 10 to 19 of gateway a are missing"):
        newest(landing, {})


def test_a_missing_beginning_is_a_gap_unless_it_has_landed(landing: Location) -> None:
    put(landing, "a", 10, 19)
    with pytest.raises(DamagedLanding, match="Offsets 0 to 9"):
        newest(landing, {})
    assert newest(landing, {"a": 10}) == {"a": 20}


def test_a_listing_that_shows_a_later_name_before_an_earlier_one_is_taken_again(
    landing: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(landing, "a", 0, 9)
    put(landing, "a", 10, 19)
    whole = segments.listed(landing, "a")
    listings = [whole[1:], whole]
    monkeypatch.setattr(segments, "listed", lambda landing, gateway, since: listings.pop(0))
    assert newest(landing, {}) == {"a": 20}


def test_a_removed_segment_fails_the_batch_that_planned_it(landing: Location) -> None:
    put(landing, "a", 0, 9)
    put(landing, "a", 10, 19).unlink()
    with pytest.raises(DamagedLanding, match="Offsets 10 to 19"):
        groups(landing, {}, {"a": 20})


def test_tasks_get_small_segments_together_and_large_ones_alone(
    landing: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "SEGMENT_BYTES_MIN", 0)
    monkeypatch.setattr(segments, "GROUP_BYTES", 100)
    for first, size in ((0, 40), (10, 60), (20, 150), (30, 10)):
        put(landing, "a", first, first + 9, size)
    put(landing, "b", 0, 9, 80)
    cut = groups(landing, {}, {"a": 40, "b": 10})
    assert [[(s.gateway, s.first) for s in group] for group in cut] == [
        [("a", 0), ("a", 10)],
        [("a", 20)],
        [("a", 30), ("b", 0)],
    ]


def test_a_gateway_that_is_gone_and_has_landed_everything_holds_up_nobody(landing: Location) -> None:
    put(landing, "a", 0, 9)
    cut = groups(landing, {"gone": 70}, {"a": 10, "gone": 70})
    assert [[segment.gateway for segment in group] for group in cut] == [["a"]]


@pytest.mark.parametrize(
    "ranges",
    [
        [(0, 4)],
        [(0, 4), (90, 99)],
        [(90, 99), (92, 99)],
        [(90, 104)],
        [(0, 4), (100, 109)],
    ],
    ids=["all below", "a hole below", "overlapping", "across", "none that ends there"],
)
def test_segments_below_the_position_that_cannot_have_landed_stop_the_stream(
    landing: Location, ranges: list[tuple[int, int]]
) -> None:
    for first, last in ranges:
        put(landing, "a", first, last)
    with pytest.raises(DamagedLanding, match=r"given before \(gateway a has landed up to 99\)"):
        newest(landing, {"a": 100})


def test_segments_that_have_landed_and_join_are_taken_for_what_they_are(landing: Location) -> None:
    for first in range(70, 110, 10):
        put(landing, "a", first, first + 9)
    assert newest(landing, {"a": 100}) == {"a": 110}


def test_a_segment_that_is_removed_while_the_folder_is_listed_is_no_fault(landing: Location) -> None:
    put(landing, "a", 90, 99)
    gone = Segment("a", 70, 79)
    segments.check_landed(landing, "a", 100, [gone, *segments.listed(landing, "a")])
