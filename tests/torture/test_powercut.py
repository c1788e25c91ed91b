"""The power goes at any moment, and what was acknowledged is there when it comes back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from tests.torture.powercut.ground import Ground, sectors
from tests.torture.powercut.landing import Landing, cut_landing, record_landing
from tests.torture.powercut.recording import Recording, record
from tests.torture.powercut.recovery import Moment, cut, draw
from tests.torture.powercut.trace import Cut, Event, Made, Moved, Removed, Synced, Times, Wrote, read

CUTS = [12, pytest.param(40, marks=pytest.mark.long)]
MESSAGES = 25
BATCHES = 25
LAKE = Path("/before/lake")
NOTHING, EVERYTHING = 0, 1_000_000


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    return record(tmp_path_factory.mktemp("recording"), MESSAGES)


@pytest.mark.parametrize("cuts", CUTS)
def test_wherever_the_power_goes_a_gateway_finds_what_it_had_promised(
    recording: Recording, tmp_path: Path, cuts: int
) -> None:
    assert len(recording.ledger.acknowledged_s) > 4 * MESSAGES
    moments = draw(recording.events, cuts, seed=3)
    failures = {str(one): cut(recording, one, tmp_path / str(number)) for number, one in enumerate(moments)}
    assert not any(failures.values()), failures


@pytest.mark.parametrize("unsynced", ["journal.sqlite-wal", "gateway"])
def test_a_gateway_that_did_not_sync_this_would_be_found_out(
    recording: Recording, tmp_path: Path, unsynced: str
) -> None:
    """The journal's log holds the messages; the folder `gateway` of the landing holds the names of segments."""
    forgetful = [event for event in recording.events if not isinstance(event, Synced) or event.path.name != unsynced]
    changed = replace(recording, events=forgetful)
    # At some moments all that was acknowledged is sealed, and nothing depends on the log.
    moments = [Moment(number=len(forgetful) * part // 9, per_million=NOTHING, seed=1) for part in range(1, 9)]
    found = [cut(changed, moment, tmp_path / str(moment.number)) for moment in moments]
    assert any(found)


@pytest.fixture(scope="module")
def landing(tmp_path_factory: pytest.TempPathFactory) -> Landing:
    return record_landing(tmp_path_factory.mktemp("landing"), BATCHES)


@pytest.mark.parametrize("cuts", CUTS)
def test_wherever_the_power_goes_a_stream_finds_what_it_had_landed_and_goes_on(
    landing: Landing, tmp_path: Path, capsys: pytest.CaptureFixture[str], cuts: int
) -> None:
    moments = draw(landing.events, cuts, seed=5)
    failures = {str(one): cut_landing(landing, one, tmp_path / str(number)) for number, one in enumerate(moments)}
    assert not any(failures.values()), failures
    assert len(capsys.readouterr().out.splitlines()) > cuts


@pytest.mark.parametrize("unsynced", [".json", ".parquet", "_delta_log"])
def test_a_stream_that_did_not_sync_this_would_be_found_out(landing: Landing, tmp_path: Path, unsynced: str) -> None:
    """The library syncs nothing: entries of the log, data files, and the names of either are for us to sync."""
    forgetful = [
        event for event in landing.events if not isinstance(event, Synced) or not event.path.name.endswith(unsynced)
    ]
    changed = replace(landing, events=forgetful)
    moments = [Moment(number=len(forgetful) * part // 6, per_million=NOTHING, seed=1) for part in range(1, 6)]
    assert any(cut_landing(changed, moment, tmp_path / str(moment.number)) for moment in moments)


def ground_after(
    events: list[Event], folder: Path, per_million: int = NOTHING, cut_us: int = 1_000
) -> dict[str, bytes]:
    """Follow events, one a microsecond, and read what the cut leaves."""
    ground = Ground(LAKE)
    ground.follow(events, cut_us)
    ground.build(folder, Random(1), per_million)
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def at(us: int) -> Times:
    return {"begin_us": us, "end_us": us}


LAKE_MADE: list[Event] = [Made(path=LAKE, folder=True, **at(0)), Synced(path=LAKE.parent, **at(1))]
ONE = LAKE / "one"
TWO = LAKE / "two"


def test_only_what_was_synced_survives_names_and_bytes(tmp_path: Path) -> None:
    events = [
        *LAKE_MADE,
        Made(path=ONE, **at(2)),
        Wrote(path=ONE, offset=0, data=b"safe", **at(3)),
        Synced(path=ONE, **at(4)),
        Synced(path=LAKE, **at(5)),
        Wrote(path=ONE, offset=4, data=b" lost", **at(6)),
        Cut(path=ONE, size=1, **at(7)),
        Made(path=TWO, **at(8)),
        Synced(path=TWO, **at(9)),
    ]
    assert ground_after(events, tmp_path / "nothing") == {"lake/one": b"safe"}
    assert ground_after(events[:-2], tmp_path / "cut", EVERYTHING) == {"lake/one": b"s"}


def test_a_sync_that_had_not_ended_saves_nothing(tmp_path: Path) -> None:
    events: list[Event] = [
        *LAKE_MADE,
        Made(path=ONE, **at(2)),
        Synced(path=LAKE, **at(3)),
        Wrote(path=ONE, offset=0, data=b"body", **at(4)),
        Synced(path=ONE, begin_us=5, end_us=50),
    ]
    assert ground_after(events, tmp_path / "before", cut_us=49) == {"lake/one": b""}
    assert ground_after(events, tmp_path / "after", cut_us=50) == {"lake/one": b"body"}


def test_a_move_that_was_not_synced_leaves_the_old_name(tmp_path: Path) -> None:
    events: list[Event] = [
        *LAKE_MADE,
        Made(path=ONE, **at(2)),
        Synced(path=LAKE, **at(3)),
        Moved(path=ONE, target=TWO, **at(4)),
    ]
    assert ground_after(events, tmp_path / "not") == {"lake/one": b""}
    assert ground_after([*events, Synced(path=LAKE, **at(5))], tmp_path / "synced") == {"lake/two": b""}
    gone: list[Event] = [*events, Synced(path=LAKE, **at(5)), Removed(path=TWO, **at(6))]
    assert ground_after(gone, tmp_path / "back") == {"lake/two": b""}


def test_a_write_is_torn_at_the_borders_of_sectors() -> None:
    pieces = sectors(Wrote(path=ONE, offset=500, data=bytes(range(100)), **at(0)))
    assert pieces == [(500, bytes(range(12))), (512, bytes(range(12, 100)))]


def hexadecimal(text: str) -> str:
    return "".join(f"\\x{byte:02x}" for byte in text.encode())


def test_a_recording_is_read_as_it_happened(tmp_path: Path) -> None:
    one, two, elsewhere = (hexadecimal(str(path)) for path in (ONE, TWO, "/elsewhere/one"))
    lines = [
        f'7  5.000001 openat(AT_FDCWD<{elsewhere}>, "{one}", O_WRONLY|O_CREAT|O_TRUNC, 0666) = 3<{one}> <0.000004>',
        f'7  5.000010 write(3<{one}>, "{hexadecimal("ab")}", 2) = 2 <0.000002>',
        f"8  5.000020 fsync(3<{one}> <unfinished ...>",
        f'7  5.000021 write(3<{one}>, "{hexadecimal("cd")}", 2) = 2 <0.000002>',
        f'7  5.000022 write(4<{elsewhere}>, "{hexadecimal("no")}", 2) = 2 <0.000002>',
        "8  5.000030 <... fsync resumed>) = 0 <0.000009>",
        f'7  5.000040 rename("{one}", "{two}") = 0 <0.000001>',
        f'7  5.000050 unlink("{two}") = -1 ENOENT (No such file or directory) <0.000001>',
        "7  5.000060 +++ exited with 0 +++",
    ]
    trace = tmp_path / "trace"
    trace.write_text("\n".join(lines) + "\n")
    second = 5_000_000
    assert read(trace, LAKE) == [
        Made(path=ONE, empties=True, begin_us=second + 1, end_us=second + 5),
        Wrote(path=ONE, offset=0, data=b"ab", begin_us=second + 10, end_us=second + 12),
        Synced(path=ONE, begin_us=second + 20, end_us=second + 29),
        Wrote(path=ONE, offset=2, data=b"cd", begin_us=second + 21, end_us=second + 23),
        Moved(path=ONE, target=TWO, begin_us=second + 40, end_us=second + 41),
    ]
