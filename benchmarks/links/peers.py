"""Who is measured on a link, with the settings that its authors recommend for such a one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from benchmarks.links.rows import Link
from benchmarks.transport.loads import Load
from benchmarks.transport.peers import Peer

DATAGRAM_BYTES = 1_200
BUFFER_BYTES_MIN = 1 << 18
MEGABYTE = 1_000_000
SMALL_BYTES = 200
LOADS = STREAM, MESSAGE, TRICKLE = "bulk", "message", "trickle"


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
