"""What each record says, read as the protocol of its flow: kind, numbers and sizes, as arrays.

mrp's data can often be read in two layouts, stamped and piggyback; only its connection tells. A connection has the
layout of its connect's version, and a flow whose connects all ask for one layout has that one. In a flow with both,
data whose ids an accepted piggyback connect agreed on is piggyback. Where no connect was seen, the reading is taken
that is consistent over the flow: acknowledgements (type 4) belong to the stamped layout, and data too short for it to
the other; and where there are neither, ids that stay the same in the piggyback reading and change in the stamped one,
which takes the sequence for a part of an id.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from fairway.capture.columns.records import NO_TIME
from fairway.core.columns import Integers
from fairway.core.tables import PROTOCOLS
from fairway.lake.arrays import MISSING, Codes, Mask, Rows, Words, begins, count, least, mixed, most, word_of
from fairway.lake.captures.recognition import DTLS, PortMap, Recognised, recognised
from fairway.protocols.mrp import wire as mrp
from fairway.protocols.pydevts import wire as pydevts
from fairway.protocols.rup import wire as rup
from fairway.protocols.udpc import wire as udpc

_KINDS = ("data", "ack", "connect", "con_reply")
_DATA, _ACK, _CONNECT, _CON_REPLY = range(len(_KINDS))
_STAMPED, _PIGGYBACK, _BOTH = range(3)


class Layouts(NamedTuple):
    """Which layout the data of flows has that can be read in both."""

    flows: Integers
    """Sorted."""
    layout: Integers
    agreed: Integers
    """In flows with both, the pairs of ids that accepted piggyback connects agreed on."""


class Signs(NamedTuple):
    """What tells the layout of flows where no connect does; what parts of them show can be added."""

    acks: Integers
    """How many acknowledgements there are."""
    short: Integers
    """How much data that is too short for the stamped layout."""
    ids: tuple[Integers, Integers]
    """Each flow and sender's id, by the stamped reading and by the other."""

    def plus(self, other: Signs) -> Signs:
        """Return what both show."""
        one, two = (np.union1d(*both) for both in zip(self.ids, other.ids, strict=True))
        return Signs(self.acks + other.acks, self.short + other.short, (one, two))


def is_piggyback(rows: Rows, forward: Mask, mrp: Mask, known: Layouts | None = None) -> Mask:
    """Return which rows of mrp's data have the piggyback layout; the rows hold all there is of flows not known yet."""
    kind = rows.codes("mrp_kind", _KINDS)
    data = mrp & (kind == _DATA)
    stamped, piggyback = rows.flags("mrp_stamped"), rows.flags("mrp_piggyback")
    chosen: Mask = data & piggyback & ~stamped
    unclear = np.flatnonzero(data & piggyback & stamped)
    if not len(unclear):
        return chosen
    if known is None:
        flows = np.unique(rows.numbers(rows.unit)[(kind >= 0) & ~rows.missing(rows.unit)])
        known = layouts(rows, forward, flows, signs_in(rows, flows))
    of_row = known.layout[np.searchsorted(known.flows, rows.numbers(rows.unit)[unclear])]
    chosen[unclear[of_row == _PIGGYBACK]] = True
    mixed_rows = unclear[of_row == _BOTH]
    if len(mixed_rows):
        origin, destination = (rows.numbers(f"piggyback_{end}")[mixed_rows] for end in ("origin", "destination"))
        ways = forward[mixed_rows]
        pairs = _pairs(rows, mixed_rows, np.where(ways, origin, destination), np.where(ways, destination, origin))
        chosen[mixed_rows[np.isin(pairs, known.agreed)]] = True
    return chosen


def signs_in(rows: Rows, flows: Integers) -> Signs:
    """Return what the datagrams of these flows, which are sorted, show of mrp's layouts."""
    kind = rows.codes("mrp_kind", _KINDS)
    of_mrp = np.flatnonzero((kind >= 0) & ~rows.missing(rows.unit))
    kind, flow = kind[of_mrp], np.searchsorted(flows, rows.numbers(rows.unit)[of_mrp])
    data = kind == _DATA
    short = data & ~rows.flags("mrp_stamped")[of_mrp]
    indices, owner = of_mrp[data], flow[data]

    def ids(name: str) -> Integers:
        known = ~rows.missing(name)[indices]
        # An id has 24 bits at the most.
        return np.unique((owner[known] << np.int64(32)) | rows.numbers(name)[indices][known])

    return Signs(
        count(flow, kind == _ACK, len(flows)),
        count(flow, short, len(flows)),
        (ids("mrp_origin"), ids("piggyback_origin")),
    )


