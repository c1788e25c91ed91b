"""What `analyze` promises of the lake: the tables are a function of the captures, and are never half there."""

from __future__ import annotations

import errno
import json
import os
import shutil
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession

from benchmarks.captures.made import ETHERNET, MAKERS, START_NS
from fairway import protocols
from fairway.capture.frames import LinkType
from fairway.capture.packets import encode_ip
from fairway.capture.pcap import PcapWriter
from fairway.cli import run
from fairway.core.tables import ANALYSIS_TABLES, CAPTURES, PACKETS, PROTOCOLS, SESSIONS, Table
from fairway.lake.analysis import enrich, job
from fairway.lake.analysis.enrich import ORDER, Counts, Enrich
from fairway.lake.analysis.job import analyze
from fairway.lake.analysis.packets import Packets
from fairway.lake.analysis.state import State
from fairway.lake.analysis.summary import summary
from fairway.lake.arrays import Mask
from fairway.lake.captures import readings
from fairway.lake.captures.files import Capture
from fairway.sim.configuration import RunOptions, case
from fairway.store.analyses import APPLICATION, common_run, tables
from fairway.store.delta import DataFile, Overtaken
from fairway.store.lakes import Lake
from tests.lake.analysis.lakes import all_tables, table_rows
from tests.lake.analysis.worlds import simulated
from tests.lake.captures.reading import records_of
from tests.torture.readers import duckdb_with_delta

LONG = pytest.mark.long


@pytest.fixture(scope="module")
def captures(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A udpc conversation cut in two files, the second half first, and an mrp one."""
    folder = tmp_path_factory.mktemp("captures")
    udpc = simulated(1, case(RunOptions(protocol="udpc", loss=0.1, messages=20)), 5)
    mrp = simulated(2, case(RunOptions(protocol="mrp", loss=0.1, messages=10)), 6)
    cut = _halves(udpc.capture)
    files = []
    for name, data in (("b.pcapng", cut[1]), ("a.pcapng", cut[0]), ("c.pcapng", mrp.capture)):
        files.append(folder / name)
        files[-1].write_bytes(data)
    return files


def _halves(capture: bytes) -> tuple[bytes, bytes]:
    """Cut a capture between two packets; both halves begin with the section and its interfaces."""
    starts, at = [], 0
    while at < len(capture):
        starts.append(at)
        at += int.from_bytes(capture[at + 4 : at + 8], "little")
    packet = (6).to_bytes(4, "little")
    first = next(start for start in starts if capture[start : start + 4] == packet)
    middle = starts[len(starts) // 2]
    return capture[:middle], capture[:first] + capture[middle:]


def versions(lake: Lake) -> dict[str, int]:
    return {name: table.open().version() for name, table in tables(lake.location).items()}


def data_files(lake: Lake, name: str) -> set[str]:
    table = lake.delta(name)
    return {file.path for file, _ in table.files(table.open())}


class Noting(Enrich):
    """Notes how many records were understood, whoever asks for them."""

    log = ""

    def enriched(self, packets: Packets, is_open: Mask) -> Iterator[pa.RecordBatch]:
        with Path(self.log).open("a") as file:
            file.write(f"{len(is_open)}\n")
        return super().enriched(packets, is_open)


@pytest.fixture(scope="module")
def together(spark: SparkSession, captures: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Return a lake with all captures. All its tables are made of rows that were written, each computed once."""
    lake = Lake(tmp_path_factory.mktemp("together") / "lake")
    log = tmp_path_factory.mktemp("noted") / "log"
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Noting, "log", str(log))
        patch.setattr(job, "Enrich", Noting)
        done = analyze(spark, lake, map(str, captures))
    cloudpickle.unregister_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]
    assert (done.files_added, done.problems, done.run) == (3, (), 1)
    assert sum(map(int, log.read_text().split())) == done.records == len(table_rows(lake.path, "packets")) > 0
    return lake


