"""One row per conversation: the table `sessions`.

It ended *closed* if a FIN was seen; *refused* if an mrp connect was rejected; *unanswered* if the callee never sent
anything; *replaced* if another udpc session began on the same flow within ten seconds of its last packet, which is
when a silent one is given up; otherwise it is *open*: the capture ends before it does, or its protocol has no end.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fairway.core.columns import Integers
from fairway.core.tables import SESSIONS
from fairway.lake.analysis.calls import ANSWERS, CALLS
from fairway.lake.analysis.owners import owner_columns, times
from fairway.lake.analysis.spoken import KIND, MRP, RUP, UDPC, Spoken
from fairway.lake.analysis.sums import Facts, added_up
from fairway.lake.arrays import MISSING, Mask, masked, mixed, named
from fairway.lake.schemas import arrow_schema

REPLACED_WITHIN_US = 10_000_000

_ENDS = ("closed", "refused", "unanswered", "replaced", "open")
_ACCEPTED, _REJECTED = 1, 2


class _Sessions:
    """The columns of sessions, each over all of them."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._packets = facts.packets
        self._spoken: Spoken = facts.packets.spoken
        self._rows = facts.packets.sessions.rows
        self._session = facts.packets.sessions.number
        self._starts = np.flatnonzero(facts.packets.sessions.first)
        self.count = len(self._starts)
        self._kind = self._spoken.kind[self._rows]
        self.protocol = self._spoken.protocol[self._rows[self._starts]]
        at = self._spoken.at_ns[self._rows] // 1_000
        self._at = at
        self.first = at[self._starts]
        self.last = at[np.append(self._starts[1:], len(at)) - 1]

    def total(self, where: Mask) -> Integers:
        """Gives how many records of each session this holds for."""
        return np.bincount(self._session[where], minlength=self.count)

    def _earliest(self, kinds: tuple[str, ...]) -> Integers:
        """Gives when the first record of these kinds was seen; -1 for never."""
        found = np.full(self.count, MISSING, dtype=np.int64)
        places = np.flatnonzero(np.isin(self._kind, [KIND[name] for name in kinds]))[::-1]
        found[self._session[places]] = self._at[places]  # the first comes last, and stays
        return found

    def handshake(self) -> pa.Array:
        """Gives the time from the first call to the first answer."""
        called, answered = self._earliest(CALLS), self._earliest(ANSWERS)
        return masked(answered - called, (called == MISSING) | (answered == MISSING), pa.int64())

    def from_start(self) -> Mask:
        """Tells whether a session's first record begins it; of several at the first instant one is enough."""
        protocol = self._spoken.protocol[self._rows]
        starting = self._spoken.number("rup_start")[self._rows] == 1
        begins = np.isin(self._kind, [KIND[name] for name in ("syn", "connect", "packet")])
        begins |= (protocol == RUP) & (self._kind == KIND["data"]) & starting
        at_ns = self._spoken.at_ns[self._rows]
        return self.total(begins & (at_ns == at_ns[self._starts][self._session])) > 0

    def ends(self) -> dict[str, pa.Array]:
        """Gives the addresses of both sides."""
        opener = self._rows[self._starts]
        out = pa.array(self._packets.sessions.from_caller[self._starts])
        found = {}
        for name, one, other in (("caller", "source", "destination"), ("callee", "destination", "source")):
            for suffix in ("", "_port"):
                ways = [self._spoken.rows.array(f"{end}{suffix}").take(pa.array(opener)) for end in (one, other)]
                plain = [way.dictionary_decode() if pa.types.is_dictionary(way.type) else way for way in ways]
                found[name + suffix] = pc.if_else(out, *plain)
        return found

    def names(self) -> pa.Array:
        """Gives the ids on the wire: sessionID, or cl_conid/sv_conid; null for rup and pydevts."""
        number = self._spoken.number
        rows, from_caller = self._rows, self._packets.sessions.from_caller
        calls, replies = self._kind == KIND["connect"], self._kind == KIND["con_reply"]
        origin, destination = self._spoken.mrp_origin[rows], self._spoken.mrp_destination[rows]
        client, server = number("mrp_client")[rows], number("mrp_server")[rows]
        udpc = number("udpc_session")[rows]
        of_session, of_call = self._greatest(udpc, self._kind != KIND["syn"]), self._greatest(udpc)
        caller = self._greatest(np.where(calls | replies, client, np.where(from_caller, origin, destination)))
        callee = self._greatest(np.where(replies, server, np.where(from_caller, destination, origin)), ~calls)
        of_udpc = pa.array(np.where(of_session == MISSING, of_call, of_session)).cast(pa.string())
        answered = masked(callee, callee == MISSING, pa.int64()).cast(pa.string()).fill_null("?")
        of_mrp = pc.binary_join_element_wise(pa.array(caller).cast(pa.string()), answered, "/")
        nothing = pa.scalar(None, pa.string())
        others = pc.if_else(pa.array(self.protocol == MRP), of_mrp, nothing)
        return pc.if_else(pa.array(self.protocol == UDPC), of_udpc, others)

    def _greatest(self, values: Integers, where: Mask | None = None) -> Integers:
        levels = values if where is None else np.where(where, values, MISSING)
        return np.maximum.reduceat(levels, self._starts)

    def end(self, packets_in: Integers) -> pa.Array:
        """Gives how each ended."""
        status = self._spoken.number("mrp_status")[self._rows]
        replies = (self._kind == KIND["con_reply"]) & (self._spoken.protocol[self._rows] == MRP)
        refused = (self.total(replies & (status == _REJECTED)) > 0) & (self.total(replies & (status == _ACCEPTED)) == 0)
        following = self._next_first()
        replaced = (self.protocol == UDPC) & (following != MISSING) & (following <= self.last + REPLACED_WITHIN_US)
        closed = self.total(self._kind == KIND["fin"]) > 0
        return named(np.select([closed, refused, packets_in == 0, replaced], range(4), 4), _ENDS)

    def _next_first(self) -> Integers:
        """Gives when the next session of the same protocol began on the same flow; -1 if none did."""
        opener = self._rows[self._starts]
        place = mixed(self._spoken.point_words[self._spoken.point[opener]], self._spoken.flow[opener], self.protocol)
        order = np.lexsort((self.first, place))
        following = np.full(self.count, MISSING, dtype=np.int64)
        same = place[order][1:] == place[order][:-1]
        following[order[:-1][same]] = self.first[order[1:][same]]
        return following