def layouts(rows: Rows, forward: Mask, flows: Integers, signs: Signs) -> Layouts:
    """Return the layout of flows; the rows hold all of their connects and replies."""
    kind = rows.codes("mrp_kind", _KINDS)
    shaken = np.flatnonzero(np.isin(kind, (_CONNECT, _CON_REPLY)) & ~rows.missing(rows.unit))
    calls, flow = kind[shaken] == _CONNECT, np.searchsorted(flows, rows.numbers(rows.unit)[shaken])
    version = rows.numbers("mrp_version")[shaken][calls]
    oldest, newest = least(flow[calls], version, len(flows), -1), most(flow[calls], version, len(flows), -1)
    distinct = [np.bincount(ids >> np.int64(32), minlength=len(flows)) for ids in signs.ids]
    conditions = [
        (oldest == 0) & (newest == 0),
        (oldest == 1) & (newest == 1),
        oldest == 0,
        signs.acks > 0,
        signs.short > 0,
        (distinct[1] <= 2) & (distinct[0] > 2),
    ]
    layout = np.select(conditions, [_STAMPED, _PIGGYBACK, _BOTH, _STAMPED, _PIGGYBACK, _PIGGYBACK], _STAMPED)
    both = layout[flow] == _BOTH
    return Layouts(flows, layout, _piggyback_pairs(rows, shaken[both], calls[both], forward))


def _piggyback_pairs(rows: Rows, handshakes: Integers, calls: Mask, forward: Mask) -> Integers:
    """Return the pairs of ids that accepted piggyback connects agreed on."""
    caller_forward = np.where(calls, forward[handshakes], ~forward[handshakes])
    client = rows.numbers("mrp_client")[handshakes]
    call = mixed(rows.numbers(rows.unit)[handshakes], client, caller_forward)
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
    """Return the index of the first wanted row of each key."""
    indices = np.flatnonzero(wanted)
    return indices[begins(keys[indices])]


def _pairs(rows: Rows, indices: Integers, one: Integers, other: Integers) -> Integers:
    """Return a word for the ids of both ends of a flow."""
    return mixed(rows.numbers(rows.unit)[indices], one, other).view(np.int64)


UDPC, MRP, RUP, PYDEVTS = range(len(PROTOCOLS))

KINDS = tuple(dict.fromkeys((*mrp.KINDS, *udpc.KINDS, *rup.KINDS, *pydevts.KINDS)))
"""The kinds of all protocols; some have a name in common."""
KIND = {name: number for number, name in enumerate(KINDS)}
ANSWERING = [
    KIND[name]
    for name in (
        *("syn_ack", "important_ack", "heartbeat_ack", "response", "answering_request"),
        *("con_reply", "ack", "confirm"),
    )
]
"""What speaks to the caller, if it is seen first; so does rup's request. What ends a handshake does not."""
CARRIES_OWN = [
    KIND[name] for name in ("plain", "important", "request", "response", "answering_request", "packet", "close")
]


class Known(NamedTuple):
    """What all of an episode together told."""

    recognised: Recognised
    """Of the one episode."""
    layouts: Layouts | None = None


