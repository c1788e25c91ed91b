"""From the packets of a session to its pictures: the time-sequence plot and the ladder.

A *stream* is one direction of messages: what one side sends, and what the other side answers to it. Its height is the
number of the message, counted from the first seen; for rup the byte within all messages, laid end to end. A
transmission counts as presumed lost when the same part was sent again later and the point did not see that the
first had arrived.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from fairway.report.packets import Row

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


@dataclass(slots=True)
class Stream:
    """The marks of one direction, as columns."""

    times: list[float] = field(default_factory=list)
    heights: list[int] = field(default_factory=list)
    marks: list[int] = field(default_factory=list)
    frames: list[int] = field(default_factory=list)

    def add(self, time_s: float, height: int, mark: int, frame: int) -> None:
        self.times.append(time_s)
        self.heights.append(height)
        self.marks.append(mark)
        self.frames.append(frame)

    def as_columns(self) -> dict[str, object]:
        """Return the marks in the order of time, heights counted from the lowest."""
        order = sorted(range(len(self.times)), key=lambda place: (self.times[place], place))
        lowest = min(self.heights, default=0)
        return {
            "t": [round(self.times[place], 6) for place in order],
            "y": [self.heights[place] - lowest for place in order],
            "k": [self.marks[place] for place in order],
            "f": [self.frames[place] for place in order],
            "lowest": lowest,
        }


def streams(protocol: str, packets: Sequence[Row], start_ns: int) -> dict[str, dict[str, object]]:
    """Return the streams of a session, `out` from the caller and `in` to it; one without data is left out."""
    heights = _rup_heights(packets) if protocol == "rup" else {}
    found = {True: Stream(), False: Stream()}
    for row in packets:
        place = _place(protocol, row, heights)
        if place is None:
            continue
        from_caller, height, mark = place
        found[from_caller].add(_time_s(row, start_ns), height, mark, _whole(row, "frame"))
    for from_caller, time_s, height, frame in _losses(protocol, packets, heights, start_ns):
        found[from_caller].add(time_s, height, LOST, frame)
    named = {"out": found[True], "in": found[False]}
    return {name: stream.as_columns() for name, stream in named.items() if any(k < ANSWER for k in stream.marks)}


def _place(protocol: str, row: Row, heights: dict[str, int]) -> tuple[bool, int, int] | None:
    """Return the stream, the height and the mark of a packet, or None for one that has no place in the plot."""
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
    """Lays the messages end to end, in the order in which they were first seen, each direction for itself."""
    heights: dict[str, int] = {}
    top = {True: 0, False: 0}
    for row in packets:
        if row["kind"] != "data" or row["message"] is None or str(row["message"]) in heights:
            continue
        way = bool(row["from_caller"])
        heights[str(row["message"])] = top[way]
        top[way] += max(1, _whole(row, "rup_total"))
    return heights


def _losses(
    protocol: str, packets: Sequence[Row], heights: dict[str, int], start_ns: int
) -> list[tuple[bool, float, int, int]]:
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
            found.append((bool(row["from_caller"]), _time_s(before, start_ns), height, _whole(before, "frame")))
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
