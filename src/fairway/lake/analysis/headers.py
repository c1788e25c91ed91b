"""The headers of session records, as numbers: counters without their wrapping, messages, and what is left out.

A counter that wraps on the wire is widened: the step from one number to the next of the same sender is the shortest
one, as in serial arithmetic, and the sum of steps is the widened number. What a peer acknowledges is widened to the
number nearest to the last one that its sender used. Acknowledgements never move the count themselves: one that names
nothing would move it anywhere.

All of this follows from a record and from a few numbers about those before it in its session. What else is asked of
records is found among those with the same number (`acknowledgements.py`), from these columns.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from fairway.core.columns import Integers
from fairway.core.tables import PROTOCOLS
from fairway.lake.analysis.conversations import Sessions
from fairway.lake.analysis.decoded import CARRIES_OWN, KIND, MRP, PYDEVTS, RUP, UDPC, Decoded
from fairway.lake.arrays import MISSING, Codes, Mask, Rows, Runs, Words, mixed

TURNS = {"udpc": 1 << 32, "mrp": 1 << 16, "rup": 1, "pydevts": 1 << 16}
"""How many numbers a protocol's counter has; rup has none."""
GAP_MAX = 32_768
"""A greater step is no gap: an endpoint that restores a snapshot jumps, and a forged number may be anything."""

_TURN = np.array([TURNS[name] for name in PROTOCOLS])
_ID_BYTES = 32
_NEVER_COPIED = [KIND[name] for name in ("important_ack", "heartbeat", "heartbeat_ack")]
_ACKS = [KIND[name] for name in ("important_ack", "ack", "confirm")]
RESPONSES = [KIND[name] for name in ("response", "answering_request")]


class Headers(NamedTuple):
    """The records of sessions, in the order of time within each; 0 where a record has no such number."""

    session: Words
    """A word for its session."""
    number_space: Words
    """A word for what its number belongs to: its session, or of rup and pydevts its episode at its point."""
    at_ns: Integers
    protocol: Codes
    kind: Codes
    forward: Mask
    own: Integers
    """Of its sender's counter, widened."""
    other: Integers
    """Of the other side's counter, widened."""
    number: Integers
    """The number of its message, widened; of rup a word for its id."""
    exists: Mask
    """Whether it speaks of a message at all."""
    of_other: Mask
    """Whether that is a message of the other side."""
    countable: Mask
    """Whether another of it is a retransmission."""
    gap: Integers
    """How many numbers were left out since the highest before it, below 0 if it is behind that; not of rup."""
    numbered: Mask
    """Whether `gap` is known: it has a number, and is not its sender's first."""
    raw: Integers
    """udpc's index, pydevts' id."""
    ack: Integers
    """udpc's ackIndex."""
    flag: Codes
    """udpc's flags."""
    exact: Integers
    """What an acknowledgement repeats: mrp's stamp, pydevts' crc."""
    position: Integers
    """rup's."""
    total: Integers
    """rup's."""
    failed: Mask
    """Whether it is a pydevts packet that says that something went wrong."""
    piggyback: Mask
    """Whether it is mrp's data in the piggyback layout."""
    covered: Mask
    """Whether it is, and an acknowledgement before is for its number or a later one."""
    further: Mask
    """Whether it acknowledges more than any before it; of other layouts and protocols always."""
    body_bytes: Integers
    body_crc: Integers
    """-1 if it is not known."""
    has: Mask
    """Whether it stands for its own number: always, where the records of all numbers are together."""
    names: Mask
    """Whether it stands for the number that it acknowledges."""

    @property
    def ends_handshake(self) -> Mask:
        """Which records answer a server's first index, its SYN+ACK's: they carry no message."""
        ends: Mask = (self.kind == KIND["response"]) & (self.ack == 1) & (self.body_bytes == 0)
        return ends

    @property
    def carries(self) -> Mask:
        """Which records hold a message, or a part of one."""
        return self.countable & self.exists & ~self.of_other & ~self.ends_handshake

    @property
    def responds(self) -> Mask:
        """Which records answer a request."""
        responds: Mask = np.isin(self.kind, RESPONSES) & ~self.ends_handshake & (self.ack != 0)
        return responds

    @property
    def answers(self) -> Mask:
        """Which records acknowledge something of the other side."""
        covers = self.piggyback & (self.other != 0)
        answers: Mask = ((np.isin(self.kind, _ACKS) & self.exists) | self.responds | covers) & ~self.failed
        return answers

    @property
    def acknowledged(self) -> Integers:
        """The number of the message that a record acknowledges, widened; of rup a word for its id."""
        return np.where(self.responds | self.piggyback, self.other, self.number)


