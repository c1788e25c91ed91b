"""Which records belong together: the conversation that an id names, and the sessions that silences cut it into.

A *conversation* is what one id names at one point of one flow: udpc's sessionID, mrp's pair of conids; the flow
itself for rup and pydevts, which have no id. A *session* is a conversation cut where it was silent for longer than
its protocol lets a peer live; so an id, or a port, that is used again later is another session. Its key is made
from the point, the flow, the id and the time of its first record.

The *caller* is who sent the SYN or the connect. Where neither was seen, it is who sent the first record, or whoever
that record answers.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fairway.capture.columns.records import NO_TIME
from fairway.core.columns import Integers
from fairway.core.tables import PROTOCOLS
from fairway.lake.analysis.decoded import ANSWERING, KIND, MRP, RUP, UDPC, Decoded
from fairway.lake.arrays import (
    MISSING,
    Carried,
    Mask,
    Rows,
    Runs,
    Words,
    begins,
    hexadecimal,
    last_before,
    mixed,
    start_of,
    together,
)

_UDPC, _MRP = ("syn", "syn_ack"), ("connect", "con_reply")
"""Calls and their answers."""
_NUMBERS = ("udpc_index", "udpc_ack", "udpc_session", "mrp_client", "mrp_server")
SHAKEN = (
    *("episode", "point", "at_ns", "source", "destination", "source_port", "destination_port", "mrp_version"),
    *("mrp_status", *(f"{name}_kind" for name in PROTOCOLS), *_NUMBERS),
)
"""The columns that tell of calls and answers what conversations and layouts follow from."""


def handshakes_in(rows: Rows) -> Mask:
    """Return which rows are calls or their answers."""
    found: Mask = (rows.codes("udpc_kind", _UDPC) >= 0) | (rows.codes("mrp_kind", _MRP) >= 0)
    return found


def answers_of_calls(decoded: Decoded) -> Integers:
    """Return for each call of the rows, which are in the order of time, the answer that it got; -1 for all others.

    That is the sessionID (udpc) or the sv_conid (mrp; 0 if rejected) of the next answer to this call, and for a copy
    of a call that comes after its answer, of the one before.
    """
    rows = decoded.rows
    found = np.full(len(rows), MISSING, dtype=np.int64)
    shaken = np.flatnonzero(np.isin(decoded.kind, [KIND[name] for name in (*_UDPC, *_MRP)]))
    if not len(shaken):
        return found
    kind, forward = decoded.kind[shaken], decoded.forward[shaken]
    syn, syn_ack, connect = (kind == KIND[name] for name in ("syn", "syn_ack", "connect"))
    calls = syn | connect
    numbers = {name: rows.numbers(name)[shaken] for name in _NUMBERS}
    number = np.select([syn, syn_ack], [numbers["udpc_index"], numbers["udpc_ack"]], numbers["mrp_client"])
    answer = np.where(syn_ack, numbers["udpc_session"], numbers["mrp_server"])
    call = mixed(decoded.point[shaken], rows.numbers(rows.unit)[shaken], forward ^ ~calls, number)
    order = together(call)
    before = _nearest(call[order], ~calls[order])
    after = len(order) - 1 - _nearest(call[order][::-1], ~calls[order][::-1])[::-1]
    nearest = np.where(after < len(order), after, before)
    heard = calls[order] & (nearest != MISSING)
    found[shaken[order[heard]]] = answer[order[nearest[heard]]]
    return found


def _nearest(call: Words, answers: Mask) -> Integers:
    """Return the row of the last answer before each row, of the same call; -1 if there is none."""
    return last_before(answers, start_of(begins(call)))


IDLE_S = {"udpc": 60, "mrp": 300, "rup": 60, "pydevts": 60}
"""A silence that ends a session. mrp forgets a connection after five minutes; the others are over much sooner."""
_IDLE_NS = np.array([IDLE_S[name] * 1_000_000_000 for name in PROTOCOLS])

_BY_SESSION, _BY_CALL, _BY_PAIR, _BY_FLOW = range(4)
"""What names a conversation."""


class Sessions(NamedTuple):
    """The records of sessions, session by session and in the order of time."""

    rows: Integers
    """Their rows in the table."""
    number: Integers
    """The index of each one's session in `words` and `keys`."""
    from_caller: Mask
    words: Words
    """A word for each session."""
    keys: pa.Array
    """The key of each session."""
    runs: Runs
    position: Integers
    """The position of each record in its session, from 1."""


