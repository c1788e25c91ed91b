"""Which packet a packet repeats, and which it acknowledges: columns of the table `packets` that rules look at.

A packet has a *number* of its sender's (udpc index, mrp sequence, rup id and position, pydevts id), or, if it only
answers, one of the other side's. Numbers belong to a session, those of rup and pydevts to the flow at its point. Only
udpc numbers all kinds of packets alike; elsewhere each kind has numbers of its own.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairway.core.columns import Integers
from fairway.lake.analysis.conversations import Sessions
from fairway.lake.analysis.copies import Said
from fairway.lake.analysis.numbers import Numbers
from fairway.lake.analysis.spoken import KIND, MRP, PYDEVTS, RUP, UDPC, Spoken
from fairway.lake.arrays import MISSING, Mask, Words, begins, mixed, start_of, together

_ANSWERS = [KIND[name] for name in ("important_ack", "heartbeat_ack", "response", "answering_request")]
_WAYS = ("kind", "ack", "size", "body")
DIFFERENCES = tuple(
    " ".join(way for bit, way in enumerate(_WAYS) if code >> bit & 1) for code in range(1 << len(_WAYS))
)
"""In what a packet may differ from the first under its number; none is the first of them."""


class Links(NamedTuple):
    """Places of other records of the sessions, for each of them; -1 for none."""

    first: Integers
    """The first that its sender sent under its number."""
    differs: Integers
    """In what it differs from that one, as a place in `DIFFERENCES`; -1 if in nothing."""
    acknowledged: Integers
    """The first under the number that it acknowledges."""
    echoed: Integers
    """The first that also had the stamp or crc that it repeats."""


def links(spoken: Spoken, sessions: Sessions, numbers: Numbers, message: Said) -> Links:
    """Find what each record of the sessions repeats and acknowledges."""
    rows = sessions.rows
    protocol, kind = spoken.protocol[rows], spoken.kind[rows]
    udpc, mrp, rup, pydevts = (protocol == number for number in (UDPC, MRP, RUP, PYDEVTS))
    ack, data, packet, close = (kind == KIND[name] for name in ("ack", "data", "packet", "close"))
    by_flow = rup | pydevts
    place = mixed(spoken.point_words[spoken.point[rows]], spoken.flow[rows])
    strand = np.where(by_flow, place, sessions.number.astype(np.uint64))
    forward = spoken.forward[rows]
    id_ = spoken.number("pydevts_id")[rows]
    own = np.select([udpc, pydevts], [spoken.number("udpc_index")[rows], id_], message.number)
    part = np.where(rup, spoken.number("rup_position")[rows], 0)
    carries = mrp & data & ~spoken.bare[rows]
    numbered = udpc | carries | (mrp & ack & message.exists) | rup | pydevts

    def word(side: Mask, kinds: NDArray[np.signedinteger], number: Integers, *more: Integers) -> Words:
        return mixed(strand, side, np.where(udpc, 0, kinds), number, *more)

    first = np.full(len(rows), MISSING, dtype=np.int64)
    places = np.flatnonzero(numbered)
    key = word(forward, kind, own, part)[places]
    order = together(key)
    first[places[order]] = places[order][start_of(begins(key[order]))]

    # A close answers the ack; all else that acknowledges something answers what carries it.
    asked = np.select([mrp, pydevts & ack, pydevts & close], [KIND["data"], KIND["packet"], KIND["ack"]], 0)
    named = np.select([udpc, mrp], [spoken.number("udpc_ack")[rows], numbers.other], id_)
    answers = (udpc & np.isin(kind, _ANSWERS)) | (pydevts & (ack | close))
    answers |= mrp & np.where(ack, message.exists, spoken.piggyback[rows] & (numbers.other != 0))
    sent = np.flatnonzero(udpc | carries | packet | (pydevts & ack))
    acknowledged = _found(word(forward, kind, own), sent, word(~forward, asked, named), np.flatnonzero(answers))

    exact = np.where(mrp, spoken.number("mrp_stamp")[rows], spoken.number("pydevts_crc")[rows])
    transmitted = np.flatnonzero((carries & ~spoken.piggyback[rows]) | packet)
    echoes = np.flatnonzero((mrp & ack & message.exists) | (pydevts & (ack | close)))
    # A close goes the same way as the packet, whose crc it repeats.
    side, sends = np.where(close, forward, ~forward), np.where(mrp, KIND["data"], KIND["packet"])
    stamped = word(forward, kind, own, exact)
    echoed = _found(stamped, transmitted, word(side, sends, named, exact), echoes)
    repeated = _found(
        stamped, np.flatnonzero(pydevts & ack), word(~forward, asked, named, exact), np.flatnonzero(close)
    )
    echoed = np.where((echoed == MISSING) | ((repeated != MISSING) & (repeated < echoed)), repeated, echoed)
    return Links(first, _differences(spoken, rows, first), acknowledged, echoed)


def _found(keys: Words, sent: Integers, wanted: Words, answers: Integers) -> Integers:
    """Find for each answer the first place among `sent` whose key it wants."""
    found = np.full(len(keys), MISSING, dtype=np.int64)
    if len(sent) and len(answers):
        words, place = np.unique(keys[sent], return_index=True)
        at = np.minimum(np.searchsorted(words, wanted[answers]), len(words) - 1)
        found[answers] = np.where(words[at] == wanted[answers], sent[place[at]], MISSING)
    return found


def _differences(spoken: Spoken, rows: Integers, first: Integers) -> Integers:
    """Compare each record with the first under its number."""
    differs = np.full(len(rows), MISSING, dtype=np.int64)
    again = np.flatnonzero((first != MISSING) & (first != np.arange(len(rows))))
    if not len(again):
        return differs
    one, other = rows[again], rows[first[again]]
    crc, unread = spoken.body_crc
    size = spoken.body_bytes[one] != spoken.body_bytes[other]
    ways = (
        spoken.number("udpc_flag")[one] != spoken.number("udpc_flag")[other],
        spoken.number("udpc_ack")[one] != spoken.number("udpc_ack")[other],
        size,
        ~size & (crc[one] != crc[other]) & ~unread[one] & ~unread[other],
    )
    udpc = spoken.protocol[one] == UDPC
    code = sum((way & (udpc if bit < 2 else True)).astype(np.int64) << bit for bit, way in enumerate(ways))
    differs[again] = np.where(code == 0, MISSING, code)
    return differs
