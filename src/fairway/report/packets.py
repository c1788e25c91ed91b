"""The packets of a few chosen sessions, thinned to what a picture can show.

A session of millions of packets is drawn by some thousands of them: a packet stays if a hash of its frame number falls
into one of `stride` slots (every n-th would keep only one side of an exchange that alternates). Retransmissions are
rarer and matter more, so they have a stride of their own. The first packets stay all, for the ladder.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fairway.core.tables import PACKETS
from fairway.report.tables import LakeTables

DRAWN_MAX = 4_000
RETRANSMISSIONS_DRAWN_MAX = 2_000
LADDER_PACKETS = 60

COLUMNS = (
    *("session", "point", "file", "frame", "at_ns", "from_caller", "kind", "message", "retransmission"),
    *("duplicate", "body_bytes", "udpc_index", "udpc_ack", "mrp_sequence", "mrp_from_sequence", "rup_position"),
    *("rup_total", "pydevts_success"),
)

Key = tuple[str, str]
"""Session and point."""
Row = dict[str, object]


@dataclass(slots=True)
class Kept:
    """What is kept of one session's packets."""

    stride: int
    copy_stride: int
    drawn: list[pa.Table] = field(default_factory=list)
    first: pa.Table | None = None

    def add(self, packets: pa.Table) -> None:
        """Takes the next packets of the session, in any order."""
        self.drawn.append(packets.take(pa.array(self._thinned(packets))))
        together = packets if self.first is None else pa.concat_tables([self.first, packets])
        self.first = _earliest(together, LADDER_PACKETS)

    def _thinned(self, packets: pa.Table) -> NDArray[np.intp]:
        copies = pc.fill_null(packets["retransmission"], 0).to_numpy() > 0
        mixed = packets["frame"].to_numpy().astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(40)
        stride = np.where(copies, np.uint64(self.copy_stride), np.uint64(self.stride))
        return np.flatnonzero(mixed % stride == 0)

    def rows(self) -> list[Row]:
        """Return the packets to draw, in the order of time."""
        return _rows(pa.concat_tables(self.drawn)) if self.drawn else []

    def ladder(self) -> list[Row]:
        return [] if self.first is None else _rows(self.first)


def packets_of(tables: LakeTables, sessions: Sequence[Row]) -> dict[Key, Kept]:
    """Reads the packets of the given rows of the sessions table, in one pass."""
    kept = {(str(row["session"]), str(row["point"])): _room_for(row) for row in sessions}
    names = sorted({session for session, _ in kept})
    if not names:
        return kept
    for batch in tables.batches(PACKETS, COLUMNS, names):
        timed = batch.filter(pc.is_valid(batch["at_ns"]))
        for key in _keys(timed):
            if key in kept:
                mine = pc.and_(pc.equal(timed["session"], key[0]), pc.equal(timed["point"], key[1]))
                kept[key].add(timed.filter(mine))
    return kept


def _room_for(session: Row) -> Kept:
    packets, copies = _sum(session, "packets"), _sum(session, "retransmissions")
    return Kept(
        stride=max(1, -(-(packets - copies) // DRAWN_MAX)), copy_stride=max(1, -(-copies // RETRANSMISSIONS_DRAWN_MAX))
    )


def _sum(session: Row, name: str) -> int:
    return sum(int(str(session[f"{name}_{way}"])) for way in ("out", "in"))


def _keys(packets: pa.Table) -> list[Key]:
    groups = packets.group_by(["session", "point"]).aggregate([])
    return [(row["session"], row["point"]) for row in groups.to_pylist()]


def _earliest(packets: pa.Table, most: int) -> pa.Table:
    keys = [("at_ns", "ascending"), ("file", "ascending"), ("frame", "ascending")]
    return packets.take(pc.sort_indices(packets, sort_keys=keys)[:most])


def _rows(packets: pa.Table) -> list[Row]:
    found: list[Row] = _earliest(packets, len(packets)).to_pylist()
    return found
