"""How many headers a second each column decoder reads on one core.

The buffer is what a capture of a lossy day looks like: mostly data of about a hundred bytes, a quarter of answers, and
one datagram in a hundred that is cut. It is decoded in chunks that stay in the cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import process_time

import numpy as np

from benchmarks.captures.made import MAKERS
from fairway.core.columns import Columns, Integers
from fairway.protocols import NAMES, columns

ROWS = 1 << 16
CHUNK_ROWS = 1 << 12
"""About 400 KiB of datagrams: larger than the columns made of them, smaller than a core's second cache."""
DATAGRAM_BYTES = 128
ANSWER_EVERY = 4
DAMAGED_EVERY = 97


def mixed(protocol: str, rows: int) -> tuple[bytes, Integers, Integers]:
    """Return a buffer of datagrams of one protocol, with their offsets and lengths."""
    datagrams = [MAKERS[protocol](0, number, number % ANSWER_EVERY == 0)[:DATAGRAM_BYTES] for number in range(rows)]
    for number in range(0, rows, DAMAGED_EVERY):
        datagrams[number] = datagrams[number][: number % 12]
    lengths = np.array([len(datagram) for datagram in datagrams], dtype=np.int64)
    return b"".join(datagrams), np.cumsum(lengths) - lengths, lengths


def measure(seconds: int = 1, rows: int = ROWS) -> Iterator[dict[str, object]]:
    for protocol in NAMES:
        yield _row(protocol, seconds, rows)


def _row(protocol: str, seconds: int, rows: int) -> dict[str, object]:
    data, offsets, lengths = mixed(protocol, rows)
    buffer = np.frombuffer(data, dtype=np.uint8)
    decode: Callable[..., Columns] = columns(protocol).decode_columns
    chunks = [slice(start, start + CHUNK_ROWS) for start in range(0, rows, CHUNK_ROWS)]
    malformed = sum(int((decode(buffer, offsets[chunk], lengths[chunk]).kind == 0).sum()) for chunk in chunks)
    headers, elapsed, started = 0, 0.0, process_time()
    while elapsed < max(seconds, 0.001):
        for chunk in chunks:
            decode(buffer, offsets[chunk], lengths[chunk])
        headers += rows
        elapsed = process_time() - started
    return {
        "protocol": protocol,
        "datagrams": rows,
        "mean_bytes": len(data) // rows,
        "malformed": malformed,
        "headers": headers,
        "headers_per_s": round(headers / elapsed),
    }
