"""A capture of either kind, told apart by its first four bytes."""

from __future__ import annotations

from collections.abc import Iterator

from fairway.capture.frames import Frame
from fairway.capture.pcap import read_pcap
from fairway.capture.pcapng import SECTION_HEADER, read_pcapng
from fairway.capture.source import Read, Source


def read_capture(source: bytes | Read) -> Iterator[Frame]:
    """Gives every frame of a pcap or pcapng file, in order; raises `DamagedCapture` where it is damaged."""
    whole = Source(source)
    reader = read_pcapng if whole.peek(4) == SECTION_HEADER.to_bytes(4) else read_pcap
    return reader(whole.read)
