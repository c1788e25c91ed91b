"""What a run gives back."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from fairway.core.statistics import Statistics
from fairway.sim.checks import Violation
from fairway.sim.measures import Measures


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A finished run: what happened, and which rules were broken (none, one hopes)."""

    protocol: str
    seed: int
    digest: str
    violations: tuple[Violation, ...]
    virtual_us: int
    healed_us: int
    """When the faults were taken off: everything was done by then, or the time for it was over."""
    load_us: int
    """From the first message accepted to the last outcome under faults."""
    datagrams: int
    bytes: int
    accepted: int
    handed_over: int
    outcomes: Counter[str]
    network: Counter[str]
    hostile_datagrams: int
    nodes: tuple[Statistics, ...]
    """The statistics of each node's last process, the server's first."""
    measures: Measures

    @property
    def passed(self) -> bool:
        return not self.violations

    def total(self, name: str) -> int:
        """Sums one counter over the nodes."""
        return sum(int(getattr(statistics, name)) for statistics in self.nodes)

    def as_dict(self) -> dict[str, object]:
        """Return the result as plain values for JSON."""
        return {
            "protocol": self.protocol,
            "seed": self.seed,
            "digest": self.digest,
            "passed": self.passed,
            "violations": [str(violation) for violation in self.violations],
            "virtual_s": self.virtual_us / 1_000_000,
            "healed_s": self.healed_us / 1_000_000,
            "load_s": self.load_us / 1_000_000,
            "datagrams": self.datagrams,
            "bytes": self.bytes,
            "accepted": self.accepted,
            "handed_over": self.handed_over,
            "outcomes": dict(sorted(self.outcomes.items())),
            "network": dict(sorted(self.network.items())),
            "hostile_datagrams": self.hostile_datagrams,
            "retransmissions": self.total("retransmissions"),
            "repairs": self.total("repairs"),
            "duplicates": self.total("duplicates"),
            "nodes": [statistics.as_dict() for statistics in self.nodes],
        }
