"""Which layout an mrp datagram has: the stamped or the piggyback one.

Data can often be read both ways; only its connection tells. A connection has the layout of its connect's version,
and a flow whose connects all ask for one layout has that one. In a flow with both, data whose ids an accepted
piggyback connect agreed on is piggyback. Where no connect was seen, the reading is taken that is consistent over
the flow: acknowledgements (type 4) belong to the stamped layout, and data too short for it to the other; and where
there are neither, ids that stay the same in the piggyback reading and change in the stamped one, which takes the
sequence for a part of an id.
"""

from __future__ import annotations

import numpy as np

from fairway.core.columns import Integers
from fairway.lake.arrays import Codes, Mask, Rows, Words, begins, count, least, mixed, most

_KINDS = ("data", "ack", "connect", "con_reply")
_DATA, _ACK, _CONNECT, _CON_REPLY = range(len(_KINDS))
_STAMPED, _PIGGYBACK, _BOTH = range(3)


def is_piggyback(rows: Rows, forward: Mask, mrp: Mask) -> Mask:
    """Return which rows of mrp's data have the piggyback layout; the rows hold all there is of their flows."""
    kind = rows.codes("mrp_kind", _KINDS)
    data = mrp & (kind == _DATA)
    stamped, piggyback = rows.flags("mrp_stamped"), rows.flags("mrp_piggyback")
    chosen: Mask = data & piggyback & ~stamped
    unclear = np.flatnonzero(data & piggyback & stamped)
    if not len(unclear):
        return chosen
    spoken = np.flatnonzero((kind >= 0) & ~rows.missing("flow"))
    flows, flow = np.unique(rows.numbers("flow")[spoken], return_inverse=True)
    layout = _layouts(rows, spoken, kind[spoken], flow, len(flows))
    of_row = layout[np.searchsorted(flows, rows.numbers("flow")[unclear])]
    chosen[unclear[of_row == _PIGGYBACK]] = True
    mixed_rows = unclear[of_row == _BOTH]
    if len(mixed_rows):
        handshakes = spoken[np.isin(kind[spoken], (_CONNECT, _CON_REPLY)) & (layout[flow] == _BOTH)]
        agreed = _piggyback_pairs(rows, handshakes, kind[handshakes] == _CONNECT, forward)
        origin, destination = (rows.numbers(f"piggyback_{end}")[mixed_rows] for end in ("origin", "destination"))
        ways = forward[mixed_rows]
        pairs = _pairs(rows, mixed_rows, np.where(ways, origin, destination), np.where(ways, destination, origin))
        chosen[mixed_rows[np.isin(pairs, agreed)]] = True
    return chosen


def _layouts(rows: Rows, spoken: Integers, kind: Codes, flow: Integers, flows: int) -> Integers:
    """Return the layout of each flow with mrp's datagrams."""
    connects = kind == _CONNECT
    version = rows.numbers("mrp_version")[spoken][connects]
    oldest = least(flow[connects], version, flows, -1)
    newest = most(flow[connects], version, flows, -1)
    data = kind == _DATA
    acks = count(flow, kind == _ACK, flows) > 0
    short = count(flow, data & ~rows.flags("mrp_stamped")[spoken], flows) > 0
    ids = [_distinct(rows, spoken[data], flow[data], flows, name) for name in ("mrp_origin", "piggyback_origin")]
    conditions = [
        (oldest == 0) & (newest == 0),
        (oldest == 1) & (newest == 1),
        oldest == 0,
        acks,
        short,
        (ids[1] <= 2) & (ids[0] > 2),
    ]
    return np.select(conditions, [_STAMPED, _PIGGYBACK, _BOTH, _STAMPED, _PIGGYBACK, _PIGGYBACK], _STAMPED)


def _distinct(rows: Rows, places: Integers, flow: Integers, flows: int, name: str) -> Integers:
    """Return how many different ids each flow has."""
    known = ~rows.missing(name)[places]
    # An id has 24 bits at the most.
    keys = np.unique((flow[known] << np.int64(32)) | rows.numbers(name)[places][known])
    return np.bincount(keys >> np.int64(32), minlength=flows)


def _piggyback_pairs(rows: Rows, handshakes: Integers, calls: Mask, forward: Mask) -> Integers:
    """Return the pairs of ids that accepted piggyback connects agreed on."""
    caller_forward = np.where(calls, forward[handshakes], ~forward[handshakes])
    client = rows.numbers("mrp_client")[handshakes]
    call = mixed(rows.numbers("flow")[handshakes], client, caller_forward)
    order = np.lexsort((rows.numbers("at_ns")[handshakes], call))
    calls, call = calls[order], call[order]
    accepts = ~calls & (rows.numbers("mrp_status")[handshakes][order] == 1)
    first_call, first_accept = (_first(call, wanted) for wanted in (calls, accepts))
    opened = first_call[rows.numbers("mrp_version")[handshakes[order[first_call]]] == 1]
    _, one, other = np.intersect1d(call[opened], call[first_accept], return_indices=True)
    request, reply = order[opened[one]], order[first_accept[other]]
    server = rows.numbers("mrp_server")[handshakes[reply]]
    ways = caller_forward[request]
    ends = np.where(ways, client[request], server), np.where(ways, server, client[request])
    return _pairs(rows, handshakes[request], *ends)


def _first(keys: Words, wanted: Mask) -> Integers:
    """Return the place of the first wanted row of each key."""
    places = np.flatnonzero(wanted)
    return places[begins(keys[places])]


def _pairs(rows: Rows, places: Integers, one: Integers, other: Integers) -> Integers:
    """Return a word for the ids of both ends of a flow."""
    return mixed(rows.numbers("flow")[places], one, other).view(np.int64)
