"""Which answer a call got: a SYN names its own id and a connect half of one, and the answer brings the session's."""

from __future__ import annotations

import numpy as np

from fairway.core.columns import Integers
from fairway.lake.arrays import MISSING, Mask, Rows, Words, begins, last_before, mixed, start_of, together

CALLS = ("syn", "connect")
ANSWERS = ("syn_ack", "con_reply")


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
