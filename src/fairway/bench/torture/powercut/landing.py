"""What a stream does to the disk, recorded and cut: data files, commits, compaction, vacuum and checkpoints of a table.

Everything that writes in `fairway stream` is here but Spark, which writes nothing that counts: the tasks' own function
writes the files, and the driver's commits and tends. After a cut the table is opened as the stream does at its start;
what was landed before the cut must be there once, and landing the rest must end in every row once.

python -m fairway.bench.torture.powercut.landing TABLE BATCHES    is what is recorded
"""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from random import Random

import pyarrow as pa

from fairway.bench.torture.powercut.ground import Ground
from fairway.bench.torture.powercut.recording import check_strace, under_strace
from fairway.bench.torture.powercut.recovery import Moment
from fairway.bench.torture.powercut.trace import Event, read
from fairway.bench.torture.services import ServiceFailed
from fairway.core.layout import progress
from fairway.lake.sink import write_batches
from fairway.store import tending
from fairway.store.delta import DataFile, Delta
from fairway.store.files import make_folder
from fairway.store.places import place_of

ROWS = 5
SCHEMA = pa.schema([("number", pa.int64()), ("day", pa.date32())])
GATEWAY = progress("gateway")


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
        rows = pa.table([range(position, position + ROWS), [date(2026, 3, 1)] * ROWS], SCHEMA)
        (returned,) = write_batches(table.place.uri, SCHEMA, ["day"], iter(rows.to_batches()))
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
    command = [*under_strace(trace, "fairway.bench.torture.powercut.landing"), str(table), str(batches)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ServiceFailed(f"the recorded landing left with {done.returncode}: {done.stderr.splitlines()[-1:]}")
    landed = [(int(at_us), int(position)) for at_us, position in map(str.split, done.stdout.splitlines())]
    return Landing(table, read(trace, table), landed)


def cut_landing(landing: Landing, moment: Moment, folder: Path) -> list[str]:
    """Rebuild the table as the cut leaves it, start on it, and return what is wrong then."""
    cut_us = landing.events[moment.number].begin_us
    ground = Ground(landing.table)
    ground.follow(landing.events, cut_us)
    ground.build(folder, Random(moment.seed), moment.per_million)
    table = Delta(place_of(folder / landing.table.name))
    promised = max((position for at_us, position in landing.landed if at_us < cut_us), default=0)
    try:
        table.mend()
        position = table.position(table.open(), GATEWAY) if table.exists() else 0
        if position < promised or numbers(table) != list(range(position)):
            return [f"{promised} rows had landed, and the table is at {position} with {len(numbers(table))}"]
        land(table, len(landing.landed))
    except Exception as error:
        return [f"the stream does not go on: {type(error).__name__}: {error}"]
    found = numbers(table)
    return [] if found == list(range(ROWS * len(landing.landed))) else [f"in the end the table has {len(found)} rows"]


def numbers(table: Delta) -> list[int]:
    """Return the rows of a table, in order."""
    batches = table.rows(pa.schema([("number", pa.int64())])) if table.exists() else ()
    return sorted(number for batch in batches for number in batch.column(0).to_pylist())


if __name__ == "__main__":
    land(Delta(place_of(sys.argv[1])), int(sys.argv[2]))
