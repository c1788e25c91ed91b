"""How many headers a second each column decoder reads on one core.

The buffer is what a capture of a lossy day looks like: mostly data of about a hundred bytes, a quarter of answers, and
one datagram in a hundred that is cut. It is decoded in chunks that stay in the cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import process_time
from zlib import crc32

import numpy as np

from fairway.core.columns import Columns, Integers
from fairway.protocols import NAMES, columns
from fairway.protocols.mrp import wire as mrp
from fairway.protocols.pydevts import wire as pydevts
from fairway.protocols.rup import wire as rup
from fairway.protocols.udpc import wire as udpc

ROWS = 1 << 16
CHUNK_ROWS = 1 << 12
"""About 400 KiB of datagrams: larger than the columns made of them, smaller than a core's second cache."""
BODY_BYTES = 100
ANSWER_EVERY = 4
DAMAGED_EVERY = 97


def _udpc(number: int) -> bytes:
    if number % ANSWER_EVERY == 0:
        return udpc.encode(udpc.ImportantAck(index=number + 1, session_id=7, ack_index=number + 9))
    return udpc.encode(udpc.Important(index=number + 1, session_id=7, body=bytes(BODY_BYTES)))


def _mrp(number: int) -> bytes:
    sequence, stamp = number & 0xFFFF, number * 3 & 0xFFFF
    if number % ANSWER_EVERY == 0:
        return mrp.ack_bytes(1, 7, sequence, stamp)
    return mrp.stamped_header(7, 1, sequence, stamp) + bytes(BODY_BYTES)


def _rup(number: int) -> bytes:
    identity = f"{number // 1_000:032x}"
    position, total = number % 1_000 * BODY_BYTES, 1_000 * BODY_BYTES
    if number % ANSWER_EVERY == 0:
        return rup.encode(rup.Confirm(id=identity, position=position))
    return rup.encode(
        rup.Data(start=position == 0, id=identity, position=position, total=total, body=bytes(BODY_BYTES))
    )


def _pydevts(number: int) -> bytes:
    body = number.to_bytes(BODY_BYTES, "big")
    packet = pydevts.Packet(success=0, message_id=number & 0xFFFF, crc=crc32(body), body=body)
    if number % ANSWER_EVERY == 0:
        return pydevts.encode(pydevts.Ack(success=0, message_id=packet.message_id, crc=packet.crc))
    return pydevts.encode(packet)


MAKERS: dict[str, Callable[[int], bytes]] = {"udpc": _udpc, "mrp": _mrp, "rup": _rup, "pydevts": _pydevts}


def mixed(protocol: str, rows: int) -> tuple[bytes, Integers, Integers]:
    """Makes a buffer of datagrams of one protocol and gives it with their places."""
    datagrams = [MAKERS[protocol](number) for number in range(rows)]
    for number in range(0, rows, DAMAGED_EVERY):
        datagrams[number] = datagrams[number][: number % 12]
    lengths = np.array([len(datagram) for datagram in datagrams], dtype=np.int64)
    return b"".join(datagrams), np.cumsum(lengths) - lengths, lengths


def measure(seconds: int = 1, rows: int = ROWS) -> Iterator[dict[str, object]]:
    """Return one row per protocol."""
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