def sessions_of(decoded: Decoded, answers: Integers, carried: Carried) -> Sessions:
    """Return the sessions among rows in the order of time; `answers` are what calls were answered with."""
    rows = np.flatnonzero(decoded.counts)
    conversation = _conversation(decoded, rows, answers[rows])
    order = together(np.unique(conversation, return_inverse=True)[1])  # by small numbers few are sorted in no time
    rows, conversation = rows[order], conversation[order]
    at_ns, protocol, forward = decoded.at_ns[rows], decoded.protocol[rows], decoded.forward[rows]
    begun = begins(conversation)
    before_ns = np.roll(at_ns, 1)
    before_ns[begun] = carried.get("last", conversation[begun], NO_TIME)
    new = (before_ns == NO_TIME) | (at_ns - before_ns > _IDLE_NS[protocol])
    first = begun | new
    opener, number = np.flatnonzero(first), np.cumsum(first) - 1
    answering = np.isin(decoded.kind[rows[opener]], ANSWERING) & ~decoded.ends_handshake[rows[opener]]
    caller_forward = forward[opener] ^ answering
    # rup's request asks for more of a message: it speaks to the caller.
    caller_forward ^= (protocol[opener] == RUP) & (decoded.kind[rows[opener]] == KIND["request"])
    words, goes_on = mixed(conversation[opener], at_ns[opener]), ~new[opener]
    words[goes_on] = carried.get("session", conversation[opener[goes_on]], 0).view(np.uint64)
    caller_forward[goes_on] = carried.get("caller", conversation[opener[goes_on]], 0) != 0
    last = np.append(begun[1:], True)[: len(rows)]
    carried.put("last", conversation[last], at_ns[last])
    carried.put("session", conversation[last], words[number[last]].view(np.int64))
    carried.put("caller", conversation[last], caller_forward[number[last]].astype(np.int64))
    names = pa.array([f"{name}-" for name in PROTOCOLS]).take(pa.array(protocol[opener]))
    keys = pc.binary_join_element_wise(names, hexadecimal(words), "")
    runs = Runs(words, first, carried)
    position = runs.total("position", np.ones(len(rows), dtype=np.int64))
    return Sessions(rows, number, forward == caller_forward[number], words, keys, runs, position)


def _conversation(decoded: Decoded, rows: Integers, answers: Integers) -> Words:
    """Return a word for the conversation of each row, from the view of both directions."""
    protocol, kind, forward = decoded.protocol[rows], decoded.kind[rows], decoded.forward[rows]
    one, other = np.zeros(len(rows), np.int64), np.zeros(len(rows), np.int64)
    named_by = np.full(len(rows), _BY_FLOW)
    udpc, mrp = protocol == UDPC, protocol == MRP
    called = udpc & (kind == KIND["syn"])
    answered = called & (answers != MISSING)
    named_by[udpc], named_by[called & ~answered], named_by[mrp] = _BY_SESSION, _BY_CALL, _BY_PAIR
    one[udpc] = decoded.number("udpc_session")[rows[udpc]]
    one[answered] = answers[answered]
    sender = np.select(
        [kind == KIND["connect"], kind == KIND["con_reply"]],
        [decoded.number("mrp_client")[rows], decoded.number("mrp_server")[rows]],
        decoded.mrp["mrp_origin"][rows],
    )
    receiver = np.select(
        [kind == KIND["connect"], kind == KIND["con_reply"]],
        [answers, decoded.number("mrp_client")[rows]],
        decoded.mrp["mrp_destination"][rows],
    )
    one[mrp] = np.where(forward, sender, receiver)[mrp]
    other[mrp] = np.where(forward, receiver, sender)[mrp]
    return mixed(decoded.point[rows], decoded.flow[rows], protocol, named_by, one, other)
