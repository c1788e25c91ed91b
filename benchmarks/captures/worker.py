"""Fairway on Spark over one capture, in this process alone: prints one JSON object per measurement.

python -m benchmarks.captures.worker '{"path": ..., "cores": 2, "rounds": 3, "folder": ...}'
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

PORTS = {9_000: "udpc", 9_001: "mrp", 9_002: "rup", 9_003: "pydevts"}
"""The protocols of the ports of the made capture."""
COLUMNS = ("at_ns", "source_port", "destination_port", "frame_bytes", "payload_bytes", "truncated", "protocol", "kind")


@dataclass(frozen=True, slots=True)
class Assignment:
    path: str
    cores: int
    rounds: int
    folder: str


def measure(assignment: Assignment) -> Iterator[dict[str, Any]]:
    """Return a row for each step: how long it took cold, and then each further time."""
    from fairway.lake.session import start

    started = perf_counter()
    spark = start("fairway bench", master=f"local[{assignment.cores}]", settings={"spark.driver.memory": "2g"})
    started_s = perf_counter() - started
    steps: dict[str, Callable[[Any, Assignment], object]] = {
        "decoded and grouped": grouped,
        "packets table": packets_table,
        "all tables": all_tables,
    }
    for name, step in steps.items():
        times: list[float] = []
        for _ in range(1 + assignment.rounds):
            began = perf_counter()
            step(spark, assignment)
            times.append(perf_counter() - began)
        yield {"step": name, "cores": assignment.cores, "session_s": started_s, "cold_s": times[0], "warm_s": times[1:]}
    spark.stop()


def grouped(spark: Any, assignment: Assignment) -> list[Any]:
    """Decode all datagrams in the source, by their ports, and add them up by what they are."""
    from pyspark.sql import functions as F

    from fairway.lake.captures.source import load

    frame = load(spark, [assignment.path], columns=COLUMNS, port_map=PORTS, part_bytes=_part_bytes(assignment))
    found: list[Any] = (
        frame.groupBy("protocol", "kind")
        .agg(
            F.count("*").alias("datagrams"),
            F.sum("frame_bytes").alias("frame_bytes"),
            F.sum("payload_bytes").alias("payload_bytes"),
            F.count_if("truncated").alias("truncated"),
            F.min("at_ns").alias("first_ns"),
            F.max("at_ns").alias("last_ns"),
            F.min(F.least("source_port", "destination_port")).alias("lowest_port"),
            F.max(F.greatest("source_port", "destination_port")).alias("highest_port"),
        )
        .collect()
    )
    return found


def _part_bytes(assignment: Assignment) -> int:
    """At least four parts, so that both cores work also on a small file."""
    from fairway.lake.captures.parts import PART_BYTES

    return min(PART_BYTES, -(-Path(assignment.path).stat().st_size // 4))


def packets_table(spark: Any, assignment: Assignment) -> int:
    """Write the data files of `packets`; return the number of rows."""
    from fairway.core.tables import PACKETS
    from fairway.lake.analysis.changes import survey
    from fairway.lake.analysis.enrich import Enrich, sorted_by_flow
    from fairway.lake.analysis.state import State
    from fairway.lake.captures.source import load_parts
    from fairway.lake.sink import put_through
    from fairway.store.lakes import Lake

    lake = Path(assignment.folder, "lake")
    shutil.rmtree(lake, ignore_errors=True)
    state, part_bytes = State.of(Lake(lake)), _part_bytes(assignment)
    (capture,) = survey(spark, [assignment.path], (), part_bytes).new
    enrich = Enrich({one.number: one.capture for one in state.joined([capture], False)}, {})
    records = sorted_by_flow(load_parts(spark, capture.parts, part_bytes=part_bytes))
    files, _ = put_through(records, state.delta(PACKETS), enrich)
    return sum(file.rows for file in files)


def all_tables(spark: Any, assignment: Assignment) -> None:
    """Do what `fairway analyze` does with one capture and an empty lake."""
    from fairway.lake.analysis.job import analyze
    from fairway.store.lakes import Lake

    lake = Path(assignment.folder, "lake")
    shutil.rmtree(lake, ignore_errors=True)
    done = analyze(spark, Lake(lake), [assignment.path])
    assert not done.problems, done.problems


if __name__ == "__main__":
    assigned = Assignment(**json.loads(sys.argv[1]))
    # With `local[1]` alone a task's Python and the JVM behind it would share two cores.
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: assigned.cores])
    for row in measure(assigned):
        print(json.dumps(row), flush=True)