def headers_of(decoded: Decoded, sessions: Sessions) -> Headers:
    """Return the headers of session records, as numbers."""
    rows = sessions.rows

    def number(name: str) -> Integers:
        return decoded.number(name)[rows]

    protocol, kind, forward = decoded.protocol[rows], decoded.kind[rows], decoded.forward[rows]
    udpc, mrp, rup, pydevts = (protocol == one for one in (UDPC, MRP, RUP, PYDEVTS))
    data, ack = kind == KIND["data"], kind == KIND["ack"]
    piggyback, bare, body_bytes = decoded.piggyback[rows], decoded.bare[rows], decoded.body_bytes[rows]
    crc, unread = decoded.body_crc
    sequence = decoded.mrp["mrp_sequence"][rows]
    raw = np.select([udpc, pydevts], [number("udpc_index"), number("pydevts_id")])

    acknowledged = np.where(udpc, number("udpc_ack"), 0)
    named = np.where(ack, sequence, number("mrp_from_sequence"))
    own, other = widened(
        np.where(mrp, sequence, raw),
        udpc | (mrp & data) | (kind == KIND["packet"]) | (kind == KIND["close"]),
        np.select([udpc, mrp, pydevts], [acknowledged, named, raw]),
        (udpc & (acknowledged != 0)) | (mrp & (ack | piggyback)) | (pydevts & ack),
        forward,
        _TURN[protocol],
        sessions.runs,
    )

    carries_own = ~rup & (np.isin(kind, CARRIES_OWN) | (data & ~bare))
    hears = ~rup & (ack | (kind == KIND["important_ack"]) | (data & bare))
    # mrp's number 0 is before the first message: an acknowledgement of it says that nothing has come yet. Neither has
    # udpc an index 0.
    exists = rup | carries_own | (hears & (pydevts | (other != 0)))
    message = np.where(rup, _rup_words(decoded.rows)[rows].view(np.int64), np.where(carries_own, own, other))
    of_other = ack | (kind == KIND["important_ack"]) | bare | (kind == KIND["confirm"])
    of_other |= rup & (kind == KIND["request"])

    calls = (kind == KIND["connect"]) | (kind == KIND["con_reply"])
    copied = [~np.isin(kind, _NEVER_COPIED), calls | (data & ~bare), data]
    session = sessions.words[sessions.number]
    headers = Headers(
        session=session,
        number_space=np.where(rup | pydevts, _episode_words(decoded, rows), session),
        at_ns=decoded.at_ns[rows],
        protocol=protocol,
        kind=kind,
        forward=forward,
        own=own,
        other=other,
        number=message,
        exists=exists,
        of_other=of_other,
        countable=np.select([udpc, mrp, rup], copied, kind == KIND["packet"]),
        gap=np.zeros(len(rows), np.int64),
        numbered=np.zeros(len(rows), bool),
        raw=raw,
        ack=acknowledged,
        flag=np.where(udpc, number("udpc_flag"), 0).astype(np.int16),
        exact=np.select([mrp & ~piggyback, pydevts], [number("mrp_stamp"), number("pydevts_crc")]),
        position=np.where(rup, number("rup_position"), 0),
        total=np.where(rup, number("rup_total"), 0),
        failed=pydevts & (number("pydevts_success") != 0),
        piggyback=piggyback,
        covered=np.zeros(len(rows), bool),
        further=np.ones(len(rows), bool),
        body_bytes=body_bytes,
        body_crc=np.where(unread, MISSING, crc)[rows],
        has=np.ones(len(rows), bool),
        names=np.ones(len(rows), bool),
    )
    return _reached(_skipped(headers, sessions.runs), sessions.runs)


