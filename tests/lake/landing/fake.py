"""A gateway without a network: it seals segments, and keeps a journal of what it has acknowledged."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fairway.core import layout
from fairway.core.tables import PROTOCOLS, SEGMENT
from fairway.lake.schemas import arrow_schema
from fairway.store.locations import Location, location_of

DAY_US = 86_400_000_000
NOON_US = int(datetime(2026, 3, 1, 12, tzinfo=UTC).timestamp() * 1e6)


def message_body(gateway: str, offset: int) -> bytes:
    """What every message of a fake gateway holds, unless it is told otherwise."""
    return f'{{"sensor": "{gateway}", "celsius": {offset % 40}.5}}'.encode()


class FakeGateway:
    """Seals segments in order. Offsets and bodies are a function of the gateway's name."""

    def __init__(
        self, lake: Path, name: str, *, days: int = 1, shared: bool = False, landing: Location | None = None
    ) -> None:
        """`landing` is where segments go, if not into the lake's folder: then that has the journal only."""
        self.name = name
        self.next = 0
        self._landing = (landing or location_of(lake / layout.LANDING)) / name
        self.folder = lake / layout.LANDING / name
        self.folder.mkdir(parents=True, exist_ok=True)
        home = lake / layout.GATEWAYS / name
        home.mkdir(parents=True, exist_ok=True)
        self._days = days
        self._journal = sqlite3.connect(home / layout.JOURNAL, isolation_level=None, check_same_thread=not shared)
        self._journal.execute("PRAGMA journal_mode = WAL")
        self._journal.execute('CREATE TABLE messages ("offset" INTEGER PRIMARY KEY, count INTEGER)')
        self._journal.execute("CREATE TABLE sealed (first INTEGER PRIMARY KEY, last INTEGER)")

    def acknowledge(self, count: int) -> tuple[int, int]:
        """Commit messages to the journal and return their offsets."""
        first = self.next
        self._journal.execute("INSERT INTO messages VALUES (?, ?)", (first, count))
        self.next += count
        return first, self.next - 1

    def seal(self, count: int, body: Callable[[str, int], bytes] = message_body) -> Path:
        """Acknowledge messages and put them into a segment, in the order of steps that a gateway keeps."""
        first, last = self.acknowledge(count)
        path = self.folder / layout.segment_name(first, last)
        aside = self.folder / f".{path.name}"
        pq.write_table(self.table(first, last, body), aside, compression="zstd")
        self._landing.publish(aside, path.name)
        self._journal.execute("INSERT INTO sealed VALUES (?, ?)", (first, last))
        self._journal.execute('DELETE FROM messages WHERE "offset" = ?', (first,))
        return path

    def table(self, first: int, last: int, body: Callable[[str, int], bytes] = message_body) -> pa.Table:
        """Return the rows of a segment."""
        offsets = np.arange(first, last + 1)
        received_us = NOON_US + (offsets % self._days) * DAY_US + offsets
        columns = {
            "gateway": [self.name] * len(offsets),
            "gateway_offset": offsets,
            "protocol": [PROTOCOLS[offset % 4] for offset in offsets],
            "port": [9_000 + offset % 2 for offset in offsets],
            "peer": ["127.0.0.1"] * len(offsets),
            "peer_port": [5_000] * len(offsets),
            "device": [None] * len(offsets),
            "session": [None if offset % 4 > 1 else int(offset) for offset in offsets],
            "id": [str(offset) for offset in offsets],
            "kind": ["message"] * len(offsets),
            "reliable": [True] * len(offsets),
            "received": received_us.tolist(),
            "body": [body(self.name, int(offset)) for offset in offsets],
        }
        return pa.table(columns, schema=arrow_schema(SEGMENT))

    def close(self) -> None:
        """Close the journal."""
        self._journal.close()
