"""Captures on Spark beside tshark and dpkt: the capture, Fairway on one core and on all, the peers around it."""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from benchmarks.captures.made import make_capture
from benchmarks.captures.worker import Assignment
from benchmarks.frame import Goal, Key, Report, Results, Row, Tables, measured, ratios
from fairway.core.errors import FairwayError

FIELDS = (
    *("frame.number", "frame.time_epoch", "frame.len", "ip.src", "udp.srcport", "ip.dst", "udp.dstport"),
    *("udp.length", "data.data"),
)


def tshark_seconds(path: Path, datagrams: int) -> float | None:
    """Return how long tshark takes to print a few fields of so many frames as text; None where it is not installed."""
    program = shutil.which("tshark")
    if program is None:
        return None
    command = [program, "-n", "-r", str(path), "-c", str(datagrams), "-T", "fields"]
    for field in FIELDS:
        command += ["-e", field]
    started = perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return perf_counter() - started


def dpkt_seconds(path: Path, datagrams: int) -> float | None:
    """Return how long dpkt takes for so many frames, with one header unpacked; None where it is not installed."""
    try:
        import dpkt
    except ImportError:
        return None
    header = struct.Struct("!IIIB")
    sizes: dict[tuple[int, int], int] = {}
    started = perf_counter()
    with open(path, "rb") as file:
        for number, (_, frame) in enumerate(dpkt.pcap.Reader(file)):
            if number == datagrams:
                break
            udp = dpkt.ethernet.Ethernet(frame).data.data
            flag = header.unpack_from(udp.data)[3] if len(udp.data) >= header.size else -1
            key = (udp.dport, flag)
            sizes[key] = sizes.get(key, 0) + len(udp.data)
    return perf_counter() - started


PEERS = {"tshark": tshark_seconds, "dpkt": dpkt_seconds}


PEER_DATAGRAMS_MAX = 300_000
"""The peers' rates do not change with the size of the file, and they are slow."""
COLD, STEADY, GROUPED = "cold", "steady", "decoded and grouped"
GOALS = (
    (GROUPED, "tshark", 20.0),
    (GROUPED, "dpkt", 8.0),
    ("packets table", "tshark", 6.0),
    ("all tables", "tshark", 3.0),
)
"""A step on all cores, what it is compared with, and how many times that it must be."""
SCALING_GOAL = 0.8
"""From one core to all: at least this share of as many times the rate."""


class BenchFailed(FairwayError):
    """A measurement did not come to its end; the message holds what was said last."""


def run(results: Results, datagrams: int, report: Report) -> None:
    """Measure Fairway for each number of cores, and the peers around it: a machine's speed changes by the hour."""
    every = sorted({1, len(os.sched_getaffinity(0))})
    steps = 2 + 2 * len(every)
    with tempfile.TemporaryDirectory(prefix="fairway-bench-") as folder:
        path = Path(folder, "mixed.pcap")
        report(f"writing {datagrams:,} datagrams", 1, steps)
        make_capture(path, datagrams)
        for number, cores in enumerate(every):
            report(" and ".join(PEERS), 2 * number + 2, steps)
            _ask_peers(path, datagrams, results)
            report(f"Fairway on Spark, local[{cores}]", 2 * number + 3, steps)
            _add(results, _asked(Assignment(str(path), cores, results.rounds, folder)), datagrams)
        report(" and ".join(PEERS), steps, steps)
        _ask_peers(path, datagrams, results)


def _ask_peers(path: Path, datagrams: int, results: Results) -> None:
    few = min(datagrams, PEER_DATAGRAMS_MAX)
    for name, seconds in PEERS.items():
        taken = seconds(path, few)
        if taken is not None:
            _note(results, 1, STEADY, name, taken, few)


def _asked(assignment: Assignment) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "benchmarks.captures.worker", json.dumps(asdict(assignment))]
    ended = subprocess.run(command, check=False, capture_output=True, text=True)
    if ended.returncode:
        said = [line for line in ended.stderr.splitlines() if line.strip()] or ["nothing was said"]
        raise BenchFailed(f"Fairway on local[{assignment.cores}] was not measured: {said[-1]}")
    return [json.loads(line) for line in ended.stdout.splitlines() if line.startswith("{")]


def _add(results: Results, answers: list[dict[str, Any]], datagrams: int) -> None:
    """Add a worker's answers: cold with the start of Spark, and each of the warm rounds."""
    for answer in answers:
        if answer["step"] == GROUPED:
            _note(results, answer["cores"], COLD, GROUPED, answer["session_s"] + answer["cold_s"], datagrams)
        for taken in answer["warm_s"]:
            _note(results, answer["cores"], STEADY, answer["step"], taken, datagrams)


def _note(results: Results, cores: int, state: str, reader: str, seconds: float, datagrams: int) -> None:
    rounds = results.cells.setdefault(Key(str(cores), state, reader), [])
    rounds.append({"rate": datagrams / seconds, "seconds": seconds})


def _rate(results: Results, cores: str, reader: str) -> list[float | None]:
    """Return the median rate of a reader, if it was measured."""
    rates = [rate for rate in results.figures(cores, STEADY, reader) if rate]
    return [median(rates)] if rates else []


def goals(results: Results) -> Iterator[Goal]:
    """Judge the steps on all cores by the peers, and by one core."""
    cores = str(max((int(key.where) for key in results.cells), default=1))
    for step, peer, wanted in GOALS:
        yield Goal(step, f"times {peer}", wanted, ratios(_rate(results, cores, step), _rate(results, "1", peer)))
    if cores != "1":
        found = ratios(_rate(results, cores, GROUPED), _rate(results, "1", GROUPED))
        yield Goal(GROUPED, f"{cores} cores of linear", SCALING_GOAL, [times / int(cores) for times in found])


def show(results: Results) -> Tables:
    """Return a row for each reader, beside the peers that were measured, and the goals."""
    rows: list[Row] = []
    for cores, state, reader in results.cells:
        seconds, rate = (
            median(one for one in results.figures(cores, state, reader, figure) if one is not None)
            for figure in ("seconds", "rate")
        )
        peers = {name: found for name in PEERS if (found := _rate(results, "1", name))}
        times = {f"times {name}": round(ratios([rate], found)[0], 2) for name, found in peers.items()}
        rows.append(
            {"reader": reader, "cores": int(cores), "state": state, "seconds": round(seconds, 3)}
            | {"datagrams a second": f"{rate:,.0f}", **times}
        )
    return Tables({"Captures": rows, "Goals": [goal.row() for goal in measured(goals(results))]}, results.notes)
