"""What the rows of all tables of sessions have in common: whose they are, and how times are written."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from fairway.core.columns import Integers
from fairway.lake.analysis.packets import Packets
from fairway.lake.arrays import Mask, named
from fairway.lake.captures.recognition import SPOKEN

_TIME = pa.timestamp("us", tz="UTC")


def owner_columns(packets: Packets, session: Integers) -> dict[str, pa.Array]:
    """Gives the columns that say which session rows belong to."""
    opener = packets.sessions.rows[np.flatnonzero(packets.sessions.first)][session]
    return {
        "session": pa.DictionaryArray.from_arrays(pa.array(session.astype(np.int32)), packets.sessions.keys),
        "protocol": named(packets.spoken.protocol[opener], SPOKEN),
        "point": packets.spoken.rows.folded("point").take(pa.array(opener)),
    }


def times(micros: Integers, null: Mask | None = None) -> pa.Array:
    """Gives microseconds since 1970 as times."""
    return pa.array(micros, mask=null if null is not None and null.any() else None).view(_TIME)
