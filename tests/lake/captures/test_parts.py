"""Every part of a file knows the damages before it."""

from __future__ import annotations

import struct
from pathlib import Path

from fairway.capture.columns.ranges import HEAD_BYTES, Range, form_of, records
from fairway.capture.packets import encode_ip
from fairway.capture.pcap import PcapWriter
from fairway.lake.captures.files import seen
from fairway.lake.captures.parts import Part, batches, exact_parts
from tests.lake.captures.traces import AT_NS, SERVER

FILE_ID = "0123456789abcdef0123456789abcdef"


def capture() -> bytearray:
    pieces: list[bytes] = []
    writer = PcapWriter(pieces.append)
    for number in range(60):
        writer.frame(AT_NS + number * 1_000_000, encode_ip(("10.0.0.1", 40_000), SERVER, b"%04d" % number))
    return bytearray(b"".join(pieces))


def test_every_part_of_a_file_knows_the_damages_before_it(tmp_path: Path) -> None:
    data = capture()
    form = form_of(bytes(data[:HEAD_BYTES]))
    (found,) = records(form, memoryview(bytes(data)), Range(form.start, len(data), 0))
    for victim in (10, 40):
        struct.pack_into("<I", data, int(found.offset[victim]) + 8, 0xFFFFFFFF)
    path = tmp_path / "damaged.pcap"
    path.write_bytes(data)
    file = seen(str(path))
    whole = [count for batch in batches(Part(file, FILE_ID)) for count in batch.gaps.tolist()]
    assert sorted(set(whole)) == [0, 1, 2]
    parts = exact_parts(file, FILE_ID, 400)
    assert len(parts) > 5
    assert [count for part in parts for batch in batches(part) for count in batch.gaps.tolist()] == whole
