"""The trace of a run: a pcapng file of raw IP packets, with one interface for each point where datagrams are seen."""

from __future__ import annotations

from collections.abc import Sequence

from fairway.capture.frames import LinkType, Write
from fairway.capture.packets import Endpoint, encode_ip
from fairway.capture.pcapng import PcapngWriter
from fairway.core.machine import Buffer


class TraceWriter:
    """Writes every datagram it is told of, as it would have been captured at a named point."""

    def __init__(self, write: Write, points: Sequence[str] = ("client", "server")) -> None:
        self._frames = PcapngWriter(write, points, LinkType.RAW)

    def datagram(self, at_ns: int, source: Endpoint, destination: Endpoint, payload: Buffer, point: int = 0) -> None:
        self._frames.frame(at_ns, encode_ip(source, destination, payload), point)
