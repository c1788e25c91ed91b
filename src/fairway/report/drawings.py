"""From the packets of a few chosen sessions to their pictures: the time-sequence plot and the ladder.

A session of millions of packets is drawn by some thousands of them: a packet stays if a hash of its frame number falls
into one of `stride` slots (every n-th would keep only one side of an exchange that alternates). Retransmissions are
rarer and matter more, so they have a stride of their own. The first packets stay all, for the ladder.

A *stream* is one direction of messages: what one side sends, and what the other side answers to it. Its height is the
number of the message, counted from the first seen; for rup the byte within all messages, laid end to end. A
transmission counts as presumed lost when the same part was sent again later and the point did not see that the
first had arrived.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fairway.core.tables import PACKETS
from fairway.report.tables import Key, LakeTables, Row, by_session, key_of

DRAWN_MAX = 4_000
RETRANSMISSIONS_DRAWN_MAX = 2_000
LADDER_PACKETS = 60

COLUMNS = (
    *("session", "point", "file", "frame", "at_ns", "from_caller", "kind", "message", "retransmission"),
    *("duplicate", "body_bytes", "udpc_index", "udpc_ack", "mrp_sequence", "mrp_from_sequence", "rup_position"),
    *("rup_total", "pydevts_success"),
)


@dataclass(slots=True)
class Kept:
    """What is kept of one session's packets."""

    stride: int
    retransmission_stride: int
    drawn: list[pa.Table] = field(default_factory=list)
    first: pa.Table | None = None

    def add(self, packets: pa.Table) -> None:
        """Take the next packets of the session, in any order."""
        self.drawn.append(packets.take(pa.array(self._thinned(packets))))
        together = packets if self.first is None else pa.concat_tables([self.first, packets])
        self.first = _earliest(together).slice(0, LADDER_PACKETS)

    def _thinned(self, packets: pa.Table) -> NDArray[np.intp]:
        again = pc.fill_null(packets["retransmission"], 0).to_numpy() > 0
        mixed = packets["frame"].to_numpy().astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(40)
        stride = np.where(again, np.uint64(self.retransmission_stride), np.uint64(self.stride))
        return np.flatnonzero(mixed % stride == 0)

    def rows(self) -> list[Row]:
        """Return the packets to draw, in the order of time."""
        return _earliest(pa.concat_tables(self.drawn)).to_pylist() if self.drawn else []

    def ladder(self) -> list[Row]:
        return [] if self.first is None else self.first.to_pylist()


def packets_of(tables: LakeTables, sessions: Sequence[Row]) -> dict[Key, Kept]:
    """Read the packets of the given rows of the sessions table, in one pass."""
    kept = {key_of(row): _to_keep(row) for row in sessions}
    for batch in tables.batches(PACKETS, COLUMNS, sessions):
        for key, mine in by_session(batch.filter(pc.is_valid(batch["at_ns"])), kept):
            kept[key].add(mine)
    return kept


