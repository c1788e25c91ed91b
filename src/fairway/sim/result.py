"""What a run gives back, as values and in words for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
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
    delivered: int
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
            "delivered": self.delivered,
            "outcomes": dict(sorted(self.outcomes.items())),
            "network": dict(sorted(self.network.items())),
            "hostile_datagrams": self.hostile_datagrams,
            "retransmissions": self.total("retransmissions"),
            "repairs": self.total("repairs"),
            "duplicates": self.total("duplicates"),
            "nodes": [statistics.as_dict() for statistics in self.nodes],
        }


def summary(result: Result) -> str:
    """Return a run as a few lines of text."""
    lines = [
        f"{result.protocol}, seed {result.seed}: {'passed' if result.passed else 'BROKEN'}",
        _line(
            "time", f"{result.healed_us / 1e6:.3f} s until the faults were over, {result.virtual_us / 1e6:.3f} s in all"
        ),
        _line(
            "messages",
            f"{result.accepted:,} accepted, one a client after the faults; {result.delivered:,} delivered",
        ),
        _line("outcomes", _counts(result.outcomes)),
        _line("datagrams", f"{result.datagrams:,} sent ({result.bytes:,} bytes)"),
        _line("network", _counts(result.network)),
        _line(
            "sent again",
            f"{result.total('retransmissions'):,}, of which {result.total('repairs'):,} ahead of a timer",
        ),
        _line("duplicates", f"{result.total('duplicates'):,} recognised"),
        _line("refused", _counts(_dropped(result))),
    ]
    if result.hostile_datagrams:
        lines.append(_line("hostile", f"{result.hostile_datagrams:,} datagrams"))
    lines.append(_line("digest", result.digest))
    lines.extend(_line("broken", str(violation)) for violation in result.violations)
    return "\n".join(lines)


def _line(name: str, text: str) -> str:
    return f"  {name:<10} {text}"


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in sorted(counts.items())) or "none"


def _dropped(result: Result) -> dict[str, int]:
    reasons: dict[str, int] = {}
    for statistics in result.nodes:
        for reason, count in statistics.dropped.items():
            reasons[reason] = reasons.get(reason, 0) + count
    return reasons
