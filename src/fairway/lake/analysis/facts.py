"""What a record says about earlier ones: the message that it acknowledges, when that was sent, the numbers left out.

These need the records of a session in the order of time, so they are found here, in arrays, and become columns of
`packets`; every other table is computed from these columns. No fact depends on what comes later.

An acknowledgement answers one datagram: an mrp acknowledgement echoes the stamp of what it answers, a rup confirm
stands for the part that ends where it points, and one of mrp's piggyback layout, which covers all numbers up to its
own, for that number. Which datagram was answered is clear where it had been sent once and not been acknowledged yet.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fairway.core.columns import Integers
from fairway.lake.analysis.conversations import Sessions
from fairway.lake.analysis.copies import Copies, Said
from fairway.lake.analysis.numbers import Numbers
from fairway.lake.analysis.spoken import KIND, MRP, PYDEVTS, RUP, UDPC, Spoken
from fairway.lake.arrays import MISSING, Mask, begins, last_before, mixed, most_before, start_of, sum_until, together

GAP_MAX = 32_768
"""A greater step is no gap: an endpoint that restores a snapshot jumps, and a forged number may be anything."""

_ACKS = [KIND[name] for name in ("important_ack", "ack", "confirm")]
_ASKS = [KIND[name] for name in ("request", "answering_request")]
_RESPONDS = [KIND[name] for name in ("response", "answering_request")]
_MESSAGE, _HEARTBEAT, _REQUEST = range(3)
"""What is answered: each by answers of its own."""


class Facts(NamedTuple):
    """What the records of sessions say about earlier ones."""

    acknowledges: Mask
    """Whether it acknowledges a message as a whole."""
    acknowledged: Integers
    """The number of the message that it acknowledges, widened; of rup a word for its id."""
    acknowledged_sent_ns: Integers
    """When the datagram that it answers was sent; -1 where that is not clear."""
    numbered: Mask
    """Whether `gap` is known: it has a number, and is not its sender's first."""
    gap: Integers
    """How many numbers, of rup parts, were left out since the highest before it; below 0 if it is behind that."""


def facts(spoken: Spoken, sessions: Sessions, numbers: Numbers, message: Said, copies: Copies) -> Facts:
    """Find the facts of the records of sessions."""
    rows = sessions.rows
    protocol, kind = spoken.protocol[rows], spoken.kind[rows]
    ends_handshake = spoken.ends_handshake[rows]
    carries = copies.countable & message.exists & ~message.of_other & ~ends_handshake
    responds = np.isin(kind, _RESPONDS) & ~ends_handshake
    responds &= spoken.number("udpc_ack")[rows] != 0
    piggyback = spoken.piggyback[rows]
    covers = piggyback & (numbers.other != 0)
    good = (protocol != PYDEVTS) | (spoken.number("pydevts_success")[rows] == 0)
    answers = ((np.isin(kind, _ACKS) & message.exists) | responds | covers) & good
    acknowledged = np.where(responds | piggyback, numbers.other, message.number)
    numbered, gap = _gaps(spoken, sessions, numbers, message, carries)
    return Facts(
        acknowledges=answers & ((protocol != RUP) | _confirms_all(spoken, sessions, message)),
        acknowledged=acknowledged,
        acknowledged_sent_ns=_sent_ns(spoken, sessions, message, carries, answers, acknowledged),
        numbered=numbered,
        gap=gap,
    )


def _confirms_all(spoken: Spoken, sessions: Sessions, message: Said) -> Mask:
    """Return which records confirm a rup message up to its total, as far as that is known by then."""
    whole = np.zeros(len(sessions.rows), dtype=bool)
    places = np.flatnonzero(spoken.protocol[sessions.rows] == RUP)
    if len(places):
        rows = sessions.rows[places]
        key = mixed(
            sessions.number[places] * 2 + (sessions.from_caller ^ message.of_other)[places], message.number[places]
        )
        order = together(key)
        data = (spoken.kind[rows] == KIND["data"])[order]
        total = most_before(spoken.number("rup_total")[rows][order], data, begins(key[order]))
        whole[places[order]] = ~data & (spoken.number("rup_position")[rows][order] == total)
    return whole


