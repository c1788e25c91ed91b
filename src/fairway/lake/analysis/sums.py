"""What sessions and seconds add up: packets and bytes each way, copies, losses and round trips."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from fairway.core.columns import Integers
from fairway.lake.analysis.exchanges import Exchanges, carries
from fairway.lake.analysis.losses import estimate, losses
from fairway.lake.analysis.packets import Packets
from fairway.lake.arrays import MISSING, masked

WAYS = ("out", "in")
"""From the caller, and to it."""
QUANTILES = {"rtt_p50_us": 0.5, "rtt_p90_us": 0.9, "rtt_p99_us": 0.99}


@dataclass(frozen=True)
class Facts:
    """What is added up for sessions and for seconds."""

    packets: Packets
    exchanges: Exchanges

    @cached_property
    def counted(self) -> dict[str, Integers]:
        """What each record of the sessions adds."""
        spoken, rows, copies = self.packets.spoken, self.packets.sessions.rows, self.packets.copies
        holds = carries(self.packets)
        once = copies.countable & (copies.earlier == 0)
        of_losses = losses(self.packets, holds)._asdict()
        return {
            "packets": np.ones(len(rows), dtype=np.int64),
            "bytes": spoken.number("payload_bytes")[rows],
            "retransmissions": (copies.earlier > 0).astype(np.int64),
            "goodput": np.where(holds & once, spoken.body_bytes[rows], 0),
            **{name: column.astype(np.int64) for name, column in of_losses.items()},
        }

    @cached_property
    def trips(self) -> Integers:
        """The places of exchanges with a round trip."""
        return np.flatnonzero(self.exchanges.rtt_us != MISSING)


def added_up(facts: Facts, group: Integers, groups: int, trip_group: Integers) -> dict[str, pa.Array]:
    """Gives the sums that sessions and seconds have in common: of the group of each record, and of each round trip."""
    columns: dict[str, pa.Array] = {}
    directed = group * len(WAYS) + ~facts.packets.sessions.from_caller
    sums = {name: _summed(directed, values, groups) for name, values in facts.counted.items()}
    for number, way in enumerate(WAYS):
        mine = {name: both[number] for name, both in sums.items()}
        for name in ("packets", "bytes", "retransmissions", "goodput"):
            columns[f"{name}_{way}"] = pa.array(mine[name])
        share, unknown = estimate(mine)
        columns[f"loss_{way}"] = masked(share, unknown, pa.float64())
    return columns | _round_trips(facts, trip_group, groups)


def _summed(directed: Integers, values: Integers, groups: int) -> Integers:
    """Gives the sums of each group, a row for each way; exact up to 2^53."""
    sums = np.bincount(directed, weights=values, minlength=groups * len(WAYS)).astype(np.int64)
    return np.ascontiguousarray(sums.reshape(groups, len(WAYS)).T)


def _round_trips(facts: Facts, group: Integers, groups: int) -> dict[str, pa.Array]:
    """Gives the columns of round trips, of the direction in which they take longer.

    A point at one end sees the whole way of what that end sends, and of what it receives only how fast it answers.
    """
    rtt_us, from_caller = facts.exchanges.rtt_us[facts.trips], facts.exchanges.from_caller[facts.trips]
    ways = [_quantiles(rtt_us[mine], group[mine], groups) for mine in (from_caller, ~from_caller)]
    longer = ways[0]["rtt_p50_us"] >= ways[1]["rtt_p50_us"]
    chosen = {name: np.where(longer, ways[0][name], ways[1][name]) for name in ways[0]}
    samples = chosen.pop("rtt_samples")
    columns = {name: masked(values, values == MISSING, pa.int64()) for name, values in chosen.items()}
    return columns | {"rtt_samples": pa.array(samples)}


def _quantiles(rtt_us: Integers, group: Integers, groups: int) -> dict[str, Integers]:
    """Gives the least and the quantiles of each group, each of them a value that occurs; -1 for a group without any."""
    order = np.lexsort((rtt_us, group))
    values = rtt_us[order]
    samples = np.bincount(group, minlength=groups)
    starts = np.cumsum(samples) - samples
    some = samples > 0
    found = {"rtt_samples": samples, "rtt_min_us": np.full(groups, MISSING, dtype=np.int64)}
    found["rtt_min_us"][some] = values[starts[some]]
    for name, share in QUANTILES.items():
        place = starts + np.maximum(np.ceil(share * samples).astype(np.int64), 1) - 1
        found[name] = np.full(groups, MISSING, dtype=np.int64)
        found[name][some] = values[place[some]]
    return found
