"""What a record says about others: the one that it repeats, the message that it acknowledges, when that was sent.

These become columns of `packets`; every other table is computed from them. Each is found among the records with one
number, so those of some numbers can be looked at without the others (`giants.py`).

An acknowledgement answers one datagram: an mrp acknowledgement echoes the stamp of what it answers, a rup confirm
stands for the part that ends where it points, and one of mrp's piggyback layout, which covers all numbers up to its
own, for that number. Which datagram was answered is clear where it had been sent once and not been acknowledged yet.

A *retransmission* is a record that repeats an earlier one of its sender at this point: same udpc index and kind, same
mrp sequence, same rup id and position, same pydevts id. It is a *duplicate* if an acknowledgement of what it carries
passed the point before it, because then an earlier one had arrived. The acknowledgement of a request is its response,
which may be a request itself. What the network doubles faster than the receiver acknowledges is no duplicate.

Rules compare a packet with the first under its *number*: that of its sender's (udpc index, mrp sequence, rup id and
position, pydevts id), or, if it only answers, of the other side's. Numbers belong to a session, those of rup and
pydevts to the episode at its point. Only udpc numbers all kinds of packets alike; elsewhere each kind has its own.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairway.capture.columns.records import NO_TIME
from fairway.core.columns import Integers
from fairway.lake.analysis.decoded import KIND, MRP, PYDEVTS, RUP, UDPC
from fairway.lake.analysis.said import RESPONSES, Said
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
_ASKS = [KIND[name] for name in ("request", "answering_request")]
_MESSAGE, _HEARTBEAT, _REQUEST = range(3)
"""What is answered: each by answers of its own."""


class Facts(NamedTuple):
    """What is known of the records of sessions from others with the same number; times are `NO_TIME` for none."""

    earlier: Integers
    """How often it was sent before."""
    duplicate: Mask
    first_at_ns: Integers
    """When the first was sent under its number by its sender."""
    differs: Integers
    """In what it differs from that one, as a place in `DIFFERENCES`; -1 if in nothing."""
    acknowledges: Mask
    """Whether it acknowledges a message as a whole."""
    gap: Integers
    """How many numbers, of rup parts, were left out since the highest before it; below 0 if it is behind that."""
    acknowledged_kind: Integers
    """The kind of the first under the number that it acknowledges; -1 for none."""
    acknowledged_at_ns: Integers
    """When that was sent."""
    echoed_at_ns: Integers
    """When the first was sent that also had the stamp or crc that it repeats."""
    acknowledged_sent_ns: Integers
    """When the datagram that it answers was sent, where that is clear."""


OF_OTHER = Facts._fields[-4:]
"""What is found under the number that a record acknowledges; all else under its own, if it has one."""


def numbers_of(said: Said) -> tuple[Integers, Integers]:
    """Return each record's own number, and the one that it acknowledges, as they are on the wire or widened.

    All that a record's facts follow from has one of the two among its own two. A record with only one has it twice.
    """
    udpc, mrp, rup, pydevts = (said.protocol == number for number in (UDPC, MRP, RUP, PYDEVTS))
    ack = mrp & (said.kind == KIND["ack"])
    own = np.select([rup, udpc | pydevts, ack], [said.number, said.raw, said.other], said.own)
    answers = udpc & ((said.ack != 0) | np.isin(said.kind, _ANSWERS))
    return own, np.select([answers, said.piggyback], [said.ack, said.other], own)


def facts(said: Said) -> Facts:
    """Find the facts of the records of sessions."""
    earlier, duplicate = copies(said)
    first, acknowledged, echoed = _links(said)
    return Facts(
        earlier=earlier,
        duplicate=duplicate,
        first_at_ns=_at(said, first),
        differs=_differences(said, first),
        acknowledges=said.answers & ((said.protocol != RUP) | _confirms_all(said)),
        gap=_gaps(said),
        acknowledged_kind=np.where(acknowledged == MISSING, MISSING, said.kind[acknowledged]),
        acknowledged_at_ns=_at(said, acknowledged),
        echoed_at_ns=_at(said, echoed),
        acknowledged_sent_ns=_sent_ns(said),
    )


def _at(said: Said, places: Integers) -> Integers:
    return np.where(places == MISSING, NO_TIME, said.at_ns[places])


def _links(said: Said) -> tuple[Integers, Integers, Integers]:
    """Return the places of the first that each repeats, acknowledges and echoes; -1 for none."""
    kind, forward, size = said.kind, said.forward, len(said.kind)
    udpc, mrp, rup, pydevts = (said.protocol == number for number in (UDPC, MRP, RUP, PYDEVTS))
    ack, packet, close = (kind == KIND[name] for name in ("ack", "packet", "close"))
    own = np.where(udpc | pydevts, said.raw, said.number)
    carries = mrp & (kind == KIND["data"]) & said.countable

    def word(side: Mask, kinds: NDArray[np.signedinteger], number: Integers, *more: Integers) -> Words:
        return mixed(said.strand, side, np.where(udpc, 0, kinds), number, *more)

    first = np.full(size, MISSING, dtype=np.int64)
    places = np.flatnonzero(udpc | carries | (mrp & ack & said.exists) | rup | pydevts)
    key = word(forward, kind, own, said.position)[places]
    order = together(key)
    first[places[order]] = places[order][start_of(begins(key[order]))]

    # A close answers the ack; all else that acknowledges something answers what carries it.
    asked = np.select([mrp, pydevts & ack, pydevts & close], [KIND["data"], KIND["packet"], KIND["ack"]], 0)
    named = np.select([udpc, mrp], [said.ack, said.other], said.raw)
    answers = (udpc & np.isin(kind, _ANSWERS)) | (pydevts & (ack | close))
    answers |= mrp & np.where(ack, said.exists, said.piggyback & (said.other != 0))
    sent = np.flatnonzero(udpc | carries | packet | (pydevts & ack))
    acknowledged = _found(word(forward, kind, own), sent, word(~forward, asked, named), np.flatnonzero(answers))

    transmitted = np.flatnonzero((carries & ~said.piggyback) | packet)
    echoes = np.flatnonzero((mrp & ack & said.exists) | (pydevts & (ack | close)))
    # A close goes the same way as the packet, whose crc it repeats.
    side, sends = np.where(close, forward, ~forward), np.where(mrp, KIND["data"], KIND["packet"])
    stamped = word(forward, kind, own, said.exact)
    echoed = _found(stamped, transmitted, word(side, sends, named, said.exact), echoes)
    repeated = _found(
        stamped, np.flatnonzero(pydevts & ack), word(~forward, asked, named, said.exact), np.flatnonzero(close)
    )
    return (
        first,
        acknowledged,
        np.where((echoed == MISSING) | ((repeated != MISSING) & (repeated < echoed)), repeated, echoed),
    )


def _found(keys: Words, sent: Integers, wanted: Words, answers: Integers) -> Integers:
    """Find for each answer the first place among `sent` whose key it wants."""
    found = np.full(len(keys), MISSING, dtype=np.int64)
    if len(sent) and len(answers):
        words, place = np.unique(keys[sent], return_index=True)
        at = np.minimum(np.searchsorted(words, wanted[answers]), len(words) - 1)
        found[answers] = np.where(words[at] == wanted[answers], sent[place[at]], MISSING)
    return found


def _differences(said: Said, first: Integers) -> Integers:
    """Compare each record with the first under its number."""
    differs = np.full(len(first), MISSING, dtype=np.int64)
    one = np.flatnonzero((first != MISSING) & (first != np.arange(len(first))))
    other = first[one]
    size = said.body_bytes[one] != said.body_bytes[other]
    read = (said.body_crc[one] != MISSING) & (said.body_crc[other] != MISSING)
    ways = (
        said.flag[one] != said.flag[other],
        said.ack[one] != said.ack[other],
        size,
        ~size & (said.body_crc[one] != said.body_crc[other]) & read,
    )
    code = sum(way.astype(np.int64) << bit for bit, way in enumerate(ways))
    differs[one] = np.where(code == 0, MISSING, code)
    return differs


def _confirms_all(said: Said) -> Mask:
    """Return which records confirm a rup message up to its total, as far as that is known by then."""
    whole = np.zeros(len(said.kind), dtype=bool)
    places = np.flatnonzero(said.protocol == RUP)
    if len(places):
        key = mixed(said.session[places], (said.forward ^ said.of_other)[places], said.number[places])
        order = together(key)
        places = places[order]
        data = said.kind[places] == KIND["data"]
        total = most_before(said.total[places], data, begins(key[order]))
        whole[places] = ~data & (said.position[places] == total)
    return whole


def _sent_ns(said: Said) -> Integers:
    """Return when the datagram was sent that each record answers; of sent and answers with one key, in their order."""
    beat, beat_ack = (said.kind == KIND[name] for name in ("heartbeat", "heartbeat_ack"))
    sent = np.flatnonzero((said.carries & (said.kind != KIND["plain"])) | beat)
    heard = np.flatnonzero(said.answers | beat_ack)
    places = np.concatenate((sent, heard))
    is_sent = np.arange(len(places)) < len(sent)
    kind, protocol, position = said.kind[places], said.protocol[places], said.position[places]
    heartbeat = (beat | beat_ack)[places]
    beats = np.where(is_sent, said.raw[places], said.ack[places])
    number = np.select([heartbeat, is_sent], [beats, said.number[places]], said.acknowledged[places])
    end = np.where(is_sent, position + said.body_bytes[places], position)
    part = np.select([protocol == RUP, protocol == MRP], [end, said.exact[places]], 0)
    asked = np.where(is_sent, np.isin(kind, _ASKS), np.isin(kind, RESPONSES))
    what = np.select([heartbeat, asked], [_HEARTBEAT, _REQUEST], _MESSAGE)
    key = mixed(said.session[places], said.forward[places] ^ ~is_sent, what, number, part)
    order = np.lexsort((places, key))
    is_sent = is_sent[order]
    starts = start_of(begins(key[order]))
    clear = ~is_sent & (sum_until(is_sent.astype(np.int64), starts) == 1)
    clear &= sum_until((~is_sent).astype(np.int64), starts) == 1
    found = np.full(len(said.kind), NO_TIME, dtype=np.int64)
    last = last_before(is_sent, starts)[clear]
    found[places[order[clear]]] = said.at_ns[places[order[last]]]
    return np.where(said.further, found, NO_TIME)


def _gaps(said: Said) -> Integers:
    """Return the gaps with those of rup, as many parts as lie between; below 0 any number says that it comes late."""
    places = np.flatnonzero(said.protocol == RUP)
    if not len(places):
        return said.gap
    key = mixed(said.session[places], said.forward[places], said.number[places])
    order = together(key)
    places, first = places[order], begins(key[order])
    counted, size = said.carries[places], np.maximum(said.body_bytes[places], 1)
    expected = most_before(said.position[places] + size, counted, first)
    part = np.maximum(most_before(size, counted, first), size)
    step = said.position[places] - np.where(expected == MISSING, 0, expected)
    gap = said.gap.copy()
    gap[places] = np.where(step > 0, -(-step // part), step)
    return gap


_ALL = np.int64(1) << np.int64(62)
"""How far an acknowledgement reaches that is for the whole of a message."""


def copies(said: Said) -> tuple[Integers, Mask]:
    """Return how often each record was sent before, and which are duplicates."""
    part = np.where(said.protocol == RUP, said.position, said.own)
    named = np.where(said.protocol == RUP, said.number, said.kind)
    places = np.flatnonzero(said.countable)
    key = mixed(said.session[places], said.forward[places], named[places], part[places])
    order = together(key)
    starts = start_of(begins(key[order]))
    earlier = np.zeros(len(said.kind), dtype=np.int64)
    earlier[places[order]] = np.arange(len(order)) - starts
    repeated = np.flatnonzero(earlier)
    duplicate = np.zeros(len(said.kind), dtype=bool)
    if len(repeated):
        duplicate[repeated] = _arrived(said, repeated) | said.covered[repeated]
    return earlier, duplicate


def _arrived(said: Said, repeated: Integers) -> Mask:
    """Return which retransmissions come after an acknowledgement that reaches as far as they do."""
    responds = np.isin(said.kind, RESPONSES) & (said.other != 0)
    acks = (said.kind == KIND["important_ack"]) | ((said.kind == KIND["ack"]) & ~said.failed)
    whole = responds | (said.exists & acks)
    answers = np.flatnonzero(whole | (said.kind == KIND["confirm"]))
    reach = np.where(whole, _ALL, said.position)[answers]
    # An empty message is confirmed by 0, which says nothing of the first part of any other.
    size = np.maximum(said.body_bytes[repeated], said.total[repeated] > 0)
    needed = np.where(said.protocol[repeated] == RUP, said.position[repeated] + size, _ALL)
    asked = _letter(said, said.of_other, said.number, repeated)
    told = _letter(said, said.of_other | responds, np.where(responds, said.other, said.number), answers)
    # Both kinds of rows together, in the order of letters and time: the greatest reach before a retransmission arrived.
    letters, places = np.concatenate((asked, told)), np.concatenate((repeated, answers))
    order = np.lexsort((places, letters))
    levels = np.concatenate((np.full(len(asked), MISSING, np.int64), reach))[order]
    reached = np.empty(len(order), dtype=np.int64)
    reached[order] = _most_so_far(levels, begins(letters[order]))
    arrived: Mask = (reached[: len(asked)] >= needed) & said.exists[repeated]
    return arrived


def _most_so_far(levels: Integers, first: Mask) -> Integers:
    """Return the greatest level of each group up to each row."""
    values, rank = np.unique(levels, return_inverse=True)
    group = np.cumsum(first) * len(values)
    reached: Integers = values[np.maximum.accumulate(group + rank) - group]
    return reached


def _letter(said: Said, of_other: Mask, number: Integers, places: Integers) -> Words:
    """Return a word for the message that a record carries or acknowledges."""
    return mixed(said.session[places], (said.forward ^ of_other)[places], number[places])
