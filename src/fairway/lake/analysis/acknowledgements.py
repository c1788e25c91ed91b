"""What a record says about others: the one that it repeats, the message that it acknowledges, when that was sent.

These become columns of `packets`; every other table is computed from them. Each is found among the records with one
number, so those of some numbers can be looked at without the others, and piece by piece (`giants.py`).

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
    # A bare acknowledgement repeats the last number of its sender, which may be the same for hours.
    hears = (mrp & (said.kind == KIND["ack"])) | (said.piggyback & ~said.countable)
    own = np.select([rup, udpc | pydevts, hears], [said.number, said.raw, said.other], said.own)
    answers = udpc & ((said.ack != 0) | np.isin(said.kind, _ANSWERS))
    return own, np.select([answers, said.piggyback & (said.other != 0)], [said.ack, said.other], own)


def facts(said: Said, sent: Carried, carried: Carried) -> Facts:
    """Find the facts of the records of sessions.

    `sent` has what `note_sent` noted of all records, also of those behind these; `carried` is of those before.
    """
    said = said._replace(countable=said.countable & said.has)
    earlier, duplicate = _copies(said, carried)
    first_at_ns, differs = _repeated(said, carried)
    return Facts(
        earlier=earlier,
        duplicate=duplicate,
        first_at_ns=first_at_ns,
        differs=differs,
        acknowledges=said.answers & ((said.protocol != RUP) | _confirms_all(said, carried)),
        gap=_gaps(said, carried),
        **_acknowledged(said, sent),
        acknowledged_sent_ns=_sent_ns(said, carried),
    )


def _word(said: Said, side: Mask, kinds: NDArray[np.signedinteger], number: Integers, *more: Integers) -> Words:
    return mixed(said.strand, side, np.where(said.protocol == UDPC, 0, kinds), number, *more)


def _own(said: Said) -> Integers:
    return np.where((said.protocol == UDPC) | (said.protocol == PYDEVTS), said.raw, said.number)


def _carries_mrp(said: Said) -> Mask:
    carries: Mask = (said.protocol == MRP) & (said.kind == KIND["data"]) & said.countable
    return carries


def note_sent(said: Said, sent: Carried) -> Carried:
    """Note what was sent first under each number; of records in pieces the last piece is noted first."""
    said = said._replace(countable=said.countable & said.has)
    packet, answer = (said.has & (said.protocol == PYDEVTS) & (said.kind == KIND[name]) for name in ("packet", "ack"))
    carries = _carries_mrp(said)

    def note(keys: Words, which: Mask, **columns: NDArray[np.signedinteger]) -> None:
        places = np.flatnonzero(which)
        words, first = np.unique(keys[places], return_index=True)
        for name, column in columns.items():
            sent.put(name, words, column[places[first]].astype(np.int64))

    number = _word(said, said.forward, said.kind, _own(said))
    note(number, (said.has & (said.protocol == UDPC)) | carries | packet | answer, kind=said.kind, at=said.at_ns)
    exact = _word(said, said.forward, said.kind, _own(said), said.exact)
    note(exact, (carries & ~said.piggyback) | packet, exact=said.at_ns)
    note(exact, answer, answer=said.at_ns)
    return sent


def _acknowledged(said: Said, sent: Carried) -> dict[str, Integers]:
    """Find what each acknowledges, and what it echoes."""
    kind, forward = said.kind, said.forward
    udpc, mrp, pydevts = (said.protocol == number for number in (UDPC, MRP, PYDEVTS))
    ack, close = kind == KIND["ack"], kind == KIND["close"]
    # A close answers the ack; all else that acknowledges something answers what carries it.
    asked = np.select([mrp, pydevts & ack, pydevts & close], [KIND["data"], KIND["packet"], KIND["ack"]], 0)
    named = np.select([udpc, mrp], [said.ack, said.other], said.raw)
    answers = (udpc & np.isin(kind, _ANSWERS)) | (pydevts & (ack | close))
    answers |= mrp & np.where(ack, said.exists, said.piggyback & (said.other != 0))
    wanted = _word(said, ~forward, asked, named)
    echoes = (mrp & ack & said.exists) | (pydevts & (ack | close))
    # A close goes the same way as the packet, whose crc it repeats; it may also repeat that of an ack.
    side, sends = np.where(close, forward, ~forward), np.where(mrp, KIND["data"], KIND["packet"])
    times = (
        _found(sent, "exact", _word(said, side, sends, named, said.exact), echoes, NO_TIME),
        _found(sent, "answer", _word(said, ~forward, asked, named, said.exact), pydevts & close, NO_TIME),
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


def _repeated(said: Said, carried: Carried) -> tuple[Integers, Integers]:
    """Return when the first under each number was sent, and in what each differs from that."""
    first_at_ns, differs = np.full(len(said.kind), NO_TIME), np.full(len(said.kind), MISSING, dtype=np.int64)
    acks = (said.protocol == MRP) & (said.kind == KIND["ack"]) & said.exists
    numbered = (said.protocol != MRP) | _carries_mrp(said) | acks
    places = np.flatnonzero(said.has & numbered)
    key = _word(said, said.forward, said.kind, _own(said), said.position)[places]
    order = together(key)
    places, runs = places[order], Runs.of(key[order], carried)
    compared = (said.flag, said.ack, said.body_bytes, said.body_crc)
    now = [column[places] for column in compared]
    flag, ack, size, crc = zip(now, map(runs.first, ("flag", "ack", "size", "crc"), now), strict=True)
    read = (crc[0] != MISSING) & (crc[1] != MISSING)
    ways = (flag[0] != flag[1], ack[0] != ack[1], size[0] != size[1], (size[0] == size[1]) & (crc[0] != crc[1]) & read)
    code = sum(way.astype(np.int64) << bit for bit, way in enumerate(ways))
    first_at_ns[places] = runs.first("first at", said.at_ns[places])
    differs[places] = np.where(code == 0, MISSING, code)
    return first_at_ns, differs


def _confirms_all(said: Said, carried: Carried) -> Mask:
    """Return which records confirm a rup message up to its total, as far as that is known by then."""
    whole = np.zeros(len(said.kind), dtype=bool)
    places = np.flatnonzero(said.protocol == RUP)
    if len(places):
        key = mixed(said.session[places], (said.forward ^ said.of_other)[places], said.number[places])
        order = together(key)
        places = places[order]
        data = said.kind[places] == KIND["data"]
        total = Runs.of(key[order], carried).most("size of message", said.total[places], data)
        whole[places] = ~data & (said.position[places] == total)
    return whole


def _sent_ns(said: Said, carried: Carried) -> Integers:
    """Return when the datagram was sent that each record answers; of sent and answers with one key, in their order."""
    beat, beat_ack = (said.kind == KIND[name] for name in ("heartbeat", "heartbeat_ack"))
    sent = np.flatnonzero((said.carries & (said.kind != KIND["plain"])) | (beat & said.has))
    heard = np.flatnonzero((said.answers | beat_ack) & said.names)
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
    is_sent, places = is_sent[order], places[order]
    runs = Runs.of(key[order], carried)
    clear = ~is_sent & (runs.total("sent", is_sent.astype(np.int64)) == 1)
    clear &= runs.total("answered", (~is_sent).astype(np.int64)) == 1
    found = np.full(len(said.kind), NO_TIME, dtype=np.int64)
    found[places[clear]] = runs.last("sent at", said.at_ns[places], is_sent)[clear]
    return np.where(said.further, found, NO_TIME)


def _gaps(said: Said, carried: Carried) -> Integers:
    """Return the gaps with those of rup, as many parts as lie between; below 0 any number says that it comes late."""
    places = np.flatnonzero(said.protocol == RUP)
    if not len(places):
        return said.gap
    key = mixed(said.session[places], said.forward[places], said.number[places])
    order = together(key)
    places, runs = places[order], Runs.of(key[order], carried)
    counted, size = said.carries[places], np.maximum(said.body_bytes[places], 1)
    expected = runs.most("next part", said.position[places] + size, counted)
    part = np.maximum(runs.most("size of part", size, counted), size)
    step = said.position[places] - np.where(expected == MISSING, 0, expected)
    gap = said.gap.copy()
    gap[places] = np.where(step > 0, -(-step // part), step)
    return gap


_ALL = np.int64(1) << np.int64(39)
"""How far an acknowledgement reaches that is for the whole of a message: further than any position."""


def _copies(said: Said, carried: Carried) -> tuple[Integers, Mask]:
    """Return how often each record was sent before, and which are duplicates."""
    part = np.where(said.protocol == RUP, said.position, said.own)
    named = np.where(said.protocol == RUP, said.number, said.kind)
    places = np.flatnonzero(said.countable)
    key = mixed(said.session[places], said.forward[places], named[places], part[places])
    order = together(key)
    earlier = np.zeros(len(said.kind), dtype=np.int64)
    earlier[places[order]] = Runs.of(key[order], carried).total("transmitted", np.ones(len(order), np.int64)) - 1
    repeated = np.flatnonzero(earlier)
    duplicate = np.zeros(len(said.kind), dtype=bool)
    if len(repeated) or carried.keeps:
        duplicate[repeated] = _arrived(said, repeated, carried) | said.covered[repeated]
    return earlier, duplicate


def _arrived(said: Said, repeated: Integers, carried: Carried) -> Mask:
    """Return which retransmissions come after an acknowledgement that reaches as far as they do."""
    responds = np.isin(said.kind, RESPONSES) & (said.other != 0)
    acks = (said.kind == KIND["important_ack"]) | ((said.kind == KIND["ack"]) & ~said.failed)
    whole = responds | (said.exists & acks)
    answers = np.flatnonzero((whole | (said.kind == KIND["confirm"])) & said.names)
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
    reached[order] = Runs.of(letters[order], carried).most("reached", levels, order >= len(asked))
    arrived: Mask = (reached[: len(asked)] >= needed) & said.exists[repeated]
    return arrived


def _letter(said: Said, of_other: Mask, number: Integers, places: Integers) -> Words:
    """Return a word for the message that a record carries or acknowledges."""
    return mixed(said.session[places], (said.forward ^ of_other)[places], number[places])
