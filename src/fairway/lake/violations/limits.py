"""Durations and bounds of the rules, with the margins that make them proof: docs/violations.md lists them."""

from __future__ import annotations

SECOND_NS = 1_000_000_000
JITTER_NS = SECOND_NS // 1_000
"""Two datagrams closer than this may stand in a capture in either order."""
SLACK_NS = 3 * SECOND_NS
"""Two datagrams further apart than this have not overtaken one another."""

AMPLIFICATION_MAX = 12
"""Three times, and what a network doubles on both ways."""

UDPC_TURN = 1 << 32
NEARBY = 16_384
"""A restored endpoint goes on 65,536 indices ahead; numbers of one life are compared within this distance."""
IMPORTANT_NS = 40 * SECOND_NS
REQUEST_NS = 15 * SECOND_NS
FIN_NS = 10 * SECOND_NS
"""The limits of UDPC-7.2, 8.2 and 10.4 (30, 5 and 3 s), and time for the last retransmission to pass."""

WINDOW_MAX = 32_767
PIGGYBACK_CONID_MAX = 65_535
HALF_OPEN_NS = 5 * SECOND_NS
"""Of MRP-2.4: so long a connection is kept of which nothing but connects has come."""
UNACKNOWLEDGED_NS = 120 * SECOND_NS
"""30 s of MRP-7.3, and as long again for each of a few restarts that begin to count anew."""

RUP_PARTS_MAX = 1 << 20
RUP_SILENCE_NS = 20 * SECOND_NS
"""10 s of RUP-5.9, and time for the last answer to arrive."""
RUP_PROGRESS_NS = 90 * SECOND_NS
"""60 s of RUP-5.9, and time for what is new to arrive."""

PYDEVTS_LIFE_NS = 33 * SECOND_NS
"""The life of a packet: ten repeats, and three seconds after the last."""
PYDEVTS_TRANSMISSIONS_MAX = 22
"""The original and ten repeats, each doubled on the way."""
PYDEVTS_LATE_NS = (85 * SECOND_NS, 45 * SECOND_NS)
"""A copy is late if one was seen in this range before it: longer ago than a packet lives, and not so long that the id
may be used again for the same body, 120 s after the first of perhaps eleven transmissions."""
