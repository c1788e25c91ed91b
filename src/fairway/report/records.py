"""Records of the captures that belong to no session, counted by the reason."""

from __future__ import annotations

from collections.abc import Sequence

from fairway.core.tables import PACKETS
from fairway.report.blocks import Block, Cell, protocol_mark, section, table
from fairway.report.tables import LakeTables
from fairway.report.units import count, share

REASONS_SHOWN = 12
NOT_RECOGNISED = "of a flow that is none of the four protocols as far as its bytes tell"

Key = tuple[str, str, str]
"""Point, protocol and why."""


def unread(tables: LakeTables) -> dict[Key, int]:
    """Counts, in one pass, what could not be decoded or recognised; the key ("", "", "") counts all records."""
    found: dict[Key, int] = {("", "", ""): 0}
    for batch in tables.batches(PACKETS, ("point", "protocol", "kind", "reason")):
        found["", "", ""] += len(batch)
        grouped = batch.group_by(["point", "protocol", "kind", "reason"]).aggregate([([], "count_all")])
        for row in grouped.to_pylist():
            if row["protocol"] == "unknown" or row["kind"] == "malformed" or row["reason"] is not None:
                key = (row["point"], row["protocol"], row["reason"] or NOT_RECOGNISED)
                found[key] = found.get(key, 0) + row["count_all"]
    return found


def unread_section(found: dict[Key, int], sessions: int) -> list[Block]:
    """Return the table of what could not be read, or nothing if all could."""
    total = found["", "", ""]
    rows = sorted(((number, key) for key, number in found.items() if key[1]), key=lambda row: (-row[0], row[1]))
    if not rows:
        return []
    note = f"Of {count(total)} records in the captures, those of all points together."
    if not sessions:
        note = f"None of {count(total)} records belongs to a session. fairway analyze --map udpc=9000 names a port."
    return [section("Records that could not be read", [_table(rows[:REASONS_SHOWN], total)], note=note)]


def _table(rows: Sequence[tuple[int, Key]], total: int) -> Block:
    shown: list[list[str | Cell]] = [
        [
            why.replace("_", " "),
            protocol_mark(protocol),
            point,
            Cell(count(number), number),
            Cell(share(number / total), number / total),
        ]
        for number, (point, protocol, why) in rows
    ]
    return table(("Why", "Protocol", "Seen at", "Records", "Share"), shown, words=3)