def _to_keep(session: Row) -> Kept:
    packets, again = (session[f"{name}_out"] + session[f"{name}_in"] for name in ("packets", "retransmissions"))
    return Kept(max(1, -(-(packets - again) // DRAWN_MAX)), max(1, -(-again // RETRANSMISSIONS_DRAWN_MAX)))


def _earliest(packets: pa.Table) -> pa.Table:
    return packets.sort_by([("at_ns", "ascending"), ("file", "ascending"), ("frame", "ascending")])


FIRST, RETRANSMISSION, DUPLICATE, ANSWER, LOST = range(5)
"""What a mark of the time-sequence plot means; `assets/capture.js` draws them by these numbers."""

DATA_KINDS = {
    "udpc": ("plain", "important", "request", "response", "answering_request"),
    "mrp": ("data",),
    "rup": ("data",),
    "pydevts": ("packet",),
}
ANSWER_KINDS = {
    "udpc": ("important_ack",),
    "mrp": ("ack",),
    "rup": ("confirm", "request"),
    "pydevts": ("ack",),
}


class Mark(NamedTuple):
    time_s: float
    height: int
    kind: int
    frame: int


def streams(protocol: str, packets: Sequence[Row], start_ns: int) -> dict[str, dict[str, object]]:
    """Return the streams of a session, `out` from the caller and `in` to it; one without data is left out."""
    heights = _rup_heights(packets) if protocol == "rup" else {}
    found: dict[bool, list[Mark]] = {True: [], False: []}
    for row in packets:
        drawn = _drawn(protocol, row, heights)
        if drawn is not None:
            from_caller, height, kind = drawn
            found[from_caller].append(Mark(_time_s(row, start_ns), height, kind, _whole(row, "frame")))
    for from_caller, mark in _losses(protocol, packets, heights, start_ns):
        found[from_caller].append(mark)
    named = {"out": found[True], "in": found[False]}
    return {name: _columns(marks) for name, marks in named.items() if any(mark.kind < ANSWER for mark in marks)}


def _columns(marks: list[Mark]) -> dict[str, object]:
    """Return the marks in the order of time, heights counted from the lowest."""
    marks = sorted(marks, key=lambda mark: mark.time_s)
    lowest = min(mark.height for mark in marks)
    return {
        "t": [round(mark.time_s, 6) for mark in marks],
        "y": [mark.height - lowest for mark in marks],
        "k": [mark.kind for mark in marks],
        "f": [mark.frame for mark in marks],
        "lowest": lowest,
    }


def _drawn(protocol: str, row: Row, heights: dict[str, int]) -> tuple[bool, int, int] | None:
    """Return the direction, the height and the kind of mark of a packet, or None for one that is not drawn."""
    height = _height(protocol, row, heights)
    from_caller, kind = row["from_caller"], row["kind"]
    if height is None or from_caller is None:
        return None
    bare = protocol == "mrp" and row["mrp_from_sequence"] is not None and not row["body_bytes"]
    if kind in ANSWER_KINDS[protocol] or bare:
        return not from_caller, height, ANSWER
    if kind not in DATA_KINDS[protocol]:
        return None
    if row["duplicate"]:
        return bool(from_caller), height, DUPLICATE
    return bool(from_caller), height, RETRANSMISSION if row["retransmission"] else FIRST


def _height(protocol: str, row: Row, heights: dict[str, int]) -> int | None:
    message = row["message"]
    if message is None:
        return None
    if protocol == "rup":
        base = heights.get(str(message))
        return None if base is None or row["rup_position"] is None else base + _whole(row, "rup_position")
    text = str(message)
    return int(text) if text.isdecimal() else None


def _rup_heights(packets: Sequence[Row]) -> dict[str, int]:
    """Lay the messages end to end, in the order in which they were first seen, each direction for itself."""
    heights: dict[str, int] = {}
    top = {True: 0, False: 0}
    for row in packets:
        if row["kind"] != "data" or row["message"] is None or str(row["message"]) in heights:
            continue
        way = bool(row["from_caller"])
        heights[str(row["message"])] = top[way]
        top[way] += max(1, _whole(row, "rup_total"))
    return heights


def _losses(protocol: str, packets: Sequence[Row], heights: dict[str, int], start_ns: int) -> list[tuple[bool, Mark]]:
    """Return the transmissions that a retransmission declares lost."""
    latest: dict[tuple[object, ...], Row] = {}
    found = []
    for row in packets:
        if row["kind"] not in DATA_KINDS[protocol] or row["from_caller"] is None:
            continue
        height = _height(protocol, row, heights)
        if height is None:
            continue
        key = (row["from_caller"], row["kind"], row["message"], height)
        before = latest.get(key)
        if before is not None and row["retransmission"] and not row["duplicate"]:
            mark = Mark(_time_s(before, start_ns), height, LOST, _whole(before, "frame"))
            found.append((bool(row["from_caller"]), mark))
        latest[key] = row
    return found


def ladder(protocol: str, packets: Sequence[Row], start_ns: int) -> list[list[object]]:
    """Return the rungs: time, from the caller or not, words, file, frame, sent again or not."""
    return [
        [
            round(_time_s(row, start_ns), 6),
            bool(row["from_caller"]),
            words(protocol, row),
            row["file"],
            row["frame"],
            bool(row["retransmission"]),
        ]
        for row in packets
    ]


def words(protocol: str, row: Row) -> str:
    kind = str(row["kind"] or "unknown").replace("_", " ")
    said = [kind]
    if protocol == "udpc":
        said += _numbered(row, ("", "udpc_index"), ("answers ", "udpc_ack"))
    elif protocol == "mrp":
        said += _numbered(row, ("", "mrp_sequence"), ("up to ", "mrp_from_sequence"))
    elif protocol == "rup":
        said += _numbered(row, ("up to " if kind == "confirm" else "at ", "rup_position"), ("of ", "rup_total"))
    elif row["message"] is not None:
        said.append(str(row["message"]))
    if row["pydevts_success"]:
        said.append("CRC failed")
    if row["body_bytes"]:
        said.append(f"· {_whole(row, 'body_bytes'):,} B")
    return " ".join(said)


def _numbered(row: Row, *fields: tuple[str, str]) -> list[str]:
    return [f"{word}{_whole(row, name):,}" for word, name in fields if row[name] is not None]


def _time_s(row: Row, start_ns: int) -> float:
    return (_whole(row, "at_ns") - start_ns) / 1e9


def _whole(row: Row, name: str) -> int:
    value = row[name]
    return value if isinstance(value, int) else 0
