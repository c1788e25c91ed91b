"""Numbers without their wrapping, the message of each record, and which records repeat an earlier one.

A counter that wraps on the wire is widened: the step from one number to the next of the same sender is the shortest
one, as in serial arithmetic, and the sum of steps is the widened number. What a peer acknowledges is widened to the
number nearest to the last one that its sender used. Acknowledgements never move the count themselves: one that names
nothing would move it anywhere.

A *retransmission* is a record that repeats an earlier one of its sender at this point: same udpc index and kind, same
mrp sequence, same rup id and position, same pydevts id. It is a *duplicate* if an acknowledgement of what it carries
passed the point before it, because then an earlier one had arrived. The acknowledgement of a request is its response,
which may be a request itself. What the network doubles faster than the receiver acknowledges is no duplicate.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fairway.core.columns import Integers
from fairway.lake.analysis.conversations import Sessions
from fairway.lake.analysis.decoded import CARRIES_OWN, KIND, MRP, PYDEVTS, RUP, UDPC, Decoded
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

TURNS = {"udpc": 1 << 32, "mrp": 1 << 16, "rup": 1, "pydevts": 1 << 16}
"""How many numbers a protocol's counter has; rup has none."""


class Numbers(NamedTuple):
    """What the rows of sessions say of both sides' counters; 0 where they say nothing."""

    own: Integers
    other: Integers


