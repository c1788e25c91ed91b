"""Sound captures record by record, read as a whole."""

from __future__ import annotations

from dataclasses import dataclass

from fairway.capture.columns.ranges import HEAD_BYTES, Range, form_of, records


@dataclass(frozen=True, slots=True)
class Frame:
    """One captured frame. `data` may be shorter than the `wire_bytes` that were on the wire.

    `link_type` stays a plain number: a file may hold link types that Fairway does not read.
    """

    at_ns: int
    link_type: int
    data: bytes
    wire_bytes: int
    point: str | None = None
    """The name of the capture point, where the file gives one."""


def read_capture(data: bytes) -> list[Frame]:
    """Return every frame of a pcap or pcapng file, in order; nothing of it may be damaged."""
    form, frames = form_of(data[:HEAD_BYTES]), []
    for batch in records(form, memoryview(data), Range(form.start, len(data), 0)):
        assert not batch.damage.any()
        columns = (batch.at_ns, batch.link_type, batch.data_offset, batch.captured, batch.wire_bytes, batch.point)
        for at_ns, link_type, start, captured, wire_bytes, point in zip(*map(list, columns), strict=True):
            name = batch.points[point] or None
            frames.append(Frame(int(at_ns), int(link_type), data[start : start + captured], int(wire_bytes), name))
    return frames
