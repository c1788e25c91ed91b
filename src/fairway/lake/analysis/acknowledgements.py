"""What a record says about others: the one that it repeats, the message that it acknowledges, when that was sent.

These become columns of `packets`; every other table is computed from them. Each is found among the records with one
number, so those of some numbers can be read without the others, and piece by piece (`giants.py`).

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
from fairway.lake.analysis.headers import RESPONSES, Headers
from fairway.lake.arrays import MISSING, Carried, Mask, Runs, Words, mixed, together

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
    """In what it differs from that one, as an index in `DIFFERENCES`; -1 if in nothing."""
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


def numbers_of(headers: Headers) -> tuple[Integers, Integers]:
    """Return each record's own number, and the one that it acknowledges, as they are on the wire or widened.

    All that a record's facts follow from has one of the two among its own two. A record with only one has it twice.
    """
    udpc, mrp, rup, pydevts = (headers.protocol == number for number in (UDPC, MRP, RUP, PYDEVTS))
    # A bare acknowledgement repeats the last number of its sender, which may be the same for hours.
    bare = (mrp & (headers.kind == KIND["ack"])) | (headers.piggyback & ~headers.countable)
    own = np.select([rup, udpc | pydevts, bare], [headers.number, headers.raw, headers.other], headers.own)
    answers = udpc & ((headers.ack != 0) | np.isin(headers.kind, _ANSWERS))
    return own, np.select([answers, headers.piggyback & (headers.other != 0)], [headers.ack, headers.other], own)


def facts(headers: Headers, sent: Carried, carried: Carried) -> Facts:
    """Find the facts of the records of sessions.

    `sent` has what `note_sent` noted of all records, also of those behind these; `carried` is of those before.
    """
    headers = headers._replace(countable=headers.countable & headers.has)
    earlier, duplicate = _retransmissions(headers, carried)
    first_at_ns, differs = _repeated(headers, carried)
    return Facts(
        earlier=earlier,
        duplicate=duplicate,
        first_at_ns=first_at_ns,
        differs=differs,
        acknowledges=headers.answers & ((headers.protocol != RUP) | _confirms_all(headers, carried)),
        gap=_gaps(headers, carried),
        **_acknowledged(headers, sent),
        acknowledged_sent_ns=_sent_ns(headers, carried),
    )


def _word(headers: Headers, side: Mask, kinds: NDArray[np.signedinteger], number: Integers, *more: Integers) -> Words:
    return mixed(headers.number_space, side, np.where(headers.protocol == UDPC, 0, kinds), number, *more)


def _own(headers: Headers) -> Integers:
    return np.where((headers.protocol == UDPC) | (headers.protocol == PYDEVTS), headers.raw, headers.number)


def _carries_mrp(headers: Headers) -> Mask:
    carries: Mask = (headers.protocol == MRP) & (headers.kind == KIND["data"]) & headers.countable
    return carries


def note_sent(headers: Headers, sent: Carried) -> Carried:
    """Note what was sent first under each number; of records in pieces the last piece is noted first."""
    headers = headers._replace(countable=headers.countable & headers.has)
    packet, answer = (
        headers.has & (headers.protocol == PYDEVTS) & (headers.kind == KIND[name]) for name in ("packet", "ack")
    )
    carries = _carries_mrp(headers)

    def note(keys: Words, which: Mask, **columns: NDArray[np.signedinteger]) -> None:
        rows = np.flatnonzero(which)
        words, first = np.unique(keys[rows], return_index=True)
        for name, column in columns.items():
            sent.put(name, words, column[rows[first]].astype(np.int64))

    number = _word(headers, headers.forward, headers.kind, _own(headers))
    note(
        number,
        (headers.has & (headers.protocol == UDPC)) | carries | packet | answer,
        kind=headers.kind,
        at=headers.at_ns,
    )
    exact = _word(headers, headers.forward, headers.kind, _own(headers), headers.exact)
    note(exact, (carries & ~headers.piggyback) | packet, exact=headers.at_ns)
    note(exact, answer, answer=headers.at_ns)
    return sent


def _acknowledged(headers: Headers, sent: Carried) -> dict[str, Integers]:
    """Find what each acknowledges, and what it echoes."""
    kind, forward = headers.kind, headers.forward
    udpc, mrp, pydevts = (headers.protocol == number for number in (UDPC, MRP, PYDEVTS))
    ack, close = kind == KIND["ack"], kind == KIND["close"]
    # A close answers the ack; all else that acknowledges something answers what carries it.
    answered_kind = np.select([mrp, pydevts & ack, pydevts & close], [KIND["data"], KIND["packet"], KIND["ack"]], 0)
    named = np.select([udpc, mrp], [headers.ack, headers.other], headers.raw)
    answers = (udpc & np.isin(kind, _ANSWERS)) | (pydevts & (ack | close))
    answers |= mrp & np.where(ack, headers.exists, headers.piggyback & (headers.other != 0))
    wanted = _word(headers, ~forward, answered_kind, named)
    echoes = (mrp & ack & headers.exists) | (pydevts & (ack | close))
    # A close goes the same way as the packet, whose crc it repeats; it may also repeat that of an ack.
    side, sends = np.where(close, forward, ~forward), np.where(mrp, KIND["data"], KIND["packet"])
    times = (
        _found(sent, "exact", _word(headers, side, sends, named, headers.exact), echoes, NO_TIME),
        _found(sent, "answer", _word(headers, ~forward, answered_kind, named, headers.exact), pydevts & close, NO_TIME),
    )
    return {
        "acknowledged_kind": _found(sent, "kind", wanted, answers, MISSING),
        "acknowledged_at_ns": _found(sent, "at", wanted, answers, NO_TIME),
        "echoed_at_ns": np.where(np.minimum(*times) == NO_TIME, np.maximum(*times), np.minimum(*times)),
    }


def _found(sent: Carried, name: str, wanted: Words, answers: Mask, otherwise: int) -> Integers:
    """Return what was noted of what each answer wants."""
    found = np.full(len(wanted), otherwise, dtype=np.int64)
    found[answers] = sent.get(name, wanted[answers], otherwise)
    return found


def _repeated(headers: Headers, carried: Carried) -> tuple[Integers, Integers]:
    """Return when the first under each number was sent, and in what each differs from that."""
    first_at_ns, differs = np.full(len(headers.kind), NO_TIME), np.full(len(headers.kind), MISSING, dtype=np.int64)
    acks = (headers.protocol == MRP) & (headers.kind == KIND["ack"]) & headers.exists
    numbered = (headers.protocol != MRP) | _carries_mrp(headers) | acks
    rows = np.flatnonzero(headers.has & numbered)
    key = _word(headers, headers.forward, headers.kind, _own(headers), headers.position)[rows]
    order = together(key)
    rows, runs = rows[order], Runs.of(key[order], carried)
    compared = (headers.flag, headers.ack, headers.body_bytes, headers.body_crc)
    now = [column[rows] for column in compared]
    flag, ack, size, crc = zip(now, map(runs.first, ("flag", "ack", "size", "crc"), now), strict=True)
    read = (crc[0] != MISSING) & (crc[1] != MISSING)
    ways = (flag[0] != flag[1], ack[0] != ack[1], size[0] != size[1], (size[0] == size[1]) & (crc[0] != crc[1]) & read)
    code = sum(way.astype(np.int64) << bit for bit, way in enumerate(ways))
    first_at_ns[rows] = runs.first("first at", headers.at_ns[rows])
    differs[rows] = np.where(code == 0, MISSING, code)
    return first_at_ns, differs


def _confirms_all(headers: Headers, carried: Carried) -> Mask:
    """Return which records confirm a rup message up to its total, as far as that is known by then."""
    whole = np.zeros(len(headers.kind), dtype=bool)
    rows = np.flatnonzero(headers.protocol == RUP)
    if len(rows):
        key = mixed(headers.session[rows], (headers.forward ^ headers.of_other)[rows], headers.number[rows])
        order = together(key)
        rows = rows[order]
        data = headers.kind[rows] == KIND["data"]
        total = Runs.of(key[order], carried).most("size of message", headers.total[rows], data)
        whole[rows] = ~data & (headers.position[rows] == total)
    return whole


def _sent_ns(headers: Headers, carried: Carried) -> Integers:
    """Return when the datagram was sent that each record answers; of sent and answers with one key, in their order."""
    beat, beat_ack = (headers.kind == KIND[name] for name in ("heartbeat", "heartbeat_ack"))
    sent = np.flatnonzero((headers.carries & (headers.kind != KIND["plain"])) | (beat & headers.has))
    answering = np.flatnonzero((headers.answers | beat_ack) & headers.names)
    rows = np.concatenate((sent, answering))
    is_sent = np.arange(len(rows)) < len(sent)
    kind, protocol, position = headers.kind[rows], headers.protocol[rows], headers.position[rows]
    heartbeat = (beat | beat_ack)[rows]
    beats = np.where(is_sent, headers.raw[rows], headers.ack[rows])
    number = np.select([heartbeat, is_sent], [beats, headers.number[rows]], headers.acknowledged[rows])
    end = np.where(is_sent, position + headers.body_bytes[rows], position)
    part = np.select([protocol == RUP, protocol == MRP], [end, headers.exact[rows]], 0)
    requests = np.where(is_sent, np.isin(kind, _ASKS), np.isin(kind, RESPONSES))
    what = np.select([heartbeat, requests], [_HEARTBEAT, _REQUEST], _MESSAGE)
    key = mixed(headers.session[rows], headers.forward[rows] ^ ~is_sent, what, number, part)
    order = np.lexsort((rows, key))
    is_sent, rows = is_sent[order], rows[order]
    runs = Runs.of(key[order], carried)
    clear = ~is_sent & (runs.total("sent", is_sent.astype(np.int64)) == 1)
    clear &= runs.total("answered", (~is_sent).astype(np.int64)) == 1
    found = np.full(len(headers.kind), NO_TIME, dtype=np.int64)
    found[rows[clear]] = runs.last("sent at", headers.at_ns[rows], is_sent)[clear]
    return np.where(headers.further, found, NO_TIME)


def _gaps(headers: Headers, carried: Carried) -> Integers:
    """Return the gaps with those of rup, as many parts as lie between; below 0 any number says that it comes late."""
    rows = np.flatnonzero(headers.protocol == RUP)
    if not len(rows):
        return headers.gap
    key = mixed(headers.session[rows], headers.forward[rows], headers.number[rows])
    order = together(key)
    rows, runs = rows[order], Runs.of(key[order], carried)
    counted, size = headers.carries[rows], np.maximum(headers.body_bytes[rows], 1)
    expected = runs.most("next part", headers.position[rows] + size, counted)
    part = np.maximum(runs.most("size of part", size, counted), size)
    step = headers.position[rows] - np.where(expected == MISSING, 0, expected)
    gap = headers.gap.copy()
    gap[rows] = np.where(step > 0, -(-step // part), step)
    return gap


_ALL = np.int64(1) << np.int64(39)
"""How far an acknowledgement reaches that is for the whole of a message: further than any position."""


def _retransmissions(headers: Headers, carried: Carried) -> tuple[Integers, Mask]:
    """Return how often each record was sent before, and which are duplicates."""
    part = np.where(headers.protocol == RUP, headers.position, headers.own)
    named = np.where(headers.protocol == RUP, headers.number, headers.kind)
    rows = np.flatnonzero(headers.countable)
    key = mixed(headers.session[rows], headers.forward[rows], named[rows], part[rows])
    order = together(key)
    earlier = np.zeros(len(headers.kind), dtype=np.int64)
    earlier[rows[order]] = Runs.of(key[order], carried).total("transmitted", np.ones(len(order), np.int64)) - 1
    repeated = np.flatnonzero(earlier)
    duplicate = np.zeros(len(headers.kind), dtype=bool)
    if len(repeated) or carried.keeps:
        duplicate[repeated] = _arrived(headers, repeated, carried) | headers.covered[repeated]
    return earlier, duplicate


def _arrived(headers: Headers, repeated: Integers, carried: Carried) -> Mask:
    """Return which retransmissions come after an acknowledgement that reaches as far as they do."""
    responds = np.isin(headers.kind, RESPONSES) & (headers.other != 0)
    acks = (headers.kind == KIND["important_ack"]) | ((headers.kind == KIND["ack"]) & ~headers.failed)
    whole = responds | (headers.exists & acks)
    answers = np.flatnonzero((whole | (headers.kind == KIND["confirm"])) & headers.names)
    reach = np.where(whole, _ALL, headers.position)[answers]
    # An empty message is confirmed by 0, which says nothing of the first part of any other.
    size = np.maximum(headers.body_bytes[repeated], headers.total[repeated] > 0)
    needed = np.where(headers.protocol[repeated] == RUP, headers.position[repeated] + size, _ALL)
    repeats = _message(headers, headers.of_other, headers.number, repeated)
    confirmed = _message(
        headers, headers.of_other | responds, np.where(responds, headers.other, headers.number), answers
    )
    # Both kinds of rows, in the order of messages and time: the greatest reach before a retransmission arrived.
    messages, rows = np.concatenate((repeats, confirmed)), np.concatenate((repeated, answers))
    order = np.lexsort((rows, messages))
    levels = np.concatenate((np.full(len(repeats), MISSING, np.int64), reach))[order]
    reached = np.empty(len(order), dtype=np.int64)
    reached[order] = Runs.of(messages[order], carried).most("reached", levels, order >= len(repeats))
    arrived: Mask = (reached[: len(repeats)] >= needed) & headers.exists[repeated]
    return arrived


def _message(headers: Headers, of_other: Mask, number: Integers, rows: Integers) -> Words:
    """Return a word for the message that a record carries or acknowledges."""
    return mixed(headers.session[rows], (headers.forward ^ of_other)[rows], number[rows])