def sessions(facts: Facts, transfers: pa.Table) -> pa.Table:
    """Gives the table `sessions`; `violations` is 0 until they are counted."""
    if not len(facts.packets.sessions.rows):
        return arrow_schema(SESSIONS).empty_table()
    made = _Sessions(facts)
    number = facts.packets.sessions.number
    every = np.arange(made.count)
    trips = facts.exchanges.session[facts.trips]
    sums = added_up(facts, number, made.count, trips)
    copies = facts.packets.copies
    copyable, duplicates = made.total(copies.countable), made.total(copies.duplicate)
    repeated = made.total(copies.earlier > 0)
    session = transfers["session"].combine_chunks().indices.to_numpy() if transfers.num_rows else every[:0]
    sent = transfers["from_caller"].to_numpy() if transfers.num_rows else np.zeros(0, dtype=bool)
    columns = owner_columns(facts.packets, every) | sums | made.ends()
    columns |= {
        "flow": pa.array(facts.packets.spoken.flow[facts.packets.sessions.rows[facts.packets.sessions.first]]),
        "protocol_session": made.names(),
        "first": times(made.first),
        "last": times(made.last),
        "duration_us": pa.array(made.last - made.first),
        "from_start": pa.array(made.from_start()),
        "handshake_us": made.handshake(),
        "transfers_out": pa.array(np.bincount(session[sent], minlength=made.count)),
        "transfers_in": pa.array(np.bincount(session[~sent], minlength=made.count)),
        "duplicates": pa.array(duplicates),
        "retransmission_ratio": _ratio(repeated, copyable),
        "duplicate_ratio": _ratio(duplicates, copyable),
        "violations": pa.array(np.zeros(made.count, dtype=np.int64)),
        "end": made.end(sums["packets_in"].to_numpy()),
    }
    return pa.Table.from_arrays([columns[name] for name in SESSIONS.names], names=list(SESSIONS.names))


def with_violations(table: pa.Table, broken: Mapping[str, int]) -> pa.Table:
    """Gives sessions with the number of their violations."""
    numbers = pa.array([broken.get(session, 0) for session in table["session"].to_pylist()], type=pa.int64())
    return table.set_column(table.column_names.index("violations"), "violations", numbers)


def _ratio(some: Integers, whole: Integers) -> pa.Array:
    return masked(some / np.maximum(whole, 1), whole == 0, pa.float64())
