"""What a record says about earlier ones: the message that it acknowledges, when that was sent, the numbers left out.

These need the records of a session in the order of time, so they are found here, in arrays, and become columns of
`packets`; every other table is computed from these columns. No fact depends on what comes later.

An acknowledgement answers one datagram: an mrp acknowledgement echoes the stamp of what it answers, a rup confirm
stands for the part that ends where it points, and one of mrp's piggyback layout, which covers all numbers up to its
own, for that number. Which datagram was answered is clear where it had been sent once and not been acknowledged yet.

Rules compare a packet with the first under its *number*: that of its sender's (udpc index, mrp sequence, rup id and
position, pydevts id), or, if it only answers, of the other side's. Numbers belong to a session, those of rup and
pydevts to the flow at its point. Only udpc numbers all kinds of packets alike; elsewhere each kind has its own.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairway.core.columns import Integers
from fairway.lake.analysis.conversations import Sessions
from fairway.lake.analysis.decoded import KIND, MRP, PYDEVTS, RUP, UDPC, Decoded
from fairway.lake.analysis.retransmissions import Message, Numbers, Retransmissions
from fairway.lake.arrays import (
    MISSING,
    Mask,
    Words,
    begins,
    last_before,
    mixed,
    most_before,
    start_of,
    sum_until,
    together,
)

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


def links(decoded: Decoded, sessions: Sessions, numbers: Numbers, message: Message) -> Links:
    """Find what each record of the sessions repeats and acknowledges."""
    rows = sessions.rows
    protocol, kind = decoded.protocol[rows], decoded.kind[rows]
    udpc, mrp, rup, pydevts = (protocol == number for number in (UDPC, MRP, RUP, PYDEVTS))
    ack, data, packet, close = (kind == KIND[name] for name in ("ack", "data", "packet", "close"))
    by_flow = rup | pydevts
    place = mixed(decoded.point_words[decoded.point[rows]], decoded.flow[rows])
    strand = np.where(by_flow, place, sessions.number.astype(np.uint64))
    forward = decoded.forward[rows]
    id_ = decoded.number("pydevts_id")[rows]
    own = np.select([udpc, pydevts], [decoded.number("udpc_index")[rows], id_], message.number)
    part = np.where(rup, decoded.number("rup_position")[rows], 0)
    carries = mrp & data & ~decoded.bare[rows]
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
    named = np.select([udpc, mrp], [decoded.number("udpc_ack")[rows], numbers.other], id_)
    answers = (udpc & np.isin(kind, _ANSWERS)) | (pydevts & (ack | close))
    answers |= mrp & np.where(ack, message.exists, decoded.piggyback[rows] & (numbers.other != 0))
    sent = np.flatnonzero(udpc | carries | packet | (pydevts & ack))
    acknowledged = _found(word(forward, kind, own), sent, word(~forward, asked, named), np.flatnonzero(answers))

    exact = np.where(mrp, decoded.number("mrp_stamp")[rows], decoded.number("pydevts_crc")[rows])
    transmitted = np.flatnonzero((carries & ~decoded.piggyback[rows]) | packet)
    echoes = np.flatnonzero((mrp & ack & message.exists) | (pydevts & (ack | close)))
    # A close goes the same way as the packet, whose crc it repeats.
    side, sends = np.where(close, forward, ~forward), np.where(mrp, KIND["data"], KIND["packet"])
    stamped = word(forward, kind, own, exact)
    echoed = _found(stamped, transmitted, word(side, sends, named, exact), echoes)
    repeated = _found(
        stamped, np.flatnonzero(pydevts & ack), word(~forward, asked, named, exact), np.flatnonzero(close)
    )
    echoed = np.where((echoed == MISSING) | ((repeated != MISSING) & (repeated < echoed)), repeated, echoed)
    return Links(first, _differences(decoded, rows, first), acknowledged, echoed)


def _found(keys: Words, sent: Integers, wanted: Words, answers: Integers) -> Integers:
    """Find for each answer the first place among `sent` whose key it wants."""
    found = np.full(len(keys), MISSING, dtype=np.int64)
    if len(sent) and len(answers):
        words, place = np.unique(keys[sent], return_index=True)
        at = np.minimum(np.searchsorted(words, wanted[answers]), len(words) - 1)
        found[answers] = np.where(words[at] == wanted[answers], sent[place[at]], MISSING)
    return found


def _differences(decoded: Decoded, rows: Integers, first: Integers) -> Integers:
    """Compare each record with the first under its number."""
    differs = np.full(len(rows), MISSING, dtype=np.int64)
    again = np.flatnonzero((first != MISSING) & (first != np.arange(len(rows))))
    if not len(again):
        return differs
    one, other = rows[again], rows[first[again]]
    crc, unread = decoded.body_crc
    size = decoded.body_bytes[one] != decoded.body_bytes[other]
    ways = (
        decoded.number("udpc_flag")[one] != decoded.number("udpc_flag")[other],
        decoded.number("udpc_ack")[one] != decoded.number("udpc_ack")[other],
        size,
        ~size & (crc[one] != crc[other]) & ~unread[one] & ~unread[other],
    )
    udpc = decoded.protocol[one] == UDPC
    code = sum((way & (udpc if bit < 2 else True)).astype(np.int64) << bit for bit, way in enumerate(ways))
    differs[again] = np.where(code == 0, MISSING, code)
    return differs


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


def facts(
    decoded: Decoded, sessions: Sessions, numbers: Numbers, message: Message, retransmissions: Retransmissions
) -> Facts:
    """Find the facts of the records of sessions."""
    rows = sessions.rows
    protocol, kind = decoded.protocol[rows], decoded.kind[rows]
    ends_handshake = decoded.ends_handshake[rows]
    carries = retransmissions.countable & message.exists & ~message.of_other & ~ends_handshake
    responds = np.isin(kind, _RESPONDS) & ~ends_handshake
    responds &= decoded.number("udpc_ack")[rows] != 0
    piggyback = decoded.piggyback[rows]
    covers = piggyback & (numbers.other != 0)
    good = (protocol != PYDEVTS) | (decoded.number("pydevts_success")[rows] == 0)
    answers = ((np.isin(kind, _ACKS) & message.exists) | responds | covers) & good
    acknowledged = np.where(responds | piggyback, numbers.other, message.number)
    numbered, gap = _gaps(decoded, sessions, numbers, message, carries)
    return Facts(
        acknowledges=answers & ((protocol != RUP) | _confirms_all(decoded, sessions, message)),
        acknowledged=acknowledged,
        acknowledged_sent_ns=_sent_ns(decoded, sessions, message, carries, answers, acknowledged),
        numbered=numbered,
        gap=gap,
    )


def _confirms_all(decoded: Decoded, sessions: Sessions, message: Message) -> Mask:
    """Return which records confirm a rup message up to its total, as far as that is known by then."""
    whole = np.zeros(len(sessions.rows), dtype=bool)
    places = np.flatnonzero(decoded.protocol[sessions.rows] == RUP)
    if len(places):
        rows = sessions.rows[places]
        key = mixed(
            sessions.number[places] * 2 + (sessions.from_caller ^ message.of_other)[places], message.number[places]
        )
        order = together(key)
        data = (decoded.kind[rows] == KIND["data"])[order]
        total = most_before(decoded.number("rup_total")[rows][order], data, begins(key[order]))
        whole[places[order]] = ~data & (decoded.number("rup_position")[rows][order] == total)
    return whole


def _sent_ns(
    decoded: Decoded, sessions: Sessions, message: Message, carries: Mask, answers: Mask, acknowledged: Integers
) -> Integers:
    """Return when the datagram was sent that each record answers; of sent and answers with one key, in their order."""
    rows = sessions.rows
    kind = decoded.kind[rows]
    sent = np.flatnonzero((carries & (kind != KIND["plain"])) | (kind == KIND["heartbeat"]))
    heard = np.flatnonzero(answers | (kind == KIND["heartbeat_ack"]))
    places = np.concatenate((sent, heard))
    is_sent = np.arange(len(places)) < len(sent)
    rows, kind = rows[places], kind[places]
    protocol = decoded.protocol[rows]
    heartbeat = (kind == KIND["heartbeat"]) | (kind == KIND["heartbeat_ack"])
    beat = np.where(is_sent, decoded.number("udpc_index")[rows], decoded.number("udpc_ack")[rows])
    number = np.select([heartbeat, is_sent], [beat, message.number[places]], acknowledged[places])
    position = decoded.number("rup_position")[rows]
    stamp = np.where(decoded.piggyback[rows], 0, decoded.number("mrp_stamp")[rows])
    end = np.where(is_sent, position + decoded.body_bytes[rows], position)
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
    found[places[order[clear]]] = decoded.at_ns[rows[order[last]]]
    return np.where(_reaches_further(decoded, sessions, acknowledged), found, MISSING)


def _reaches_further(decoded: Decoded, sessions: Sessions, acknowledged: Integers) -> Mask:
    """Return which records of the piggyback layout cover more than any before; for others it is always true."""
    further = np.ones(len(sessions.rows), dtype=bool)
    piggyback = decoded.piggyback[sessions.rows]
    if piggyback.any():
        for way in (sessions.from_caller, ~sessions.from_caller):
            mine = piggyback & way
            further[mine] = (acknowledged > most_before(acknowledged, mine, sessions.first))[mine]
    return further


def _gaps(
    decoded: Decoded, sessions: Sessions, numbers: Numbers, message: Message, carries: Mask
) -> tuple[Mask, Integers]:
    """Return which records have a gap before them, or none, and how wide it is."""
    rows = sessions.rows
    protocol = decoded.protocol[rows]
    of_rup, of_udpc = protocol == RUP, protocol == UDPC
    counted = of_udpc | carries
    number = np.select(
        [of_udpc, of_rup], [decoded.number("udpc_index")[rows], decoded.number("rup_position")[rows]], numbers.own
    )
    size = np.where(of_rup, np.maximum(decoded.body_bytes[rows], 1), 1)
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