def widened(
    own: Integers, has_own: Mask, other: Integers, has_other: Mask, forward: Mask, turn: Integers, starts: Integers
) -> Numbers:
    """Widen the numbers of rows that lie session by session, in the order of time; `starts` is where each begins."""
    turns, references = [], []
    for sends in (forward, ~forward):
        last = last_before(sends & has_own, starts)
        reference = np.where(last == MISSING, MISSING, own[last])
        known = sends & has_own & (last != MISSING)
        gone_round = np.where(known, (_nearest(own, reference, turn) - own) // turn, 0)
        turns.append(sum_until(gone_round, starts))
        references.append(reference)
    of_other = np.where(forward, references[1], references[0])
    named = np.where(of_other == MISSING, other, _nearest(other, of_other, turn))
    wide_own = own + turn * np.where(forward, turns[0], turns[1])
    wide_other = named + turn * np.where(forward, turns[1], turns[0])
    return Numbers(np.where(has_own, wide_own, 0), np.where(has_other, wide_other, 0))


def _nearest(number: Integers, reference: Integers, turn: Integers) -> Integers:
    """Return the number that is congruent to `number` and nearest to `reference`."""
    half = turn >> 1
    nearest: Integers = reference + ((number - reference + half) & (turn - 1)) - half
    return nearest


_NEVER_COPIED = [KIND[name] for name in ("important_ack", "heartbeat", "heartbeat_ack")]
_RESPONSES = [KIND[name] for name in ("response", "answering_request")]
_ALL = np.int64(1) << np.int64(62)
"""How far an acknowledgement reaches that is for the whole of a message."""


class Message(NamedTuple):
    """Which message the records of sessions speak of."""

    number: Integers
    """Its number, widened; of rup a word for its id."""
    exists: Mask
    """Whether a record speaks of a message at all."""
    of_other: Mask
    """Whether it is a message of the other side."""


class Retransmissions(NamedTuple):
    """How often the records of sessions were sent before."""

    countable: Mask
    earlier: Integers
    duplicate: Mask


def messages_of(decoded: Decoded, sessions: Sessions, numbers: Numbers, rup_words: Words) -> Message:
    """Return the message of each record of the sessions."""
    rows = sessions.rows
    protocol, kind, bare = decoded.protocol[rows], decoded.kind[rows], decoded.bare[rows]
    of_rup = protocol == RUP
    data, ack = kind == KIND["data"], (kind == KIND["ack"]) | (kind == KIND["important_ack"])
    own = ~of_rup & (np.isin(kind, CARRIES_OWN) | (data & ~bare))
    other = ~of_rup & (ack | (data & bare))
    # mrp's number 0 is before the first message: an acknowledgement of it says that nothing has come yet. Neither has
    # udpc an index 0.
    exists = of_rup | own | (other & ((protocol == PYDEVTS) | (numbers.other != 0)))
    number = np.where(own, numbers.own, numbers.other)
    number[of_rup] = rup_words[rows[of_rup]].view(np.int64)
    answers = ack | bare | (kind == KIND["confirm"]) | (of_rup & (kind == KIND["request"]))
    return Message(number, exists, answers)


def retransmissions(decoded: Decoded, sessions: Sessions, numbers: Numbers, message: Message) -> Retransmissions:
    """Count the retransmissions among the records of the sessions."""
    rows = sessions.rows
    protocol, kind, forward = decoded.protocol[rows], decoded.kind[rows], decoded.forward[rows]
    countable = _countable(decoded, sessions)
    part = np.where(protocol == RUP, decoded.number("rup_position")[rows], numbers.own)
    named = np.where(protocol == RUP, message.number, kind)
    places = np.flatnonzero(countable)
    key = mixed(sessions.number[places] * 2 + forward[places], named[places], part[places])
    order = together(key)
    starts = start_of(begins(key[order]))
    earlier = np.zeros(len(rows), dtype=np.int64)
    earlier[places[order]] = np.arange(len(order)) - starts
    repeated = np.flatnonzero(earlier)
    duplicate = np.zeros(len(rows), dtype=bool)
    if len(repeated):
        duplicate[repeated] = _arrived(decoded, sessions, numbers, message, repeated)
        duplicate[repeated] |= _covered(decoded, sessions, numbers, repeated)
    return Retransmissions(countable, earlier, duplicate)


def _countable(decoded: Decoded, sessions: Sessions) -> Mask:
    rows = sessions.rows
    protocol, kind = decoded.protocol[rows], decoded.kind[rows]
    calls = (kind == KIND["connect"]) | (kind == KIND["con_reply"])
    countable = np.select(
        [protocol == UDPC, protocol == MRP, protocol == RUP],
        [
            ~np.isin(kind, _NEVER_COPIED),
            calls | ((kind == KIND["data"]) & ~decoded.bare[rows]),
            kind == KIND["data"],
        ],
        kind == KIND["packet"],
    )
    mask: Mask = countable.astype(np.bool_)
    return mask


def _arrived(decoded: Decoded, sessions: Sessions, numbers: Numbers, message: Message, repeated: Integers) -> Mask:
    """Return which retransmissions come after an acknowledgement that reaches as far as they do."""
    rows = sessions.rows
    protocol, kind = decoded.protocol[rows], decoded.kind[rows]
    failed = (protocol == PYDEVTS) & (decoded.number("pydevts_success")[rows] != 0)
    responds = np.isin(kind, _RESPONSES) & (numbers.other != 0)
    whole = responds | message.exists & ((kind == KIND["important_ack"]) | ((kind == KIND["ack"]) & ~failed))
    answers = np.flatnonzero(whole | (kind == KIND["confirm"]))
    position = decoded.number("rup_position")[rows]
    reach = np.where(whole[answers], _ALL, position[answers])
    # An empty message is confirmed by 0, which says nothing of the first part of any other.
    size = np.maximum(decoded.body_bytes[rows[repeated]], decoded.number("rup_total")[rows[repeated]] > 0)
    needed = np.where(protocol[repeated] == RUP, position[repeated] + size, _ALL)
    asked = _letter(decoded, sessions, message.of_other, message.number, repeated)
    number = np.where(responds, numbers.other, message.number)
    told = _letter(decoded, sessions, message.of_other | responds, number, answers)
    # Both kinds of rows together, in the order of letters and time: the greatest reach before a retransmission arrived.
    letters, places = np.concatenate((asked, told)), np.concatenate((repeated, answers))
    order = np.lexsort((places, letters))
    levels = np.concatenate((np.full(len(asked), MISSING, np.int64), reach))[order]
    reached = np.empty(len(order), dtype=np.int64)
    reached[order] = _most_so_far(levels, begins(letters[order]))
    arrived: Mask = (reached[: len(asked)] >= needed) & message.exists[repeated]
    return arrived


def _most_so_far(levels: Integers, first: Mask) -> Integers:
    """Return the greatest level of each group up to each row."""
    values, rank = np.unique(levels, return_inverse=True)
    group = np.cumsum(first) * len(values)
    reached: Integers = values[np.maximum.accumulate(group + rank) - group]
    return reached


def _letter(decoded: Decoded, sessions: Sessions, of_other: Mask, number: Integers, places: Integers) -> Words:
    """Return a word for the message that a record carries or acknowledges."""
    of_forward = decoded.forward[sessions.rows[places]] ^ of_other[places]
    return mixed(sessions.number[places] * 2 + of_forward, number[places])


def _covered(decoded: Decoded, sessions: Sessions, numbers: Numbers, repeated: Integers) -> Mask:
    """Return which of the piggyback layout an acknowledgement before covers: it is for all up to its number."""
    piggyback = decoded.piggyback[sessions.rows]
    if not piggyback.any():
        return np.zeros(len(repeated), dtype=bool)
    forward = decoded.forward[sessions.rows]
    covered = [most_before(numbers.other, piggyback & sent, sessions.first) for sent in (~forward, forward)]
    reached = np.where(forward, covered[0], covered[1])[repeated]
    return piggyback[repeated] & (numbers.own[repeated] <= reached)
