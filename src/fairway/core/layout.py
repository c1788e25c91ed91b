"""Where things lie in a lake, and what a gateway's journal shows to others: names that several packages agree on.

LAKE/
  fairway-lake                    the marker: this folder is a lake
  landing/GATEWAY/FIRST-LAST.parquet   sealed segments, offsets inclusive, without gaps
  gateways/GATEWAY/journal.sqlite      what is committed and not yet sealed
  staging/                        what is being written; nobody reads here
  tables/NAME/                    Delta tables
  locks/                          one lock a table
"""

from __future__ import annotations

import re

MARKER = "fairway-lake"
MARKER_TEXT = "2\n"
"""The version of the layout."""

LANDING = "landing"
GATEWAYS = "gateways"
STAGING = "staging"
TABLES = "tables"
LOCKS = "locks"
FOLDERS = (LANDING, GATEWAYS, STAGING, TABLES, LOCKS)

JOURNAL = "journal.sqlite"

JOURNAL_NEXT_OFFSET = """
    SELECT max(
        coalesce((SELECT max("offset" + count) FROM messages), 0),
        coalesce((SELECT max(last) + 1 FROM sealed), 0))
"""
"""How many messages a journal has acknowledged. `messages("offset", count, ...)` holds what is committed and not yet
removed after sealing, in rows of `count` messages with consecutive offsets; `sealed(first, last, ...)` holds at least
the newest range that lies in `landing/`."""

JOURNAL_HELD = 'SELECT min("offset"), max("offset" + count) - 1 FROM messages'
"""The offsets that are still in the journal; they have no gaps."""

_SEGMENT = re.compile(r"(\d{20})-(\d{20})\.parquet")


def progress(gateway: str, table: str | None = None) -> str:
    """Return the name under which a table keeps how much of a gateway it holds; `rejected` does so for each table."""
    return f"fairway/{gateway}" if table is None else f"fairway/{table}/{gateway}"


def segment_name(first: int, last: int) -> str:
    """Return the file name of the segment with these offsets, both inclusive."""
    return f"{first:020}-{last:020}.parquet"


def segment_range(name: str) -> tuple[int, int] | None:
    """Return the first and the last offset of a segment's file, or None if the name is not one of a segment."""
    found = _SEGMENT.fullmatch(name)
    return (int(found[1]), int(found[2])) if found else None


def is_strange(name: str) -> bool:
    """Return whether something of this name does not belong at the top of a lake."""
    return name != MARKER and name not in FOLDERS and not name.startswith(".")
