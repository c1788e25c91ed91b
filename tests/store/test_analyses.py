"""Readers of several tables see the newest run that all of them hold."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from fairway.store.analyses import APPLICATION, common_run, datasets, tables
from fairway.store.delta import DataFile
from fairway.store.locations import location_of


def committed(lake: Path, name: str, run: int) -> None:
    """Replace a table's rows by one that says the run."""
    table = tables(location_of(lake))[name]
    if not table.exists():
        table.create(pa.schema([("session", pa.string())]), (), configuration={}, positions={})
    path = table.location.folder / f"{run}.parquet"
    pq.write_table(pa.table({"session": [str(run)]}), path)
    snapshot = table.open()
    before = table.position(snapshot, APPLICATION)
    table.commit(snapshot, [DataFile(path.name, path.stat().st_size, 1, {})], advances={APPLICATION: (before, run)})


def read(lake: Path, name: str) -> set[str]:
    return set(datasets(location_of(lake))[name].to_table()["session"].to_pylist())


def test_a_run_that_did_not_reach_the_last_table_is_not_seen(tmp_path: Path) -> None:
    names = list(tables(location_of(tmp_path)))
    for run in (1, 3):
        for name in names:
            committed(tmp_path, name, run)
    for name in names[:-1]:
        committed(tmp_path, name, 4)
    committed(tmp_path, names[0], 5)
    assert all(read(tmp_path, name) == {"1", "3"} for name in names)
    committed(tmp_path, names[-1], 4)
    assert all(read(tmp_path, name) == {"1", "3", "4"} for name in names)


def test_a_lake_without_tables_has_none(tmp_path: Path) -> None:
    assert common_run(location_of(tmp_path)) == {}
    assert datasets(location_of(tmp_path)) == {}
