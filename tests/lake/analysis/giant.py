"""One episode of very many packets becomes rows of `packets` in files, in a process that does nothing else.

python -m tests.lake.analysis.giant 20000000 mrp           prints how many megabytes that process had at the most
python -m tests.lake.analysis.giant 20000000 piggyback     the same for mrp's other layout
python -m tests.lake.analysis.giant 200000 mrp payload     the same with large bodies, which are kept

That process does what a Python worker does with its part of the shuffle: batches of records come through a pipe, in the
order of time, and files of the table are written. What it measures is all of its resident memory.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.captures.made import ETHERNET, MAKERS, START_NS
from fairway.capture.frames import LinkType
from fairway.capture.packets import encode_ip
from fairway.capture.pcap import PcapWriter
from fairway.core.tables import PACKETS, RECORDS
from fairway.lake.analysis.enrich import Enrich
from fairway.lake.captures.files import Capture
from fairway.lake.schemas import arrow_schema
from fairway.lake.sink import write_batches
from fairway.protocols.mrp import wire as mrp
from tests.lake.captures.reading import records_of

CLIENT, SERVER = ("10.0.0.1", 40_000), ("10.9.0.1", 9_001)
PIECE = 200_000
"""So many packets are made at a time."""
BATCH_ROWS = 10_000
"""As many as Spark passes on at a time."""
KEPT = b" and more" * 128
"""Stands behind bodies that are kept."""


def _piggyback(_: int, number: int, answer: bool) -> bytes:
    """A server that has sent one message long ago: all data acknowledges that, and bare answers repeat its number."""
    sequence = number + 1 & 0xFFFF
    if answer:
        return mrp.piggyback_prefix(7, 1) + mrp.pair(1, sequence) + b"hello" * (number == 2)
    return mrp.piggyback_prefix(1, 7) + mrp.pair(sequence, int(number > 2)) + b"%010d" % number


SHAPES = {**MAKERS, "piggyback": _piggyback}


def write(path: Path, protocol: str, numbers: range, more: bytes = b"") -> None:
    """Write a part of one conversation: of every four packets three are data and one an acknowledgement."""
    with path.open("wb") as file:
        writer = PcapWriter(file.write, LinkType.ETHERNET)
        for number in numbers:
            answer = number % 4 == 3
            payload = SHAPES[protocol](1, number // 4 * 3 + min(number % 4, 2), answer) + more * (not answer)
            ends = (SERVER, CLIENT) if answer else (CLIENT, SERVER)
            writer.frame(START_NS + number * 20_000, ETHERNET + encode_ip(*ends, payload))


def records(packets: int, protocol: str, *, payload: bool = False) -> Iterator[pa.Table]:
    """Return the records of a conversation, as if they came from one file."""
    with tempfile.TemporaryDirectory() as folder:
        for start in range(0, packets, PIECE):
            path = Path(folder, "piece.pcap")
            write(path, protocol, range(start, min(start + PIECE, packets)), KEPT if payload else b"")
            piece = records_of(path, payload=payload)
            moved = {"file_id": np.ones(len(piece), np.int64), "frame": start + np.arange(1, len(piece) + 1)}
            moved["offset"] = moved["frame"] * 1_000
            columns = [pa.array(moved[name]) if name in moved else piece[name] for name in RECORDS.names]
            yield pa.table(columns, arrow_schema(RECORDS))


def send(packets: int, protocol: str, *, payload: bool) -> None:
    """Write the records to the standard output."""
    with pa.ipc.new_stream(sys.stdout.buffer, arrow_schema(RECORDS)) as stream:
        for piece in records(packets, protocol, payload=payload):
            stream.write_table(piece, max_chunksize=BATCH_ROWS)


def main(packets: int, protocol: str, *, payload: bool) -> None:
    """Write the packets of the episode, whose records another process sends."""
    command = [sys.executable, "-m", "tests.lake.analysis.giant", *sys.argv[1:], "send"]
    enrich = Enrich({1: Capture("id", "giant.pcap", payload)}, {})
    with tempfile.TemporaryDirectory() as folder, subprocess.Popen(command, stdout=subprocess.PIPE) as sender:
        batches = iter(pa.ipc.open_stream(sender.stdout))
        list(write_batches(folder, arrow_schema(PACKETS), PACKETS.partitions, batches, work=enrich))
    assert enrich.protocols == {"mrp" if protocol == "piggyback" else protocol}
    assert [one.rows for one in enrich.counts.values()] == [packets]
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1_000)


if __name__ == "__main__":
    options = sys.argv[3:]
    (send if "send" in options else main)(int(sys.argv[1]), sys.argv[2], payload="payload" in options)
