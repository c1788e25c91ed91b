"""Every record with its session, its direction, its message, and whether it is a copy: the table `packets`.

    spoken.py         what each record says, read as the protocol of its flow
    layouts.py        which of mrp's layouts it has
    calls.py          which answer a call got
    conversations.py  which records are one session
    numbers.py        counters without their wrapping
    copies.py         what repeats what
    facts.py          what answers what, and which numbers are left out
    links.py          which record it repeats, and which it acknowledges
    columns.py        the columns of the table

An episode is computed by itself, in arrays.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from fairway.core.tables import PROTOCOLS
from fairway.lake.analysis.calls import answers_of_calls
from fairway.lake.analysis.conversations import Sessions, sessions_of
from fairway.lake.analysis.copies import Copies, Said, copies, said
from fairway.lake.analysis.facts import Facts, facts
from fairway.lake.analysis.links import Links, links
from fairway.lake.analysis.numbers import TURNS, Numbers, widened
from fairway.lake.analysis.spoken import KIND, MRP, PYDEVTS, UDPC, Spoken
from fairway.lake.arrays import Rows, Words, mixed
from fairway.lake.captures.recognition import PortMap

_TURN = np.array([TURNS[name] for name in PROTOCOLS])
_ID_BYTES = 32


class Packets(NamedTuple):
    """What is known of records, for the tables behind `packets`."""

    spoken: Spoken
    sessions: Sessions
    numbers: Numbers
    message: Said
    copies: Copies
    facts: Facts
    links: Links


def packets_of(rows: Rows, port_map: PortMap) -> Packets:
    """Find sessions, messages and copies among rows that are in the order of time within their flows."""
    spoken = Spoken(rows, port_map)
    sessions = sessions_of(spoken, answers_of_calls(spoken.by_episode, spoken.point, spoken.forward))
    numbers = _numbers(spoken, sessions)
    message = said(spoken, sessions, numbers, _rup_words(rows))
    repeated = copies(spoken, sessions, numbers, message)
    known = facts(spoken, sessions, numbers, message, repeated)
    found = links(spoken, sessions, numbers, message)
    return Packets(spoken, sessions, numbers, message, repeated, known, found)


def _numbers(spoken: Spoken, sessions: Sessions) -> Numbers:
    """Return the numbers that the records of sessions say, of their own counter and of the other side's."""
    rows = sessions.rows
    protocol, kind = spoken.protocol[rows], spoken.kind[rows]
    udpc, mrp, pydevts = protocol == UDPC, protocol == MRP, protocol == PYDEVTS
    data, ack = kind == KIND["data"], kind == KIND["ack"]
    sequence, id_ = spoken.mrp_sequence[rows], spoken.number("pydevts_id")[rows]
    own = np.select([udpc, mrp, pydevts], [spoken.number("udpc_index")[rows], sequence, id_], 0)
    has_own = udpc | (mrp & data) | (pydevts & ((kind == KIND["packet"]) | (kind == KIND["close"])))
    acknowledged = spoken.number("udpc_ack")[rows]
    covered = np.where(ack, sequence, spoken.number("mrp_from_sequence")[rows])
    other = np.select([udpc, mrp, pydevts], [acknowledged, covered, id_], 0)
    piggyback = spoken.piggyback[rows]
    has_other = (udpc & (acknowledged != 0)) | (mrp & (ack | piggyback)) | (pydevts & ack)
    return widened(own, has_own, other, has_other, spoken.forward[rows], _TURN[protocol], sessions.starts)


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
