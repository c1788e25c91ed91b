"""Where things lie in a lake, and what a gateway's journal shows to others: the names that several rooms must agree on.

LAKE/
  fairway-lake                    the marker: this folder is a lake
  landing/GATEWAY/FIRST-LAST.parquet   sealed segments, offsets inclusive, without gaps
  gateways/GATEWAY/journal.sqlite      what is committed and not yet sealed
  captures/FILE_ID/               captures, read once
  staging/                        what is being written; nobody reads here
  tables/NAME/**.parquet          what anybody may read at any moment
  checkpoints/                    how far the landing stream is
  locks/                          one lock a table
"""

from __future__ import annotations

import json
import re

from fairway.core.errors import BadOption

MARKER = "fairway-lake"
MARKER_TEXT = "1\n"
"""The version of the layout."""

LANDING = "landing"
GATEWAYS = "gateways"
CAPTURES = "captures"
STAGING = "staging"
TABLES = "tables"
CHECKPOINTS = "checkpoints"
LOCKS = "locks"
FOLDERS = (LANDING, GATEWAYS, CAPTURES, STAGING, TABLES, CHECKPOINTS, LOCKS)

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

_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/+")
_SEGMENT = re.compile(r"(\d{20})-(\d{20})\.parquet")


def segment_name(first: int, last: int) -> str:
    """Gives the file name of the segment with these offsets, both inclusive."""
    return f"{first:020}-{last:020}.parquet"


def segment_range(name: str) -> tuple[int, int] | None:
    """Gives the first and the last offset of a segment's file, or None if the name is not one of a segment."""
    found = _SEGMENT.fullmatch(name)
    return (int(found[1]), int(found[2])) if found else None


def stream_positions(note: str) -> dict[str, int]:
    """Gives each gateway's next offset out of a note `offsets/N` in the landing stream's checkpoint.

    Raises `ValueError`, `IndexError` or `AttributeError` unless the note is whole.
    """
    return {gateway: int(position) for gateway, position in json.loads(note.splitlines()[2]).items()}


def folder_of(path: object) -> str:
    """Gives the folder that a path, or a file: address, names; raises `BadOption` for an address of another kind.

    A `Path` made of `s3://bucket/lake` is `s3:/bucket/lake`, a folder like any other: so one slash is enough.
    """
    found = _ADDRESS.match(str(path))
    if found is None:
        return str(path)
    if found[1].lower() == "file":
        return "/" + str(path)[found.end() :]
    raise BadOption(
        f"{path} is an address of {found[1]}: a lake is a folder on a file system that every node mounts, "
        "so mount it and name the folder."
    )


def is_strange(name: str) -> bool:
    """Tells whether something of this name does not belong at the top of a lake."""
    return name != MARKER and name not in FOLDERS and not name.startswith(".")
