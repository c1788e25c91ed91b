"""The links that are measured, with rates, round trips and losses that real ones have, and who is measured on them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from benchmarks.bottleneck import Path
from benchmarks.transport.loads import Load
from benchmarks.transport.peers import Peer

QUEUE_BYTES_MIN = 64 << 10
"""A short link has a queue all the same."""


@dataclass(frozen=True, kw_only=True)
class Link(Path):
    """One link, the same in both directions."""

    name: str
    title: str

    @property
    def queue_bytes(self) -> int:
        return max(QUEUE_BYTES_MIN, self.product_bytes)


ROWS = {
    row.name: row
    for row in (
        Link(name="lan", title="LAN", rate_mbit=200, round_trip_ms=1),
        Link(name="wifi", title="office Wi-Fi", rate_mbit=100, round_trip_ms=10, loss=0.005, bursts=True),
        Link(name="lte", title="LTE", rate_mbit=20, round_trip_ms=50, loss=0.01, jitter_ms=10),
        Link(name="bad-lte", title="bad LTE", rate_mbit=5, round_trip_ms=100, loss=0.05, bursts=True),
        Link(name="satellite", title="satellite", rate_mbit=20, round_trip_ms=600, loss=0.01),
        Link(name="ocean", title="ocean", rate_mbit=100, round_trip_ms=150, loss=0.001),
    )
}


DATAGRAM_BYTES = 1_200
BUFFER_BYTES_MIN = 1 << 18
MEGABYTE = 1_000_000
SMALL_BYTES = 200
LOADS = STREAM, MESSAGE, TRICKLE, REQUEST, SHARED = "bulk", "message", "trickle", "request", "shared"
PAIRS = (("rup", "rup"), ("rup", "tcp-cubic"), ("rup", "tcp-bbr"), ("tcp-cubic", "tcp-bbr"))
"""Who share a link; the last pair says what the link makes of others."""


class Entry(NamedTuple):
    """A peer with what its messages measure: bytes of each in bulk, and of each piece of 1 MB; 0 is not measured."""

    peer: Peer
    bulk_bytes: int
    piece_bytes: int
    trickles: bool = True
    ours: bool = False


def entries(row: Link) -> Iterator[Entry]:
    """Return the peers of a link: windows and buffers of two bandwidth-delay products where they are set by hand."""
    window_bytes = max(BUFFER_BYTES_MIN, 2 * row.product_bytes)
    for congestion in ("cubic", "bbr"):
        settings = {"congestion": congestion, "buffer_bytes": str(window_bytes)}
        title = f"TCP {congestion.upper()}"
        yield Entry(Peer(f"tcp-{congestion}", title, "tcp", settings, datagrams=False), 65_000, MEGABYTE)
    yield Entry(Peer("aioquic", "aioquic", "quic", {"congestion": "cubic"}, needs="aioquic"), 65_000, MEGABYTE)
    yield Entry(Peer("pyenet", "pyenet", "enet_peer", needs="enet"), 32_000, 32_000)
    window = {"window": str(window_bytes // DATAGRAM_BYTES)}
    yield Entry(Peer("kcp", "kcp", "kcp_peer", window, needs="kcp"), 32_000, 32_000)
    for protocol, bulk, piece, trickles in (
        ("rup", 250_000, MEGABYTE, False),
        ("udpc", 1_150, 0, True),
        ("mrp", 1_150, 0, True),
    ):
        settings = {"protocol": protocol, "controller": "model", "io": "auto"}
        yield Entry(Peer(protocol, protocol, "endpoints", settings), bulk, piece, trickles, ours=True)


def loads(entry: Entry, row: Link) -> Iterator[Load]:
    in_flight = 2 * max(BUFFER_BYTES_MIN, 2 * row.product_bytes)
    yield Load(STREAM, "awaited", entry.bulk_bytes, STREAM, "stream", in_flight)
    if entry.piece_bytes:
        yield Load(MESSAGE, "awaited", entry.piece_bytes, "1 MB", "once", MEGABYTE)
    if entry.trickles:
        yield Load(TRICKLE, "awaited", SMALL_BYTES, TRICKLE, "trickle")
        yield Load(REQUEST, "awaited", SMALL_BYTES, REQUEST, "ask")
