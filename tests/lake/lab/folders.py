"""A small sweep in a folder, run without Spark, and its rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.dataset as ds

from fairway.core.tables import RUNS
from fairway.lake.lab.grid import parse
from fairway.lake.lab.sweep import LabFolder, run_chunk
from fairway.lake.schemas import arrow_schema

GRID = """
[[sweep]]
protocol = ["udpc", "rup"]
seeds = 12
link = { loss = [0, 0.1] }
load = { messages = 30 }
"""


def rows_of(folder: LabFolder) -> list[dict[str, Any]]:
    table = ds.dataset(folder.runs, format="parquet").to_table()
    assert table.schema.equals(arrow_schema(RUNS))
    return sorted(table.to_pylist(), key=lambda row: int(row["cell"]))


def fresh(path: Path, grid: str = GRID) -> LabFolder:
    folder = LabFolder(path)
    folder.prepare()
    folder.add(parse(grid))
    return folder


def run_here(folder: LabFolder) -> None:
    for chunk in folder.pending():
        run_chunk(chunk, folder)
