"""What `analyze` promises of the lake: the tables are a function of the captures, and are never half there."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.dataset as ds
import pytest

from fairway.core.errors import BadOption
from fairway.core.tables import CAPTURE_TABLES
from fairway.lake.analysis import job, publishing, task
from fairway.lake.analysis.exchange import exchange_folder
from fairway.lake.analysis.job import State, analyze
from fairway.lake.analysis.summary import summary
from fairway.sim.cases import Wishes, case
from fairway.store.lakes import Lake
from tests.lake.analysis.worlds import simulated

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def captures(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A udpc conversation cut in two files, and an mrp one."""
    folder = tmp_path_factory.mktemp("captures")
    udpc = simulated(1, case(Wishes(protocol="udpc", loss=0.1, messages=20)), 5)
    mrp = simulated(2, case(Wishes(protocol="mrp", loss=0.1, messages=10)), 6)
    cut = _halves(udpc.capture)
    files = []
    for name, data in (("b.pcapng", cut[1]), ("a.pcapng", cut[0]), ("c.pcapng", mrp.capture)):
        files.append(folder / name)
        files[-1].write_bytes(data)
    return files


def _halves(capture: bytes) -> tuple[bytes, bytes]:
    """Cuts a capture between two packets; both halves begin with the section and its interfaces."""
    starts, at = [], 0
    while at < len(capture):
        starts.append(at)
        at += int.from_bytes(capture[at + 4 : at + 8], "little")
    packet = (6).to_bytes(4, "little")
    first = next(start for start in starts if capture[start : start + 4] == packet)
    middle = starts[len(starts) // 2]
    return capture[:middle], capture[:first] + capture[middle:]


def checksums(lake: Lake) -> dict[str, str]:
    files = sorted(path for path in lake.tables.rglob("*") if path.is_file())
    return {str(path.relative_to(lake.tables)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def rows(lake: Lake) -> dict[str, list[Any]]:
    """Gives the rows of all tables in an order of their own."""
    found = {}
    for table in CAPTURE_TABLES:
        read = ds.dataset(lake.table(table.name), format="parquet", partitioning="hive").to_table()
        found[table.name] = sorted(read.to_pylist(), key=str)
    return found


@pytest.fixture(scope="module")
def together(spark: SparkSession, captures: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Lake:
    lake = Lake(tmp_path_factory.mktemp("together") / "lake")
    done = analyze(spark, lake, map(str, captures))
    assert (done.files_added, done.problems) == (3, ())
    return lake


def test_a_second_run_changes_no_file(spark: SparkSession, together: Lake, captures: list[Path]) -> None:
    before = checksums(together)
    again = analyze(spark, together, map(str, captures))
    assert (again.files_added, again.files_known, again.buckets) == (0, 3, 0)
    assert checksums(together) == before
    assert len(before) > 0


def test_files_one_by_one_give_the_same_tables_as_all_together(
    spark: SparkSession, together: Lake, captures: list[Path], tmp_path: Path
) -> None:
    lake = Lake(tmp_path / "lake")
    untouched: dict[str, str] = {}
    for file in captures:
        before = checksums(lake)
        analyze(spark, lake, [str(file)])
        untouched = {name: text for name, text in before.items() if checksums(lake).get(name) == text}
    assert rows(lake) == rows(together)
    assert untouched, "the last file has a flow of its own, so what was there before stays as it is"


def test_rows_that_get_lost_on_the_way_are_noticed_and_nothing_is_published(
    spark: SparkSession, captures: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where only some buckets are computed."""
    lake = Lake(tmp_path / "lake")
    analyze(spark, lake, [str(captures[0])])
    before = rows(lake)

    def losing(work: task.Work, bucket: int) -> None:
        task.computed(work, bucket)
        (Path(work.target) / "packets" / f"bucket={bucket}" / "part-0.parquet").unlink()

    with monkeypatch.context() as patched:
        patched.setattr(job, "computed", losing)
        with pytest.raises(job.Unbalanced, match="became 0 packets"):
            analyze(spark, lake, [str(captures[1])])
    assert rows(lake) == before


def test_a_crash_between_two_exchanges_is_completed_by_the_next_run(
    spark: SparkSession, together: Lake, captures: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(tmp_path / "lake")
    analyze(spark, lake, [str(captures[0])])
    left = 3

    def dying(staged: Path, target: Path) -> bool:
        nonlocal left
        left -= 1
        if left == 0:
            raise KeyboardInterrupt
        return exchange_folder(staged, target)

    with monkeypatch.context() as patched:
        patched.setattr(publishing, "exchange_folder", dying)
        with pytest.raises(KeyboardInterrupt):
            analyze(spark, lake, map(str, captures[1:]))
    assert rows(lake) != rows(together)
    assert publishing.finish(lake)
    assert rows(lake) == rows(together)
    assert State.of(lake) == State.of(together)
    assert not publishing.finish(lake)


def test_what_cannot_be_read_is_said_and_the_rest_is_analysed_and_mapped(
    spark: SparkSession, captures: list[Path], tmp_path: Path
) -> None:
    empty, picture = tmp_path / "empty.pcap", tmp_path / "picture.pcap"
    empty.write_bytes(b"")
    picture.write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(100))
    lake = Lake(tmp_path / "lake")
    done = analyze(spark, lake, [str(empty), str(picture), str(tmp_path / "missing.pcap"), str(captures[2])])
    for name in ("empty.pcap", "picture.pcap", "missing.pcap"):
        assert any(name in said for said in done.problems), name
    assert all("\n" not in said and said.endswith(".") for said in done.problems)
    assert done.files_added == 1
    assert set(summary(lake).packets) == {"mrp"}
    _map_otherwise(spark, lake)


def _map_otherwise(spark: SparkSession, lake: Lake) -> None:
    """Another port map computes everything again, and stays."""
    mapped = analyze(spark, lake, [], port_map={9_000: "udpc"})
    assert mapped.remapped
    assert set(summary(lake).packets) == {"udpc"}
    kept = analyze(spark, lake, [])
    assert (kept.remapped, kept.buckets) == (False, 0)


def test_the_cut_of_a_lake_does_not_change(spark: SparkSession, together: Lake) -> None:
    with pytest.raises(BadOption, match="16 buckets"):
        analyze(spark, together, [], buckets=8)


def test_duckdb_reads_the_same_rows(together: Lake) -> None:
    import duckdb

    for table in CAPTURE_TABLES:
        counted = (
            duckdb.connect().execute(f"SELECT count(*) FROM '{together.table(table.name)}/**/*.parquet'").fetchall()
        )
        assert counted == [(len(rows(together)[table.name]),)]