def _sent_ns(
    spoken: Spoken, sessions: Sessions, message: Said, carries: Mask, answers: Mask, acknowledged: Integers
) -> Integers:
    """Return when the datagram was sent that each record answers; of sent and answers with one key, in their order."""
    rows = sessions.rows
    kind = spoken.kind[rows]
    sent = np.flatnonzero((carries & (kind != KIND["plain"])) | (kind == KIND["heartbeat"]))
    heard = np.flatnonzero(answers | (kind == KIND["heartbeat_ack"]))
    places = np.concatenate((sent, heard))
    is_sent = np.arange(len(places)) < len(sent)
    rows, kind = rows[places], kind[places]
    protocol = spoken.protocol[rows]
    heartbeat = (kind == KIND["heartbeat"]) | (kind == KIND["heartbeat_ack"])
    beat = np.where(is_sent, spoken.number("udpc_index")[rows], spoken.number("udpc_ack")[rows])
    number = np.select([heartbeat, is_sent], [beat, message.number[places]], acknowledged[places])
    position = spoken.number("rup_position")[rows]
    stamp = np.where(spoken.piggyback[rows], 0, spoken.number("mrp_stamp")[rows])
    end = np.where(is_sent, position + spoken.body_bytes[rows], position)
    part = np.select([protocol == RUP, protocol == MRP], [end, stamp], 0)
    sender = sessions.from_caller[places] ^ ~is_sent
    asked = np.where(is_sent, np.isin(kind, _ASKS), np.isin(kind, _RESPONDS))
    what = np.select([heartbeat, asked], [_HEARTBEAT, _REQUEST], _MESSAGE)
    key = mixed(sessions.number[places] * 2 + sender, what, number, part)
    order = np.lexsort((places, key))
    is_sent = is_sent[order]
    starts = start_of(begins(key[order]))
    clear = ~is_sent & (sum_until(is_sent.astype(np.int64), starts) == 1)
    clear &= sum_until((~is_sent).astype(np.int64), starts) == 1
    found = np.full(len(sessions.rows), MISSING, dtype=np.int64)
    last = last_before(is_sent, starts)[clear]
    found[places[order[clear]]] = spoken.at_ns[rows[order[last]]]
    return np.where(_reaches_further(spoken, sessions, acknowledged), found, MISSING)


def _reaches_further(spoken: Spoken, sessions: Sessions, acknowledged: Integers) -> Mask:
    """Return which records of the piggyback layout cover more than any before; for others it is always true."""
    further = np.ones(len(sessions.rows), dtype=bool)
    piggyback = spoken.piggyback[sessions.rows]
    if piggyback.any():
        for way in (sessions.from_caller, ~sessions.from_caller):
            mine = piggyback & way
            further[mine] = (acknowledged > most_before(acknowledged, mine, sessions.first))[mine]
    return further


def _gaps(spoken: Spoken, sessions: Sessions, numbers: Numbers, message: Said, carries: Mask) -> tuple[Mask, Integers]:
    """Return which records have a gap before them, or none, and how wide it is."""
    rows = sessions.rows
    protocol = spoken.protocol[rows]
    of_rup, of_udpc = protocol == RUP, protocol == UDPC
    counted = of_udpc | carries
    number = np.select(
        [of_udpc, of_rup], [spoken.number("udpc_index")[rows], spoken.number("rup_position")[rows]], numbers.own
    )
    size = np.where(of_rup, np.maximum(spoken.body_bytes[rows], 1), 1)
    strand = sessions.number * 2 + sessions.from_caller
    if of_rup.any():
        strand = mixed(strand, np.where(of_rup, message.number, 0)).view(np.int64)
    order = together(strand)
    first = begins(strand[order])
    expected, part = np.empty(len(rows), dtype=np.int64), np.empty(len(rows), dtype=np.int64)
    expected[order] = most_before((number + size)[order], counted[order], first)
    part[order] = np.maximum(most_before(size[order], counted[order], first), size[order])
    known = counted & (of_rup | (expected != MISSING))
    step = number - np.where(of_rup & (expected == MISSING), 0, expected)
    # Of parts, as many as lie between; towards the left any number says that it comes late.
    gap = np.where(of_rup & (step > 0), -(-step // part), step)
    return known, np.where(~of_rup & (gap > GAP_MAX), 0, gap)