@dataclass(frozen=True)
class Decoded:
    """Rows of `DATAGRAMS` in the order of time, and what they say; they hold all there is of episodes not known yet."""

    rows: Rows
    port_map: PortMap
    known: Known | None = None

    @cached_property
    def forward(self) -> Mask:
        """A direction that both sides of a flow agree on, before it is known who called."""
        source, sources = self.rows.texts("source")
        destination, destinations = self.rows.texts("destination")
        ranks = {text: rank for rank, text in enumerate(sorted({*sources, *destinations}))}
        one = np.array([ranks[text] for text in sources] + [MISSING])[source]
        other = np.array([ranks[text] for text in destinations] + [MISSING])[destination]
        by_port = self.rows.numbers("source_port") < self.rows.numbers("destination_port")
        forward: Mask = (one < other) | ((one == other) & by_port)
        return forward

    @cached_property
    def recognised(self) -> Recognised:
        """The protocol of each row's flow, and the evidence for it."""
        return recognised(self.rows, self.forward, self.port_map, self.known and self.known.recognised)

    @property
    def protocol(self) -> Codes:
        """The protocol of each row, as an index in `RECOGNISED`."""
        return self.recognised.protocol

    @cached_property
    def kind(self) -> Codes:
        """The kind of each row as an index in `KINDS`; -1 if it has none."""
        kind = np.full(len(self.rows), MISSING, dtype=np.int16)
        for number, name in enumerate(PROTOCOLS):
            mine = self.protocol == number
            kind[mine] = self.rows.codes(f"{name}_kind", KINDS)[mine]
        return kind

    @cached_property
    def at_ns(self) -> Integers:
        """When each was captured."""
        return np.where(self.rows.missing("at_ns"), NO_TIME, self.rows.numbers("at_ns"))

    @cached_property
    def counts(self) -> Mask:
        """Whether a row belongs to a conversation."""
        kind = self.kind
        good: Mask = (kind != MISSING) & (kind != KIND["malformed"]) & (kind != KIND["ignore"])
        good &= (self.protocol < DTLS) & (self.at_ns != NO_TIME)
        return good

    @cached_property
    def point(self) -> Words:
        """A word for the point of each row."""
        indices, texts = self.rows.texts("point")
        return np.array([word_of(text) for text in texts], dtype=np.int64).view(np.uint64)[indices]

    @property
    def flow(self) -> Integers:
        """The flow of each row; 0 if it has none."""
        return self.rows.numbers("flow")

    @cached_property
    def piggyback(self) -> Mask:
        """Which rows of mrp's data have the piggyback layout."""
        mrp = self.protocol == MRP
        return is_piggyback(self.rows, self.forward, mrp, self.known and self.known.layouts)

    def number(self, name: str) -> Integers:
        """Return a field of the header; in rows of other protocols it means nothing."""
        return self.rows.numbers(name)

    @cached_property
    def mrp(self) -> dict[str, Integers]:
        """The fields that both of mrp's layouts have, in the layout that holds."""
        rows, fields = self.rows, ("origin", "destination", "sequence")
        both = {name: (rows.numbers(f"piggyback_{name}"), rows.numbers(f"mrp_{name}")) for name in fields}
        return {f"mrp_{name}": np.where(self.piggyback, *pair) for name, pair in both.items()}

    @cached_property
    def header_bytes(self) -> Integers:
        """How long the header of each row is; of a row that is nothing but a header, all of it."""
        kind, protocol, whole = self.kind, self.protocol, self.rows.numbers("payload_bytes")
        is_short = self.piggyback | ~self.rows.flags("mrp_stamped")
        mrp_data = np.where(is_short, mrp.PIGGYBACK_BYTES, mrp.STAMPED_BYTES)
        of_mrp = np.select([kind == KIND["data"], kind == KIND["ignore"]], [mrp_data, mrp.HEAD_BYTES], whole)
        of_rup = np.where(kind == KIND["data"], rup.DATA_HEADER_BYTES, rup.CONTROL_BYTES)
        conditions = [protocol == UDPC, protocol == MRP, protocol == RUP, protocol == PYDEVTS]
        return np.select(conditions, [udpc.HEADER_BYTES, of_mrp, of_rup, pydevts.HEADER_BYTES], 0)

    @cached_property
    def has_body(self) -> Mask:
        """Whether a row is a well-formed datagram."""
        whole: Mask = (self.kind != MISSING) & (self.kind != KIND["malformed"])
        return whole

    @cached_property
    def body_bytes(self) -> Integers:
        """The size of each row's body; 0 if it has none."""
        return np.where(self.has_body, self.rows.numbers("payload_bytes") - self.header_bytes, 0)

    @cached_property
    def ends_handshake(self) -> Mask:
        """Which rows answer a server's first index, 1, which is its SYN+ACK's: they carry no message."""
        answers = (self.protocol == UDPC) & (self.kind == KIND["response"]) & (self.rows.numbers("udpc_ack") == 1)
        ends: Mask = answers & (self.body_bytes == 0)
        return ends

    @cached_property
    def body_crc(self) -> tuple[Integers, Mask]:
        """The CRC of each row's body, and where it is not known."""
        values, null = np.zeros(len(self.rows), np.int64), np.ones(len(self.rows), bool)
        readings = [(name, self.protocol == number) for number, name in enumerate(PROTOCOLS)]
        for name, mine in (*readings, ("piggyback", self.piggyback)):
            values = np.where(mine, self.number(f"{name}_body_crc"), values)
            null = np.where(mine, self.rows.missing(f"{name}_body_crc"), null)
        return values, null

    @cached_property
    def bare(self) -> Mask:
        """Which rows are acknowledgements of the piggyback layout without a message."""
        bare: Mask = self.piggyback & (self.body_bytes == 0)
        return bare
