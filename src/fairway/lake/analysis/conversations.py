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

from fairway.core.columns import Integers
from fairway.core.tables import PROTOCOLS
from fairway.lake.analysis.decoded import ANSWERING, KIND, MRP, RUP, UDPC, Decoded
from fairway.lake.arrays import MISSING, Mask, Rows, Words, begins, hexadecimal, last_before, mixed, start_of, together


def answers_of_calls(rows: Rows, point: Integers, forward: Mask) -> Integers:
    """Return for each call of the rows, which are in the order of time, the answer that it got; -1 for all others.

    That is the sessionID (udpc) or the sv_conid (mrp; 0 if rejected) of the next answer to this call, and for a copy
    of a call that comes after its answer, of the one before.
    """
    found = np.full(len(rows), MISSING, dtype=np.int64)
    udpc, mrp = rows.codes("udpc_kind", ("syn", "syn_ack")), rows.codes("mrp_kind", ("connect", "con_reply"))
    shaken = np.flatnonzero((udpc >= 0) | (mrp >= 0))
    if not len(shaken):
        return found
    udpc, mrp = udpc[shaken], mrp[shaken]
    calls = (udpc == 0) | (mrp == 0)
    caller_forward = np.where(calls, forward[shaken], ~forward[shaken])
    udpc_number = np.where(udpc == 1, rows.numbers("udpc_ack")[shaken], rows.numbers("udpc_index")[shaken])
    number = np.where(udpc >= 0, udpc_number, rows.numbers("mrp_client")[shaken])
    answer = np.where(udpc == 1, rows.numbers("udpc_session")[shaken], rows.numbers("mrp_server")[shaken])
    call = mixed(point[shaken], rows.numbers("flow")[shaken], caller_forward, number)
    order = together(call)
    before = _nearest(call[order], ~calls[order])
    after = len(order) - 1 - _nearest(call[order][::-1], ~calls[order][::-1])[::-1]
    nearest = np.where(after < len(order), after, before)
    heard = calls[order] & (nearest != MISSING)
    found[shaken[order[heard]]] = answer[order[nearest[heard]]]
    return found


def _nearest(call: Words, answers: Mask) -> Integers:
    """Return the place of the last answer before each row, of the same call; -1 if there is none."""
    return last_before(answers, start_of(begins(call)))


IDLE_S = {"udpc": 60, "mrp": 300, "rup": 60, "pydevts": 60}
"""A silence that ends a session. mrp forgets a connection after five minutes; the others are over much sooner."""
_IDLE_NS = np.array([IDLE_S[name] * 1_000_000_000 for name in PROTOCOLS])

_BY_SESSION, _BY_CALL, _BY_PAIR, _BY_FLOW = range(4)
"""What names a conversation."""


class Sessions(NamedTuple):
    """The records of sessions, session by session and in the order of time."""

    rows: Integers
    """Their places in the table."""
    first: Mask
    """Whether a record is the first of its session."""
    starts: Integers
    """Where the session of each begins."""
    number: Integers
    """The number of each one's session."""
    from_caller: Mask
    keys: pa.Array
    """The key of each session."""


def sessions_of(decoded: Decoded, answers: Integers) -> Sessions:
    """Return the sessions among rows in the order of time; `answers` are what calls were answered with."""
    rows = np.flatnonzero(decoded.counts)
    strand = _conversation(decoded, rows, answers[rows])
    order = together(np.unique(strand, return_inverse=True)[1])  # by small numbers few are sorted in no time
    rows, strand = rows[order], strand[order]
    at_ns, protocol, forward = decoded.at_ns[rows], decoded.protocol[rows], decoded.forward[rows]
    first = begins(strand)
    silence = np.diff(at_ns, prepend=at_ns[:1])
    first |= silence > _IDLE_NS[protocol]
    number = np.cumsum(first) - 1
    opener = np.flatnonzero(first)
    answering = np.isin(decoded.kind[rows[opener]], ANSWERING) & ~decoded.ends_handshake[rows[opener]]
    caller_forward = forward[opener] ^ answering
    # rup's request asks for more of a message: it speaks to the caller.
    caller_forward ^= (protocol[opener] == RUP) & (decoded.kind[rows[opener]] == KIND["request"])
    keys = hexadecimal(mixed(strand[opener], at_ns[opener]))
    names = pa.array([f"{name}-" for name in PROTOCOLS]).take(pa.array(protocol[opener]))
    return Sessions(
        rows,
        first,
        start_of(first),
        number,
        forward == caller_forward[number],
        pc.binary_join_element_wise(names, keys, ""),
    )


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
        decoded.mrp_origin[rows],
    )
    receiver = np.select(
        [kind == KIND["connect"], kind == KIND["con_reply"]],
        [answers, decoded.number("mrp_client")[rows]],
        decoded.mrp_destination[rows],
    )
    one[mrp] = np.where(forward, sender, receiver)[mrp]
    other[mrp] = np.where(forward, receiver, sender)[mrp]
    return mixed(decoded.point_words[decoded.point[rows]], decoded.flow[rows], protocol, named_by, one, other)
