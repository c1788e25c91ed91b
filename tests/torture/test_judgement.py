"""The judge and the readers see what must not be."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from fairway.demo.fleet import ACKNOWLEDGED, REFUSED, UNKNOWN, Ledger, judge, key_of
from fairway.store.delta import DataFile, Delta
from fairway.store.locations import location_of
from tests.torture.readers import Seen, by_delta, readers
from tests.torture.watching import Watch


def table_of(folder: Path, bodies: list[bytes], offsets: list[int] | None = None) -> Path:
    """Write a table as the stream would, in two commits."""
    table = folder / "tables" / "messages"
    numbers = offsets or list(range(len(bodies)))
    for part in (slice(0, 2), slice(2, None)):
        columns = {"gateway": ["g"] * len(bodies[part]), "gateway_offset": numbers[part], "body": bodies[part]}
        types = [("gateway", pa.string()), ("gateway_offset", pa.int64()), ("body", pa.binary())]
        write_deltalake(table, pa.table(columns, pa.schema(types)), mode="append")
    return table


def ledger_of(acknowledged: list[bytes], unknown: list[bytes]) -> Ledger:
    outcomes = {key_of(body): ACKNOWLEDGED for body in acknowledged} | {key_of(body): UNKNOWN for body in unknown}
    return Ledger(outcomes=outcomes)


def test_acknowledged_once_and_unknown_at_most_once_is_kept(tmp_path: Path) -> None:
    verdict = judge(ledger_of([b"a", b"b"], [b"c", b"d"]), table_of(tmp_path, [b"a", b"b", b"c"]))
    assert verdict.kept
    assert (verdict.sent, verdict.acknowledged, verdict.in_table) == (4, 2, 3)


@pytest.mark.parametrize(
    ("bodies", "missing", "double", "foreign"),
    [
        ([b"a", b"c"], 1, 0, 0),
        ([b"a", b"b", b"b"], 0, 1, 0),
        ([b"a", b"b", b"c", b"c"], 0, 1, 0),
        ([b"a", b"b", b"changed"], 0, 0, 1),
        ([b"a", b"B"], 1, 0, 1),
    ],
)
def test_each_breach_is_counted_as_what_it_is(
    tmp_path: Path, bodies: list[bytes], missing: int, double: int, foreign: int
) -> None:
    verdict = judge(ledger_of([b"a", b"b"], [b"c"]), table_of(tmp_path, bodies))
    assert (verdict.missing, verdict.double, verdict.foreign) == (missing, double, foreign)
    assert not verdict.kept


def test_a_refused_message_must_not_be_in_the_table(tmp_path: Path) -> None:
    ledger = ledger_of([b"a"], [])
    ledger.outcomes[key_of(b"b")] = REFUSED
    assert judge(ledger, table_of(tmp_path, [b"a", b"b"])).foreign == 1


def test_a_message_under_the_name_of_another_device_is_missing_and_foreign(tmp_path: Path) -> None:
    ledger = Ledger(outcomes={key_of(b"a", "one"): ACKNOWLEDGED})
    for device, kept in (("one", True), ("two", False), (None, False)):
        folder = tmp_path / str(device)
        write_deltalake(folder, pa.table({"body": pa.array([b"a"]), "device": pa.array([device], pa.string())}))
        verdict = judge(ledger, folder)
        assert (verdict.kept, verdict.missing, verdict.foreign) == (kept, not kept, not kept)


def test_every_reader_counts_rows_twice_and_rows_that_are_not_there(tmp_path: Path) -> None:
    whole = table_of(tmp_path / "whole", [b"a", b"b", b"c"])
    twice = table_of(tmp_path / "twice", [b"a", b"b", b"c"], [0, 1, 1])
    gap = table_of(tmp_path / "gap", [b"a", b"b", b"c"], [0, 1, 3])
    with readers({"TMPDIR": str(tmp_path)}) as everybody:
        assert set(everybody) == {"delta-rs", "DuckDB", "Polars", "Spark"}
        for name, read in everybody.items():
            assert read(str(whole)) == Seen(3, 3, 3), name
            assert read(str(twice)) == Seen(3, 2, 2), name
            assert read(str(gap)) == Seen(3, 3, 4), name
            with pytest.raises(Exception, match=r".+"):
                read(str(tmp_path / "nothing"))
    assert Seen(3, 3, 3).whole
    assert not Seen(3, 2, 2).whole
    assert not Seen(3, 3, 4).whole


def landed(folder: Path) -> Delta:
    """Land two batches of two rows, with their positions."""
    table = Delta(location_of(folder / "tables" / "messages"))
    schema = pa.schema([("gateway", pa.string()), ("gateway_offset", pa.int64())])
    table.create(schema, (), configuration={}, positions={})
    for end in (2, 4):
        path = f"{end}.parquet"
        with table.location.create(path) as file:
            pq.write_table(pa.table([["g", "g"], [end - 2, end - 1]], schema), file)
        data = DataFile(path, table.location.file(path).size_bytes, 2, {})
        table.commit(table.open(), [data], advances={"fairway/g": (end - 2, end)})
    return table


def test_a_watch_reports_a_reader_that_sees_half_a_batch_or_fewer_rows_than_before(tmp_path: Path) -> None:
    table = landed(tmp_path)
    failures: list[str] = []
    watch = Watch(str(tmp_path), "g", failures.append)
    watch.look("delta-rs", by_delta)
    watch.look("old", lambda _: Seen(2, 2, 2))
    assert (failures, watch.looks) == ([], {"delta-rs": 1, "old": 1})
    watch.look("half", lambda _: Seen(3, 3, 3))
    watch.look("twice", lambda _: Seen(4, 3, 3))
    watch.look("delta-rs", lambda _: Seen(2, 2, 2))
    half = table.location.folder / "2.parquet"
    half.write_bytes(half.read_bytes()[:-20])
    watch.look("delta-rs", by_delta)
    assert [failure.split(":")[0] for failure in failures[:3]] == [
        "half saw no whole batches, or rows twice",
        "twice saw no whole batches, or rows twice",
        "delta-rs saw 4 messages, and then 2",
    ]
    assert failures[3].startswith("delta-rs got ")
    assert len(failures) == 4
