"""What the tables of captures hold when a run begins, and the commits of that run.

A table's position says which run has written it last. Where they differ, the last run did not reach the end.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from fairway.core.tables import ANALYSIS_TABLES, CAPTURES, PACKETS, Table
from fairway.lake.analysis.changes import UNTIMED, NewCapture
from fairway.lake.analysis.enrich import Counts
from fairway.lake.captures.files import Capture, Span, number_of
from fairway.lake.schemas import arrow_schema
from fairway.lake.sink import put_rows
from fairway.store.analyses import APPLICATION, dataset, tables
from fairway.store.delta import DamagedTable, DataFile, Delta
from fairway.store.lakes import Lake
from fairway.store.tending import CHECKPOINT_EVERY, HISTORY_S, checkpoint, history

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from deltalake.transaction import RemoveAction

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_STORED = ("file_id", "file", "path", "size_bytes", "records", "damages", "payload", "run")


@dataclass(frozen=True, slots=True)
class Captured:
    """A row of the table `captures`."""

    file_id: str
    file: str
    path: str
    size_bytes: int
    records: int
    damages: int
    span: Span
    payload: bool
    run: int
    is_new: bool = False

    @property
    def number(self) -> int:
        """The file's number in records."""
        return number_of(self.file_id)

    @property
    def capture(self) -> Capture:
        """What rows of packets say of it."""
        return Capture(self.file_id, self.file, self.payload, self.span)

    def counted(self, counts: Counts | None) -> Captured:
        """Return the row of a new file with what was read of it."""
        if counts is None or not self.is_new:
            return self
        return replace(self, records=counts.records, damages=counts.damages)

    def row(self, ports: str) -> dict[str, Any]:
        """Return the row as it is stored."""
        first, last = (_EPOCH + timedelta(microseconds=at_ns // 1_000) for at_ns in self.span)
        known = self.span != UNTIMED
        times = {"first": first if known else None, "last": last if known else None}
        return {name: getattr(self, name) for name in _STORED} | times | {"port_map": ports}

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Captured:
        """Return what a stored row says."""
        times = [(row[name] - _EPOCH) // timedelta(microseconds=1) * 1_000 for name in ("first", "last") if row[name]]
        return cls(**{name: row[name] for name in _STORED}, span=Span(*times) if times else UNTIMED)


class State:
    """The tables as they were when a run began, and what the run commits to them."""

    def __init__(self, deltas: Mapping[str, Delta]) -> None:
        self._deltas = deltas
        self.snapshots = {table.name: _opened(deltas[table.name], table) for table in ANALYSIS_TABLES}
        self.versions = {name: one.version() for name, one in self.snapshots.items()}
        """Of the tables when the run began."""
        self.committed: dict[str, int] = {}
        """By table, the version that this run has made."""
        self._begun = {name: deltas[name].position(one, APPLICATION) for name, one in self.snapshots.items()}
        self.run = max(self._begun.values())
        """The newest run; of a run that commits, its own number."""
        stored = dataset(deltas[CAPTURES.name], self.snapshots[CAPTURES.name]).to_table().to_pylist()
        ports = json.loads(stored[0]["port_map"]) if stored else {}
        self.port_map: dict[int, str] = {int(port): name for port, name in ports.items()}
        rows = [Captured.of(row) for row in stored]
        self.captures = [row for row in rows if row.run <= self._begun[PACKETS.name]]
        self.unfinished = [row.path for row in rows if row.run > self._begun[PACKETS.name]]
        """Files that a run has named, and whose packets it did not commit."""

    @classmethod
    def of(cls, lake: Lake) -> State:
        """Open the tables of a lake, and make those that are missing."""
        return cls(tables(lake.location))

    def delta(self, table: Table) -> Delta:
        """Return a table."""
        return self._deltas[table.name]

    @property
    def has_packets(self) -> bool:
        """Whether packets are made with what `captures` says."""
        return self._begun[PACKETS.name] == self._begun[CAPTURES.name]

    @property
    def has_derived(self) -> bool:
        """Whether the tables behind packets are made of these packets."""
        return all(run == self._begun[PACKETS.name] for name, run in self._begun.items() if name != CAPTURES.name)

    @property
    def is_whole(self) -> bool:
        """Whether the last run reached the end."""
        return len(set(self._begun.values())) == 1

    def joined(self, new: Sequence[NewCapture], payload: bool) -> list[Captured]:
        """Begin a run: return what the tables will be made of, without what is not counted yet."""
        self.run += 1
        added = [
            Captured(
                one.file_id, one.file.name, one.file.path, one.file.size_bytes, 0, 0, one.span, payload, self.run, True
            )
            for one in new
        ]
        ids = {one.file_id for one in added}
        return sorted([*(one for one in self.captures if one.file_id not in ids), *added], key=lambda one: one.file_id)

    def commit_captures(self, rows: Sequence[Captured], ports: Mapping[int, str]) -> None:
        """Replace the table `captures`."""
        text = json.dumps({str(port): name for port, name in sorted(ports.items())})
        table = pa.Table.from_pylist([one.row(text) for one in rows], schema=arrow_schema(CAPTURES))
        self.commit(CAPTURES, put_rows(table, self.delta(CAPTURES)), self.files(CAPTURES))

    def files(self, table: Table) -> list[DataFile]:
        """Return the files of a table as it was."""
        return [file for file, _ in self.delta(table).files(self.snapshots[table.name])]

    def commit(self, table: Table, files: Sequence[DataFile], replaced: Sequence[DataFile]) -> None:
        """Commit files in place of others; raise `Overtaken` if another run has changed the table meanwhile."""
        delta, snapshot = self.delta(table), self.snapshots[table.name]
        advances = {APPLICATION: (self._begun[table.name], self.run)}
        version = delta.commit(snapshot, files, removes=[_removal(file) for file in replaced], advances=advances)
        while delta.position(snapshot, APPLICATION) != self.run:  # another run has followed at once
            version -= 1
            snapshot = delta.open(version)
        self.committed[table.name] = version
        if version % CHECKPOINT_EVERY == 0:
            checkpoint(delta)


def _opened(delta: Delta, table: Table) -> DeltaTable:
    if not delta.exists():
        delta.create(arrow_schema(table), table.partitions, configuration=history(HISTORY_S), positions={})
    try:
        return delta.open()
    except DamagedTable:  # by a power cut; nobody writes to such a table
        delta.mend()
        return delta.open()


def _removal(file: DataFile) -> RemoveAction:
    from deltalake.transaction import RemoveAction

    return RemoveAction(file.path, True, time.time_ns() // 1_000_000, file.size_bytes, dict(file.partition))
