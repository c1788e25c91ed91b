"""Counters that wrap on the wire, widened: how often the counter went round, then the counter.

The step from one number to the next of the same sender is the shortest one, as in serial arithmetic, and the sum of
steps is the widened number. What a peer acknowledges is widened to the number nearest to the last one that its
sender used. Acknowledgements never move the count themselves: one that names nothing would move it anywhere.
"""

from __future__ import annotations

TURNS = {"udpc": 1 << 32, "mrp": 1 << 16, "pydevts": 1 << 16}
"""How many numbers a protocol's counter has."""

TURN = "CASE protocol " + " ".join(f"WHEN '{name}' THEN {turn}" for name, turn in TURNS.items()) + " END"

OWN = (
    "CASE WHEN protocol = 'udpc' THEN udpc_index"
    " WHEN kind = 'data' THEN mrp_sequence"
    " WHEN kind IN ('packet', 'close') THEN pydevts_id END"
)
"""The number of a datagram in its sender's own counter. (`rup` has none; its `data` has no mrp_sequence.)"""

OTHER = (
    "CASE WHEN protocol = 'udpc' THEN nullif(udpc_ack, 0)"
    " WHEN protocol = 'mrp' AND kind = 'ack' THEN mrp_sequence"
    " WHEN protocol = 'mrp' THEN mrp_from_sequence"
    " WHEN protocol = 'pydevts' AND kind = 'ack' THEN pydevts_id END"
)
"""The number in the other side's counter that a datagram speaks of."""


def nearest(number: str, reference: str) -> str:
    """Gives the SQL of the number that is congruent to `number` and nearest to `reference`; itself if there is none."""
    step = f"pmod({number} - {reference} + turn DIV 2, turn) - turn DIV 2"
    return f"coalesce({reference} + {step}, {number})"


def turned(number: str, reference: str) -> str:
    """Gives the SQL of how many turns lie between a number and the one before: -1, 0 or 1."""
    return f"coalesce(({nearest(number, reference)} - {number}) DIV turn, 0)"
