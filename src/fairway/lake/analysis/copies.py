"""Which records repeat an earlier one, and which of these were needless.

A *copy* is a record that repeats an earlier one of its sender at this point: same udpc index and kind, same mrp
sequence, same rup id and position, same pydevts id. It is a *duplicate* if an acknowledgement of what it carries
passed the point before it, because then an earlier one had arrived. The acknowledgement of a request is its response,
which may be a request itself. Copies that the network makes faster than the receiver acknowledges are no duplicates.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fairway.core.columns import Integers
from fairway.lake.analysis.conversations import Sessions
from fairway.lake.analysis.numbers import Numbers
from fairway.lake.analysis.spoken import CARRIES_OWN, KIND, MRP, PYDEVTS, RUP, UDPC, Spoken
from fairway.lake.arrays import MISSING, Mask, Words, begins, mixed, most_before, start_of, together

_NEVER_COPIED = [KIND[name] for name in ("important_ack", "heartbeat", "heartbeat_ack")]
_RESPONSES = [KIND[name] for name in ("response", "answering_request")]
_ALL = np.int64(1) << np.int64(62)
"""How far an acknowledgement reaches that is for the whole of a message."""


class Said(NamedTuple):
    """Which message the records of sessions speak of."""

    number: Integers
    """Its number, widened; of rup a word for its id."""
    exists: Mask
    """Whether a record speaks of a message at all."""
    of_other: Mask
    """Whether it is a message of the other side."""


class Copies(NamedTuple):
    """How many earlier copies there are of the records of sessions."""

    countable: Mask
    earlier: Integers
    duplicate: Mask


def said(spoken: Spoken, sessions: Sessions, numbers: Numbers, rup_words: Words) -> Said:
    """Return the message of each record of the sessions."""
    rows = sessions.rows
    protocol, kind, bare = spoken.protocol[rows], spoken.kind[rows], spoken.bare[rows]
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
    return Said(number, exists, answers)


def copies(spoken: Spoken, sessions: Sessions, numbers: Numbers, message: Said) -> Copies:
    """Counts the copies among the records of the sessions."""
    rows = sessions.rows
    protocol, kind, forward = spoken.protocol[rows], spoken.kind[rows], spoken.forward[rows]
    countable = _countable(spoken, sessions)
    part = np.where(protocol == RUP, spoken.number("rup_position")[rows], numbers.own)
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
        duplicate[repeated] = _arrived(spoken, sessions, numbers, message, repeated)
        duplicate[repeated] |= _covered(spoken, sessions, numbers, repeated)
    return Copies(countable, earlier, duplicate)


def _countable(spoken: Spoken, sessions: Sessions) -> Mask:
    rows = sessions.rows
    protocol, kind = spoken.protocol[rows], spoken.kind[rows]
    calls = (kind == KIND["connect"]) | (kind == KIND["con_reply"])
    countable = np.select(
        [protocol == UDPC, protocol == MRP, protocol == RUP],
        [
            ~np.isin(kind, _NEVER_COPIED),
            calls | ((kind == KIND["data"]) & ~spoken.bare[rows]),
            kind == KIND["data"],
        ],
        kind == KIND["packet"],
    )
    mask: Mask = countable.astype(np.bool_)
    return mask


def _arrived(spoken: Spoken, sessions: Sessions, numbers: Numbers, message: Said, repeated: Integers) -> Mask:
    """Return which copies come after an acknowledgement that reaches as far as they do."""
    rows = sessions.rows
    protocol, kind = spoken.protocol[rows], spoken.kind[rows]
    failed = (protocol == PYDEVTS) & (spoken.number("pydevts_success")[rows] != 0)
    responds = np.isin(kind, _RESPONSES) & (numbers.other != 0)
    whole = responds | message.exists & ((kind == KIND["important_ack"]) | ((kind == KIND["ack"]) & ~failed))
    answers = np.flatnonzero(whole | (kind == KIND["confirm"]))
    position = spoken.number("rup_position")[rows]
    reach = np.where(whole[answers], _ALL, position[answers])
    # An empty message is confirmed by 0, which says nothing of the first part of any other.
    size = np.maximum(spoken.body_bytes[rows[repeated]], spoken.number("rup_total")[rows[repeated]] > 0)
    needed = np.where(protocol[repeated] == RUP, position[repeated] + size, _ALL)
    asked = _letter(spoken, sessions, message.of_other, message.number, repeated)
    number = np.where(responds, numbers.other, message.number)
    told = _letter(spoken, sessions, message.of_other | responds, number, answers)
    # Both kinds of rows together, in the order of letters and time: the greatest reach before a copy is what arrived.
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


def _letter(spoken: Spoken, sessions: Sessions, of_other: Mask, number: Integers, places: Integers) -> Words:
    """Return a word for the message that a record carries or acknowledges."""
    of_forward = spoken.forward[sessions.rows[places]] ^ of_other[places]
    return mixed(sessions.number[places] * 2 + of_forward, number[places])


def _covered(spoken: Spoken, sessions: Sessions, numbers: Numbers, repeated: Integers) -> Mask:
    """Return which copies of the piggyback layout an acknowledgement before covers: it is for all up to its number."""
    piggyback = spoken.piggyback[sessions.rows]
    if not piggyback.any():
        return np.zeros(len(repeated), dtype=bool)
    forward = spoken.forward[sessions.rows]
    covered = [most_before(numbers.other, piggyback & sent, sessions.first) for sent in (~forward, forward)]
    reached = np.where(forward, covered[0], covered[1])[repeated]
    return piggyback[repeated] & (numbers.own[repeated] <= reached)
