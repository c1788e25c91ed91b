"""One row per message: the table `transfers`.

A message is *acknowledged* when its acknowledgement passed the point (rup: the confirm of its total; a request: its
response); *repaired* if the receiver had said before that its CRC was wrong; *refused* if it was not acknowledged
and its receiver closed the session after it was sent; *unreliable* if nobody acknowledges such messages (plain
packets, and responses, which are repeated for every copy of their request). What is left is *unacknowledged*.

A message of which the point saw only acknowledgements has a row too, except in pydevts, where an acknowledgement of
nothing is how a peer asks for a sign of life.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fairway.core.columns import Integers
from fairway.core.tables import TRANSFERS
from fairway.lake.analysis.exchanges import KINDS, NEVER, Exchanges
from fairway.lake.analysis.owners import owner_columns, times
from fairway.lake.analysis.packets import Packets
from fairway.lake.analysis.spoken import KIND, PYDEVTS, RUP
from fairway.lake.arrays import MISSING, Codes, Mask, begins, masked, named
from fairway.lake.schemas import arrow_schema

_OUTCOMES = ("unreliable", "repaired", "acknowledged", "refused", "unacknowledged")
_UNRELIABLE = [KINDS.index(name) for name in ("plain", "response")]


def transfers(packets: Packets, exchanges: Exchanges) -> pa.Table:
    """Gives the table `transfers`."""
    told = exchanges.any_kind != KINDS.index("heartbeat")
    own = Exchanges(*(column[told] for column in exchanges))
    starts = np.flatnonzero(begins(own.letter)) if len(own.letter) else np.zeros(0, dtype=np.int64)
    if not len(starts):
        return arrow_schema(TRANSFERS).empty_table()

    def least(values: Integers) -> Integers:
        return np.minimum.reduceat(values, starts)

    def greatest(values: Integers | Codes) -> Integers:
        return np.maximum.reduceat(values, starts)

    sent_kind, any_kind = greatest(own.sent_kind), greatest(own.any_kind)
    kind = np.where(sent_kind == MISSING, any_kind, sent_kind)
    place, session = own.place[starts], own.session[starts]
    rows = packets.sessions.rows[place]
    protocol = packets.spoken.protocol[rows]
    of_rup = protocol == RUP
    total, body = greatest(own.total_bytes), greatest(own.body_bytes)
    first_sent, acknowledged, failed = least(own.first_sent), least(own.acknowledged), least(own.failed)
    # Of rup only the confirm of the total counts. Each part is an exchange of its own, so that one alone ends there.
    whole = np.where(own.part == np.repeat(total, np.diff(starts, append=len(own.part))), own.acknowledged, NEVER)
    beyond = greatest(np.where(own.acknowledged == NEVER, MISSING, own.part)) == total
    acknowledged = np.where(of_rup, np.where(beyond, least(whole), NEVER), acknowledged)
    columns = owner_columns(packets, session) | {
        "from_caller": pa.array(own.from_caller[starts]),
        "message": _texts(packets, rows, own.number[starts], of_rup),
        "kind": named(kind, KINDS),
        "size_bytes": _maybe(np.where(of_rup, total, body)),
        "parts": pa.array(np.where(of_rup & (body > 0), np.maximum(1, -(-total // np.maximum(body, 1))), 1)),
        "first_sent": times(first_sent, first_sent == NEVER),
        "last_sent": times(greatest(own.last_sent), first_sent == NEVER),
        "attempts": pa.array(np.maximum(greatest(own.attempts), 0)),
        "copies": pa.array(np.add.reduceat(own.copies, starts)),
        "acknowledged": times(acknowledged, acknowledged == NEVER),
    }
    unknown = (acknowledged == NEVER) | (first_sent == NEVER)
    columns["latency_us"] = masked(np.where(unknown, 0, acknowledged - first_sent), unknown, pa.int64())
    closed = _closings(packets)[session * 2 + own.from_caller[starts]]
    outcome = np.select(
        [
            np.isin(kind, _UNRELIABLE),
            (failed < acknowledged) & (acknowledged != NEVER),
            acknowledged != NEVER,
            (first_sent != NEVER) & (closed >= first_sent),
        ],
        range(4),
        4,
    )
    columns["outcome"] = named(outcome, _OUTCOMES)
    table = pa.Table.from_arrays([columns[name] for name in TRANSFERS.names], names=list(TRANSFERS.names))
    seen = (sent_kind != MISSING) | (protocol != PYDEVTS)
    return table if seen.all() else table.filter(pa.array(seen))


def _maybe(values: Integers) -> pa.Array:
    return masked(np.maximum(values, 0), values < 0, pa.int64())


def _texts(packets: Packets, rows: Integers, numbers: Integers, of_rup: Mask) -> pa.Array:
    """Gives the names of messages: of rup their id, of the others their number."""
    texts = masked(numbers, of_rup, pa.int64()).cast(pa.string())
    if not of_rup.any():
        return texts
    return pc.coalesce(texts, packets.spoken.rows.array("rup_id").take(pa.array(rows)))


def _closings(packets: Packets) -> Integers:
    """Gives when the receiving side of each session's directions closed it; -1 if it did not."""
    sessions = packets.sessions
    closed = np.full(2 * len(sessions.keys), MISSING, dtype=np.int64)
    fins = np.flatnonzero(packets.spoken.kind[sessions.rows] == KIND["fin"])
    side = sessions.number[fins] * 2 + ~sessions.from_caller[fins]
    np.maximum.at(closed, side, packets.spoken.at_ns[sessions.rows[fins]] // 1_000)
    return closed
