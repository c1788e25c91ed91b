"""From rows of the journal to a Parquet segment, column by column."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fairway.core.tables import SEGMENT
from fairway.gateway.journal import Row
from fairway.store.locations import Location
from fairway.store.parquet import arrow_schema

GROUP_BYTES_MAX = 32 << 20
"""Bodies in a row group, unless a single one is larger."""
PLAIN_ABOVE_BYTES = 32 << 20
"""With a message above this a segment's bodies are not compressed: Parquet holds a value and its compressed copy at
once. The table compresses it."""

SCHEMA = arrow_schema(SEGMENT)
REPEATING = ("gateway", "protocol", "peer", "device", "kind")
"""Texts that many messages share."""
_FOLDED = pa.schema(
    [one.with_type(pa.dictionary(pa.int32(), pa.string())) if one.name in REPEATING else one for one in SCHEMA]
)


def table(gateway: str, rows: Sequence[Row], spool: Path) -> pa.Table:
    """Return the messages of rows as a table with the columns of a segment, texts that repeat as dictionaries."""
    counts = np.array([row.messages for row in rows], dtype=np.int64)
    row_of = pa.array(np.repeat(np.arange(len(rows), dtype=np.int64), counts))
    index = np.arange(counts.sum(), dtype=np.int64) - np.repeat(np.cumsum(counts) - counts, counts)

    def spread(values: list[Any], type_: pa.DataType) -> pa.Array:
        return pa.array(values, type_).take(row_of)

    def folded(values: Sequence[str | None]) -> pa.Array:
        """Parquet takes a dictionary as it is, and need not find out that texts repeat."""
        return pa.array(values, pa.string()).dictionary_encode().take(row_of)

    peers = [_address(row.peer) for row in rows]
    columns = {
        "gateway": folded([gateway] * len(rows)),
        "gateway_offset": pa.array(np.repeat(np.array([row.offset for row in rows], dtype=np.int64), counts) + index),
        "protocol": folded([row.protocol for row in rows]),
        "port": spread([row.port for row in rows], pa.int32()),
        "peer": folded([host for host, _ in peers]),
        "peer_port": spread([port for _, port in peers], pa.int32()),
        "device": folded([row.device for row in rows]),
        "session": spread([row.session for row in rows], pa.int64()),
        "id": _identities(rows, counts, index),
        "kind": folded([row.kind for row in rows]),
        "reliable": spread([bool(row.reliable) for row in rows], pa.bool_()),
        "received": spread([row.received_us for row in rows], pa.timestamp("us", tz="UTC")),
        "body": _bodies(rows, spool),
    }
    return pa.table([columns[name] for name in SCHEMA.names], schema=_FOLDED)


def _address(peer: str) -> tuple[str, int]:
    """Return the host as captures show it, without the brackets of IPv6, and the port.

    A socket for both families, which another process may have opened, shows IPv4 as IPv6: ::ffff:192.0.2.1.
    """
    host, _, port = peer.rpartition(":")
    host = host.strip("[]")
    return host.removeprefix("::ffff:") if "." in host else host, int(port)


def _identities(rows: Sequence[Row], counts: np.ndarray[Any, Any], index: np.ndarray[Any, Any]) -> pa.Array:
    """Return the id of every message as text: names as they are, numbers counted on from the first of their row."""
    if all(isinstance(row.id, int) for row in rows):
        first = np.array([row.id for row in rows], dtype=np.int64)
        return pa.array(np.repeat(first, counts) + index).cast(pa.string())
    return pa.array([identity for row in rows for identity in _names(row)], pa.string())


def _names(row: Row) -> list[str]:
    return [row.id] if isinstance(row.id, str) else [str(row.id + position) for position in range(row.messages)]


def _bodies(rows: Sequence[Row], spool: Path) -> pa.Array:
    """Join the bodies without looking at each: their sizes give the offsets."""
    pieces = [row.body if row.spool is None else _mapped(spool / row.spool, row.size_bytes or 0) for row in rows]
    sizes = np.concatenate([_sizes(row) for row in rows])
    ends = np.zeros(len(sizes) + 1, dtype=np.int32)
    np.cumsum(sizes, out=ends[1:])
    data = pa.py_buffer(pieces[0] if len(pieces) == 1 else b"".join(pieces))
    return pa.Array.from_buffers(pa.binary(), len(sizes), [None, pa.py_buffer(ends), data])


def _mapped(path: Path, size: int) -> mmap.mmap | bytes:
    """Return the bytes of a file without a copy in memory."""
    with open(path, "rb") as file:
        if os.fstat(file.fileno()).st_size < size:
            raise OSError(f"{path} is shorter than the {size} bytes of its message")
        return mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) if size else b""


def _sizes(row: Row) -> np.ndarray[Any, Any]:
    if row.sizes is not None:
        return np.frombuffer(row.sizes, dtype="<u4").astype(np.int64)
    return np.full(row.messages, row.size_bytes, dtype=np.int64)


def write(gateway: str, rows: Sequence[Row], spool: Path, path: Path) -> int:
    """Write a segment, not yet synced, and return its size in bytes."""
    # Bounds of bodies help nobody, and each would copy a large one. What differs in every message needs no dictionary.
    others = [name for name in SCHEMA.names if name != "body"]
    compression = dict.fromkeys(others, "zstd") | {"body": "none" if _largest(rows) > PLAIN_ABOVE_BYTES else "zstd"}
    with pq.ParquetWriter(
        path,
        _FOLDED,
        compression=compression,
        use_dictionary=[*REPEATING, "port", "peer_port", "session"],
        write_statistics=others,
        store_schema=False,
    ) as writer:
        for group in groups(rows):
            writer.write_table(table(gateway, group, spool), sum(row.messages for row in group))
    pa.default_memory_pool().release_unused()
    return path.stat().st_size


def equal(landing: Location, name: str, path: Path) -> bool:
    """Return whether a segment that is there already holds the rows of one on this machine."""
    with landing.open(name) as there, pq.ParquetFile(there) as found, pq.ParquetFile(path) as own:
        return found.num_row_groups == own.num_row_groups and all(
            found.read_row_group(number).equals(own.read_row_group(number)) for number in range(own.num_row_groups)
        )


def groups(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    """Cut rows into groups of bounded size, at least one row each: that much lies in memory at a time."""
    begin = size = 0
    for index, row in enumerate(rows):
        more = row.body_bytes
        if index > begin and size + more > GROUP_BYTES_MAX:
            yield rows[begin:index]
            begin, size = index, 0
        size += more
    yield rows[begin:]


def _largest(rows: Sequence[Row]) -> int:
    return max((row.body_bytes for row in rows if row.spool is not None), default=0)
