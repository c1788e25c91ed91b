"""One episode of very many packets through `enrich`, in a process of its own.

python -m tests.lake.analysis.giant 2000000     prints how many bytes for each packet the process had at most
"""

from __future__ import annotations

import resource
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from benchmarks.captures.made import ETHERNET, MAKERS, START_NS
from fairway.capture.frames import LinkType
from fairway.capture.packets import encode_ip
from fairway.capture.pcap import PcapWriter
from fairway.core.tables import RECORDS
from fairway.lake.analysis.enrich import Capture, Enrich
from fairway.lake.analysis.episodes import Span
from fairway.lake.captures.files import identity, number_of, seen
from fairway.lake.captures.parts import batches, exact_parts
from fairway.lake.captures.readings import Source
from fairway.lake.captures.rows import arrow_batch

CLIENT, SERVER = ("10.0.0.1", 40_000), ("10.9.0.1", 9_001)


def write(path: Path, packets: int) -> None:
    """Write one conversation of mrp: of every four packets three are data and one an acknowledgement."""
    with path.open("wb") as file:
        writer = PcapWriter(file.write, LinkType.ETHERNET)
        for number in range(packets):
            answer = number % 4 == 3
            payload = MAKERS["mrp"](1, number // 4 * 3 + min(number % 4, 2), answer)
            ends = (SERVER, CLIENT) if answer else (CLIENT, SERVER)
            writer.frame(START_NS + number * 20_000, ETHERNET + encode_ip(*ends, payload))


def main(packets: int) -> None:
    """Compute the rows of the episode and throw them away, as a task does that has written them."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "giant.pcap")
        write(path, packets)
        file = seen(str(path))
        file_id = identity(file)

        def records() -> Iterator[pa.RecordBatch]:
            for part in exact_parts(file, file_id, 1 << 26):
                for batch in batches(part, pieces=True):
                    yield arrow_batch(batch, RECORDS.names, payload=False)

        capture = Capture(Source(file_id, file.name, payload=False), Span(0, 0))
        enrich = Enrich({number_of(file_id): capture}, {9_001: "mrp"})
        rows = sum(len(batch) for batch in enrich(records()))
    assert rows == packets
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 // packets)


if __name__ == "__main__":
    main(int(sys.argv[1]))