def widened(
    own: Integers, has_own: Mask, other: Integers, has_other: Mask, forward: Mask, turn: Integers, runs: Runs
) -> tuple[Integers, Integers]:
    """Widen the numbers of both sides' counters; 0 where a row has none."""
    turns, references = [], []
    for way, sends in enumerate((forward, ~forward)):
        reference = runs.last(f"own {way}", own, sends & has_own)
        known = sends & has_own & (reference != MISSING)
        turns.append(runs.total(f"turns {way}", np.where(known, (_nearest(own, reference, turn) - own) // turn, 0)))
        references.append(reference)
    of_other = np.where(forward, references[1], references[0])
    named = np.where(of_other == MISSING, other, _nearest(other, of_other, turn))
    wide_own = own + turn * np.where(forward, turns[0], turns[1])
    wide_other = named + turn * np.where(forward, turns[1], turns[0])
    return np.where(has_own, wide_own, 0), np.where(has_other, wide_other, 0)


def _nearest(number: Integers, reference: Integers, turn: Integers) -> Integers:
    """Return the number that is congruent to `number` and nearest to `reference`."""
    half = turn >> 1
    nearest: Integers = reference + ((number - reference + half) & (turn - 1)) - half
    return nearest


def _rup_words(rows: Rows) -> Words:
    """Return a word for each rup id."""
    ids = rows.array("rup_id")
    words = np.zeros(len(rows), dtype=np.uint64)
    known = ids.is_valid().to_numpy(zero_copy_only=False)
    if known.any():
        texts = ids.drop_null().cast(pa.binary()).cast(pa.binary(_ID_BYTES))
        octets = np.frombuffer(texts.buffers()[1], dtype=np.uint64, count=4 * len(texts), offset=texts.offset)
        words[known] = mixed(*octets.reshape(-1, 4).T.copy())
    return words


def _episode_words(decoded: Decoded, rows: Integers) -> Words:
    """Return a word for the point and the episode of each row."""
    return mixed(decoded.point[rows], decoded.rows.numbers(decoded.rows.unit)[rows])


def _skipped(headers: Headers, runs: Runs) -> Headers:
    """Find the numbers that were left out. Those of rup belong to a message, not to the session."""
    number = np.where(headers.protocol == UDPC, headers.raw, headers.own)
    counted = (headers.protocol == UDPC) | (headers.carries & (headers.protocol != RUP))
    expected = [runs.most(f"next {way}", number + 1, counted & sends) for way, sends in _ways(headers)]
    step = number - np.where(headers.forward, *expected)
    numbered = counted & (np.where(headers.forward, *expected) != MISSING)
    return headers._replace(
        gap=np.where(step > GAP_MAX, 0, step), numbered=numbered | (headers.carries & (headers.protocol == RUP))
    )


def _reached(headers: Headers, runs: Runs) -> Headers:
    """Compare numbers of the piggyback layout with acknowledgements before: one is for all up to its number."""
    if not headers.piggyback.any():
        return headers
    reached = [
        runs.most(f"acknowledged {way}", headers.other, headers.piggyback & sends) for way, sends in _ways(headers)
    ]
    own, others = np.where(headers.forward, *reached), np.where(headers.forward, *reached[::-1])
    return headers._replace(
        covered=headers.piggyback & (headers.own <= others), further=~headers.piggyback | (headers.other > own)
    )


def _ways(headers: Headers) -> list[tuple[int, Mask]]:
    return list(enumerate((headers.forward, ~headers.forward)))
