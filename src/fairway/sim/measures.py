"""What is measured in a run besides what is judged: how long messages took, and how evenly flows were served.

Only the phase under faults counts: what is sent after the heal proves that messages get through, and nothing else.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(slots=True, eq=False)
class Flow:
    """What one node got through to its receiver."""

    first_us: int
    last_us: int
    delivered: int = 0
    body_bytes: int = 0

    @property
    def bytes_per_s(self) -> float:
        """The rate from the first message accepted to the last one delivered."""
        lasted_us = self.last_us - self.first_us
        return self.body_bytes * 1_000_000 / lasted_us if lasted_us else 0.0


@dataclass(slots=True, eq=False)
class Measures:
    """Times from acceptance to delivery and to acknowledgement, in microseconds, and the flows by sender."""

    delivered_us: array[int] = field(default_factory=lambda: array("q"))
    acknowledged_us: array[int] = field(default_factory=lambda: array("q"))
    flows: dict[int, Flow] = field(default_factory=dict)
    ended: bool = False

    def accepted(self, sender: int, now_us: int) -> None:
        """Note that a sender's machine took a message."""
        if not self.ended and sender not in self.flows:
            self.flows[sender] = Flow(now_us, now_us)

    def received(self, sender: int, accepted_us: int, body_bytes: int, now_us: int) -> None:
        """Note a message's first delivery."""
        flow = self.flows.get(sender)
        if self.ended or flow is None:
            return
        flow.delivered += 1
        flow.body_bytes += body_bytes
        flow.last_us = now_us
        self.delivered_us.append(now_us - accepted_us)

    def acknowledged(self, accepted_us: int, now_us: int) -> None:
        if not self.ended:
            self.acknowledged_us.append(now_us - accepted_us)

    @property
    def delivered(self) -> int:
        return sum(flow.delivered for flow in self.flows.values())

    @property
    def bytes_per_s(self) -> float:
        """The rate of all flows together."""
        if not self.flows:
            return 0.0
        first_us = min(flow.first_us for flow in self.flows.values())
        lasted_us = max(flow.last_us for flow in self.flows.values()) - first_us
        return sum(flow.body_bytes for flow in self.flows.values()) * 1_000_000 / lasted_us if lasted_us else 0.0

    @property
    def fairness(self) -> float | None:
        """Jain's index of the flows' rates: 1 when all are equal, 1/n when one has all; None for a single flow."""
        rates = [flow.bytes_per_s for flow in self.flows.values()]
        squares = sum(rate * rate for rate in rates)
        return sum(rates) ** 2 / (len(rates) * squares) if len(rates) > 1 and squares else None


def quantile(values: Sequence[int], per_cent: int) -> int | None:
    """Return the smallest value that so many per cent do not exceed; None of nothing. The values must be sorted."""
    if not values:
        return None
    return values[max(0, -(-len(values) * per_cent // 100) - 1)]
