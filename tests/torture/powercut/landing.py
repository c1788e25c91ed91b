"""What a stream does to the disk, recorded and cut: data files, commits, compaction, vacuum and checkpoints of a table.

Everything that writes in `fairway stream` is here but Spark, which writes nothing that counts: the tasks' own function
writes the files, and the driver's commits and tends. After a cut the table is opened as the stream does at its start;
what was landed before the cut must be there once, and landing the rest must end in every row once.

python -m tests.torture.powercut.landing TABLE BATCHES    is what is recorded
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from random import Random

import pyarrow as pa

from fairway.core.layout import progress
from fairway.demo.services import ServiceFailed
from fairway.lake.sink import write_batches
from fairway.store import tending
from fairway.store.delta import DataFile, Delta
from fairway.store.files import make_folder
from fairway.store.locations import location_of
from tests.torture.powercut.ground import Ground
from tests.torture.powercut.recording import check_strace, under_strace
from tests.torture.powercut.recovery import Moment
from tests.torture.powercut.trace import Event, read
from tests.torture.readers import Reader, by_delta, by_duckdb, by_polars

ROWS = 5
NAME = "gateway"
SCHEMA = pa.schema([("gateway", pa.string()), ("gateway_offset", pa.int64()), ("day", pa.date32())])
GATEWAY = progress(NAME)
QUICK: Mapping[str, Reader] = {"delta-rs": by_delta, "DuckDB": by_duckdb, "Polars": by_polars}
"""Who looks after a cut unless others are named: all but Spark, which takes a process of its own."""


@dataclass(frozen=True, slots=True)
class Landing:
    """What happened to a table, and when how many rows counted as landed."""

    table: Path
    events: list[Event]
    landed: list[tuple[int, int]]
    """Microseconds of the day's clock, and the position then."""


def land(table: Delta, batches: int) -> None:
    """Land what a table lacks, a line for each batch that counts, with housekeeping every few commits."""
    tending.CHECKPOINT_EVERY, tending.COMPACT_EVERY = 4, 10
    if not table.exists():
        table.create(SCHEMA, ["day"], configuration=tending.history(0), positions={})
    position = table.position(table.open(), GATEWAY)
    while position < ROWS * batches:
        offsets = range(position, position + ROWS)
        rows = pa.table([[NAME] * ROWS, offsets, [date(2026, 3, 1)] * ROWS], SCHEMA)
        (returned,) = write_batches(table.location.uri, SCHEMA, ["day"], iter(rows.to_batches()))
        files = [
            DataFile(row["path"], row["size_bytes"], row["rows"], {"day": "2026-03-01"}, row["stats"])
            for row in returned.to_pylist()
        ]
        version = table.commit(table.open(), files, advances={GATEWAY: (position, position + ROWS)})
        position += ROWS
        print(time.time_ns() // 1_000, position, flush=True)
        tending.tend(table, version)


def record_landing(folder: Path, batches: int) -> Landing:
    """Record so many batches."""
    check_strace()
    make_folder(folder)
    table, trace = folder / "table", folder / "trace"
    command = [*under_strace(trace, "tests.torture.powercut.landing"), str(table), str(batches)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ServiceFailed(f"the recorded landing left with {done.returncode}: {done.stderr.splitlines()[-1:]}")
    landed = [(int(at_us), int(position)) for at_us, position in map(str.split, done.stdout.splitlines())]
    return Landing(table, read(trace, table), landed)


def cut_landing(landing: Landing, moment: Moment, folder: Path, readers: Mapping[str, Reader] = QUICK) -> list[str]:
    """Rebuild the table as the cut leaves it, start on it, and return what is wrong then, for any of the readers."""
    cut_us = landing.events[moment.number].begin_us
    ground = Ground(landing.table)
    ground.follow(landing.events, cut_us)
    ground.build(folder, Random(moment.seed), moment.per_million)
    table = Delta(location_of(folder / landing.table.name))
    promised = max((position for at_us, position in landing.landed if at_us < cut_us), default=0)
    try:
        table.mend()
        position = table.position(table.open(), GATEWAY) if table.exists() else 0
        faults = [f"{promised} rows had landed, and the table is at {position}"] if position < promised else []
        faults += _misread(table, position, readers)
        land(table, len(landing.landed))
        return faults + _misread(table, ROWS * len(landing.landed), readers)
    except Exception as error:
        return [f"the stream does not go on: {type(error).__name__}: {error}"]


def _misread(table: Delta, rows: int, readers: Mapping[str, Reader]) -> list[str]:
    """Return who sees anything but so many rows, each once."""
    if not table.exists():
        return []
    found = {name: read(table.location.uri) for name, read in readers.items()}
    return [f"{name} sees {seen}, not {rows} rows" for name, seen in found.items() if seen != (rows, rows, rows)]


if __name__ == "__main__":
    land(Delta(location_of(sys.argv[1])), int(sys.argv[2]))
