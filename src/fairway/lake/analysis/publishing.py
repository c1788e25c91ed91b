"""Folders of tables exchanged so that a crash between two of them is completed by the next run.

A run writes everything below `staging/analysis/`, then a plan that names the run, then exchanges folder by folder.
A table is cut in folders `bucket=K`; every file in one carries the name of the run that wrote it. So after a crash
the plan tells what was meant, and the names in a folder tell whether that was done: exchanging it a second time
would bring the old rows back.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from fairway.core import layout
from fairway.core.tables import Table
from fairway.lake.analysis.exchange import exchange_folder
from fairway.lake.schemas import arrow_schema
from fairway.store.files import publish_file, sync
from fairway.store.lakes import Lake

STAGING = "analysis"
PLAN = "plan.json"
READY = "ready"
"""Below staging: `ready/TABLE/bucket=K/RUN-N.parquet`, as it will lie in the table."""


def gather(staging: Path, table: Table, written: Path, run: str, buckets: Iterable[int]) -> int:
    """Puts the files that Spark wrote for a table where they can be published, and gives the number of their rows.

    Every bucket gets a file, if need be one without rows: a table that holds nothing has its columns all the same.
    """
    rows = 0
    for bucket in buckets:
        ready = staging / READY / table.name / f"bucket={bucket}"
        ready.mkdir(parents=True)
        files = sorted((written / f"bucket={bucket}").glob("*.parquet"))
        for number, file in enumerate(files):
            rows += pq.read_metadata(file).num_rows
            file.rename(ready / f"{run}-{number}.parquet")
        if not files:
            pq.write_table(_no_rows(table), ready / f"{run}-0.parquet")
    return rows


def _no_rows(table: Table) -> pa.Table:
    nullable = pa.schema([field.with_nullable(True) for field in arrow_schema(table)])
    return nullable.empty_table()


def publish(lake: Lake, staging: Path, run: str, tables: Sequence[Table], buckets: Sequence[int], state: str) -> None:
    """Exchanges all folders of a run, and notes the state that they are in when that is done."""
    plan: dict[str, object] = {
        "run": run,
        "tables": [table.name for table in tables],
        "buckets": list(buckets),
        "state": state,
    }
    unnamed = staging / f"{PLAN}.new"
    unnamed.write_text(json.dumps(plan))
    publish_file(unnamed, staging / PLAN)
    _carry_out(lake, staging, plan)


def finish(lake: Lake) -> bool:
    """Completes what a crashed run had begun to publish; tells whether there was anything."""
    staging = lake.path / layout.STAGING / STAGING
    try:
        plan = json.loads((staging / PLAN).read_text())
    except FileNotFoundError:
        return False
    _carry_out(lake, staging, plan)
    return True


def _carry_out(lake: Lake, staging: Path, plan: dict[str, object]) -> None:
    run, state = str(plan["run"]), str(plan["state"])
    tables, buckets = plan["tables"], plan["buckets"]
    assert isinstance(tables, list)
    assert isinstance(buckets, list)
    for name in tables:
        for bucket in buckets:
            staged = staging / READY / name / f"bucket={bucket}"
            target = lake.table(name) / f"bucket={bucket}"
            if staged.exists() and not any(target.glob(f"{run}-*.parquet")):
                exchange_folder(staged, target)
        _remove_others(lake.table(name), plan)
    _note(lake, staging, state)
    (staging / PLAN).unlink()
    shutil.rmtree(staging)


def _remove_others(table: Path, plan: dict[str, object]) -> None:
    """Removes folders of an earlier cut of the table, which this plan replaces as a whole."""
    cut = json.loads(str(plan["state"]))["buckets"]
    for folder in table.glob("bucket=*"):
        if int(folder.name.partition("=")[2]) >= cut:
            shutil.rmtree(folder)


def _note(lake: Lake, staging: Path, state: str) -> None:
    unnamed = staging / "state.new"
    unnamed.write_text(state)
    publish_file(unnamed, state_file(lake))
    sync(lake.checkpoints)


def state_file(lake: Lake) -> Path:
    """Gives the file that says which captures, and which port map, the tables are made of."""
    return lake.checkpoints / "analysis.json"
