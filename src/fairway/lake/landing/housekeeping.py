"""What a stream does beside landing: removing segments that have landed. Tables are kept by `store/tending.py`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fairway.core.tables import MESSAGES
from fairway.lake.landing import segments, tables
from fairway.store import crashpoints, tending
from fairway.store.analyses import tables as captured_tables
from fairway.store.lakes import Lake
from fairway.store.tending import Compacted


@dataclass(frozen=True, slots=True)
class Removed:
    """How many segments went away because they have landed long ago."""

    segments: int


def remove_landed(lake: Lake, landed: Callable[[str], int], keep_s: float, now_s: float) -> Removed:
    """Remove segments that all tables hold and that are older than `keep_s`, from the oldest on.

    `landed` returns how much of a gateway all tables hold. A gateway's newest segment stays: it tells a gateway that
    lost its journal where to go on.
    """
    count = 0
    for gateway in segments.gateways(lake.landing):
        position = landed(gateway)
        found = segments.listed(lake.landing, gateway)
        segments.check_landed(lake.landing, gateway, position, found)
        for segment in found[:-1]:
            if segment.last >= position or lake.landing.file(segment.name).changed_s > now_s - keep_s:
                break
            lake.landing.remove(segment.name)
            crashpoints.reached("segment-removed")
            count += 1
    return Removed(count)


def compact(lake: Lake, report: Callable[[Compacted], None]) -> None:
    """Compact every table that streams fill, where none runs, and the tables of captures.

    An analysis that runs meanwhile ends with a sentence, and is made up for by the next.
    """
    with lake.lock(MESSAGES.name, "fairway compact"):
        landed = list(tables.landed_tables(lake))
        for table in landed:
            table.mend()
        for table in (*landed, *(one for one in captured_tables(lake.place).values() if one.exists())):
            done = tending.compact(table)
            tending.checkpoint(table)
            if done is not None:
                report(done)
