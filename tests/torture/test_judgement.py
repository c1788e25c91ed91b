"""The judge and the readers see what must not be."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from fairway.bench.torture.fleet import ACKNOWLEDGED, REFUSED, UNKNOWN, Ledger, key_of
from fairway.bench.torture.judgement import judge
from fairway.bench.torture.readers import doubles_by_delta, doubles_by_duckdb, doubles_by_polars
from fairway.bench.torture.senders import read_ledger, write_ledger
from fairway.bench.torture.watching import Watcher


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


def test_a_ledger_comes_back_from_its_file(tmp_path: Path) -> None:
    ledger = ledger_of([b"a"], [b"b"])
    ledger.acknowledged_s[key_of(b"a")] = 12.5
    ledger.latencies_s = [0.25, 3.5, 1.0]
    ledger.lost_connections = 2
    ledger.refusals["why"] += 3
    write_ledger(ledger, tmp_path / "ledger")
    again = read_ledger(tmp_path / "ledger")
    assert (again.outcomes, again.acknowledged_s) == (ledger.outcomes, ledger.acknowledged_s)
    assert (again.longest_s(), again.lost_connections) == (3.5, 2)
    assert again.refusals == {"why": 3}


def test_every_reader_sees_a_row_that_is_there_twice(tmp_path: Path) -> None:
    once, twice = tmp_path / "once", tmp_path / "twice"
    table_of(once, [b"a", b"b", b"c"])
    table_of(twice, [b"a", b"b", b"c"], [0, 1, 1])
    for doubles in (doubles_by_delta, doubles_by_duckdb, doubles_by_polars):
        assert doubles(once / "tables" / "messages") == 0
        assert doubles(twice / "tables" / "messages") == 1


def test_a_watcher_says_when_a_file_of_the_table_is_half_written(tmp_path: Path) -> None:
    table = table_of(tmp_path, [b"a", b"b", b"c"])
    half = next(table.glob("*.parquet"))
    half.write_bytes(half.read_bytes()[:-20])
    faults: list[str] = []
    watcher = Watcher(tmp_path, lambda _: False, faults.append)
    watcher.look()
    assert len(faults) == 1
    assert faults[0].startswith("a reader got")
