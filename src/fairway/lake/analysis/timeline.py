"""One row per second of a session: the table `timeline`. Empty seconds have none."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from fairway.core.tables import TIMELINE
from fairway.lake.analysis.owners import owner_columns, times
from fairway.lake.analysis.sums import Facts, added_up
from fairway.lake.arrays import begins

_SECOND_US = 1_000_000


def timeline(facts: Facts) -> pa.Table:
    """Gives the table `timeline`."""
    sessions = facts.packets.sessions
    second = facts.packets.spoken.at_ns[sessions.rows] // (1_000 * _SECOND_US)
    # In the order of time, so that the seconds of a session lie together.
    first = sessions.first | begins(second)
    starts = np.flatnonzero(first)
    ended = facts.exchanges.acknowledged[facts.trips] // _SECOND_US
    # What ends a round trip is a packet of that second.
    base = int(second.min(initial=0))
    span = int(second.max(initial=0)) - base + 1
    key = sessions.number[starts] * span + second[starts] - base
    trip = np.searchsorted(key, facts.exchanges.session[facts.trips] * span + ended - base)
    columns = owner_columns(facts.packets, sessions.number[starts]) | {"second": times(second[starts] * _SECOND_US)}
    columns |= added_up(facts, np.cumsum(first) - 1, len(starts), trip)
    return pa.Table.from_arrays([columns[name] for name in TIMELINE.names], names=list(TIMELINE.names))