@pytest.fixture(scope="module")
def begun(spark: SparkSession, captures: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A lake that holds the second half of a conversation."""
    lake = Lake(tmp_path_factory.mktemp("begun") / "lake")
    analyze(spark, lake, [str(captures[0])])
    return lake


@pytest.fixture
def lake(begun: Lake, tmp_path: Path) -> Lake:
    """A copy of it, to be changed."""
    return Lake(shutil.copytree(begun.path, tmp_path / "lake"))


def test_a_second_run_commits_nothing(spark: SparkSession, together: Lake, captures: list[Path]) -> None:
    before = versions(together)
    again = analyze(spark, together, map(str, captures))
    assert (again.files_added, again.files_known, again.run, again.records) == (0, 3, 1, 0)
    assert versions(together) == before


def test_every_capture_is_described(together: Lake) -> None:
    packets = table_rows(together.path, "packets")
    for row in table_rows(together.path, "captures"):
        own = [packet for packet in packets if packet["file_id"] == row["file_id"]]
        assert (row["records"], row["damages"], row["run"]) == (len(own), 0, 1)
        assert (row["first"], row["last"]) == (min(one["at"] for one in own), max(one["at"] for one in own))


class Onlooker(threading.Thread):
    """Reads the packets of a lake again and again, and keeps what was wrong."""

    def __init__(self, lake: Path) -> None:
        super().__init__()
        self.over = threading.Event()
        self.looks = 0
        self.wrong: list[str] = []
        self._lake = lake

    def __enter__(self) -> Onlooker:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.join()

    def run(self) -> None:
        while not self.over.wait(0.5):
            try:
                keys = [(row["file_id"], row["offset"]) for row in table_rows(self._lake, "packets")]
            except Exception as error:
                self.wrong.append(repr(error))
                return
            self.looks += 1
            if len(set(keys)) != len(keys) or not keys:
                self.wrong.append(f"{len(keys)} rows, {len(set(keys))} different")


def test_files_one_by_one_give_the_tables_of_all_together_and_compute_only_what_they_touch(
    spark: SparkSession, together: Lake, captures: list[Path], tmp_path: Path
) -> None:
    """Meanwhile nobody who reads sees a row twice or none."""
    lake = Lake(tmp_path / "lake")
    kept: set[str] = set()
    analyze(spark, lake, [str(captures[2])])
    with Onlooker(lake.path) as onlooker:
        for number in (1, 0):
            before = data_files(lake, "packets")
            done = analyze(spark, lake, [str(captures[number])])
            kept |= before & data_files(lake, "packets")
    assert onlooker.wrong == []
    assert onlooker.looks > 2
    assert all_tables(lake.path) == all_tables(together.path)
    assert kept, "a conversation that the new file does not touch stays where it is"
    touched = [row for row in table_rows(lake.path, "packets") if row["protocol"] == "udpc"]
    assert done.records == len(touched) < len(table_rows(lake.path, "packets"))
    assert len({row["episode"] for row in touched}) == 1


class Stopped(BaseException):
    """Stands for the end of a process."""


def interrupted(monkeypatch: pytest.MonkeyPatch, after: str, then: Callable[[], None]) -> None:
    """Have something happen behind the commit to a table, once."""
    commit, done = State.commit, False

    def committed(self: State, table: Table, files: Sequence[DataFile], replaced: Sequence[DataFile]) -> None:
        nonlocal done
        commit(self, table, files, replaced)
        if table.name == after and not done:
            done = True
            then()

    monkeypatch.setattr(State, "commit", committed)


@pytest.mark.parametrize("after", ["packets", *(pytest.param(name, marks=LONG) for name in ("captures", "violations"))])
def test_a_run_that_was_stopped_between_two_commits_is_made_up_for_by_the_next(
    spark: SparkSession,
    together: Lake,
    begun: Lake,
    lake: Lake,
    captures: list[Path],
    monkeypatch: pytest.MonkeyPatch,
    after: str,
) -> None:
    def stop() -> None:
        raise Stopped

    interrupted(monkeypatch, after, stop)
    with pytest.raises(Stopped):
        analyze(spark, lake, map(str, captures))
    assert all_tables(lake.path) == all_tables(begun.path), "readers see the run before"
    again = analyze(spark, lake, [])
    assert again.run == 3
    assert all_tables(lake.path) == all_tables(together.path)


@pytest.mark.parametrize("after", ["timeline", pytest.param("captures", marks=LONG)])
def test_a_second_start_between_two_commits_ends_one_of_them_with_a_sentence(
    spark: SparkSession,
    together: Lake,
    lake: Lake,
    captures: list[Path],
    monkeypatch: pytest.MonkeyPatch,
    after: str,
) -> None:
    interrupted(monkeypatch, after, lambda: ignored(analyze(spark, lake, map(str, captures))))
    with pytest.raises(Overtaken, match="nother writer fills"):
        analyze(spark, lake, map(str, captures))
    analyze(spark, lake, [])
    assert all_tables(lake.path) == all_tables(together.path)
    assert {table.position(table.open(), APPLICATION) for table in tables(lake.location).values()} == {3}


def ignored(_: object) -> None:
    pass


def test_rows_that_get_lost_on_the_way_are_noticed_and_nothing_is_committed(
    spark: SparkSession, lake: Lake, captures: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = versions(lake)
    monkeypatch.setattr(job, "records_of", lambda packets: enrich.records_of(packets).limit(1))
    with pytest.raises(job.Unbalanced, match="nothing was committed"):
        analyze(spark, lake, [str(captures[1])])
    assert versions(lake) == before


@pytest.mark.usefixtures("one_session")
def test_a_disk_that_fills_up_here_or_in_a_task_changes_no_table_and_is_said(
    lake: Lake, captures: list[Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = versions(lake)
    here = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    in_a_task = RuntimeError("PythonException\n OSError: [Errno 28] No space left on device")
    for error in (here, in_a_task):
        monkeypatch.setattr(job, "put_through", Mock(side_effect=error))
        assert run(["analyze", str(captures[2]), "--lake", str(lake.path)]) == 1
        said = capsys.readouterr().err.strip()
        assert "make room" in said
        assert len(said.splitlines()) == 1
        assert versions(lake) == before
        assert list((lake.path / "staging").iterdir()) == []


def test_another_port_map_computes_everything_again_without_the_captures(
    spark: SparkSession, lake: Lake, captures: list[Path], tmp_path: Path
) -> None:
    assert set(summary(lake).packets) == {"udpc"}
    away = captures[0].rename(tmp_path / "away")
    mapped = analyze(spark, lake, [], port_map={9_000: "mrp"})
    away.rename(captures[0])
    assert mapped.remapped
    assert set(summary(lake).packets) == {"mrp"}
    kept = analyze(spark, lake, [])
    assert (kept.remapped, kept.records) == (False, 0)


def test_bodies_that_are_asked_for_later_replace_the_rows(spark: SparkSession, begun: Lake, lake: Lake) -> None:
    (path,) = (row["path"] for row in table_rows(lake.path, "captures"))
    done = analyze(spark, lake, [path], payload=True)
    assert (done.files_added, done.problems) == (1, ())
    without, found = table_rows(begun.path, "packets"), table_rows(lake.path, "packets")
    assert len(found) == len(without)
    bodies = [row["body"] for row in found if row["body_bytes"]]
    assert bodies
    assert all(bodies)
    assert {row["body"] for row in without} == {None}


def test_a_reader_between_two_runs_sees_the_run_that_all_tables_hold(begun: Lake, together: Lake) -> None:
    assert set(common_run(begun.location)) == {table.name for table in ANALYSIS_TABLES}
    assert {CAPTURES.name, PACKETS.name, SESSIONS.name} <= set(common_run(together.location))


def test_counts_of_tasks_add_up() -> None:
    counts = Counts(3, 7, 1)
    counts.add(Counts(2, 9, 0))
    assert counts == Counts(5, 9, 1)
    notes = [
        json.dumps({"counts": {"5": asdict(one)}, "protocols": ["mrp"]}) for one in (Counts(3, 7, 1), Counts(2, 9, 0))
    ]
    assert Enrich.noted([*notes, Enrich({}, {}).notes()]) == ({5: counts}, {"mrp"})


def test_every_datagram_is_decoded_once_as_each_protocol(captures: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """As all four: which one a flow speaks is known only when all of its datagrams have been read.

    An episode that is decoded in chunks is read again, as its protocol.
    """
    decoded: Counter[str] = Counter()

    def counting(protocol: str) -> Any:
        def decode(buffer: Any, starts: Any, lengths: Any) -> Any:
            decoded[protocol] += len(starts)
            return protocols.columns(protocol).decode_columns(buffer, starts, lengths)

        return SimpleNamespace(decode_columns=decode)

    monkeypatch.setattr(readings, "protocol_columns", counting)
    records = pa.concat_tables([records_of(path, payload=False) for path in captures])
    ordered = records.sort_by([(name, "ascending") for name in ORDER])
    spans = {number: Capture("id", "name", payload=False) for number in set(ordered["file_id"].to_pylist())}
    rows = sum(len(batch) for batch in Enrich(spans, {}, 500)(iter(ordered.to_batches(max_chunksize=20))))
    assert decoded == dict.fromkeys(PROTOCOLS, rows)
    assert rows == len(records) > 0


def test_workers_that_hold_few_records_at_a_time_make_the_same_tables(
    spark: SparkSession, captures: list[Path], together: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = partial(Enrich, group_rows=20)
    monkeypatch.setattr(small, "noted", Enrich.noted, raising=False)
    monkeypatch.setattr(job, "Enrich", small)
    lake = Lake(tmp_path / "lake")
    analyze(spark, lake, map(str, captures))
    assert all_tables(lake.path) == all_tables(together.path)


@LONG
@pytest.mark.parametrize("hours", [5, 100])
def test_files_of_one_hour_each_cost_what_they_hold(spark: SparkSession, tmp_path: Path, hours: int) -> None:
    """Each hour holds a conversation of its own and half of one that goes on in the next; they come in any order."""
    paths, continued = _hours(tmp_path, hours)
    together, lake = Lake(tmp_path / "together"), Lake(tmp_path / "lake")
    ports = {9_000: "udpc", 9_001: "mrp"}
    total = analyze(spark, together, map(str, paths), port_map=ports).records
    Random(5).shuffle(paths)
    computed = sum(analyze(spark, lake, [str(path)], port_map=ports).records for path in paths)
    assert all_tables(lake.path) == all_tables(together.path)
    assert computed - total <= 1.5 * continued


def _hours(folder: Path, hours: int) -> tuple[list[Path], int]:
    """Write a capture for each hour; return also how many packets belong to conversations that go on in the next."""
    hour_ns, paths, continued = 3_600 * 10**9, [], 0
    for hour in range(hours):
        paths.append(folder / f"{hour}.pcap")
        with paths[-1].open("wb") as file:
            writer = PcapWriter(file.write, LinkType.ETHERNET)
            for second in range(0, 3_600, 10):
                within = 1_200 <= second < 1_320
                number = (second + (360 if second < 60 else 0)) // 10
                if within or second < 60 or second >= 3_540:
                    conversation = hour - (second < 60)
                    continued += not within
                    maker, port = (MAKERS["udpc"], 9_000) if within else (MAKERS["mrp"], 9_001)
                    client = (f"10.{port % 10}.{1 + conversation // 200}.{1 + conversation % 200}", 40_000)
                    answer = number % 4 == 3
                    ends = (("10.9.0.1", port), client) if answer else (client, ("10.9.0.1", port))
                    frame = ETHERNET + encode_ip(
                        *ends, maker(conversation + 1, number // 4 * 3 + min(number % 4, 2), answer)
                    )
                    writer.frame(START_NS + hour * hour_ns + second * 10**9, frame)
    return paths, continued


def test_duckdb_reads_the_same_rows(together: Lake) -> None:
    with duckdb_with_delta() as connection:
        for table in ANALYSIS_TABLES:
            counted = connection.execute(f"SELECT count(*) FROM delta_scan('{together.table(table.name)}')").fetchall()
            assert counted == [(len(table_rows(together.path, table.name)),)]
