"""One cell of a grid: what it consists of, how it is run, and the row that it gives.

A cell's key is a hash of what it consists of, its row a function of that alone. Nothing of the machine, the master,
the partitioning or the other cells enters, so a cell may be run anywhere and any number of times.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from typing import Any

from fairway.core.errors import BadOption
from fairway.core.random_source import MILLION
from fairway.core.tables import RUNS
from fairway.protocols import make_options, protocol
from fairway.sim.configuration import Configuration
from fairway.sim.load import Load
from fairway.sim.measures import quantile
from fairway.sim.pipe import Faults, per_million
from fairway.sim.result import Result
from fairway.sim.run import Trace, run

Option = str | int | bool
Row = dict[str, object]

FORMAT = 1
"""Part of every key: a new meaning of a parameter must not meet rows of the old one."""
FAULT_US = 600_000_000
"""Virtual time for the load; what has no outcome by then is counted as unfinished."""
DATAGRAMS_PER_S = 25_000
"""What the simulator does on one core, roughly: only the size of tasks depends on it."""
START_S = 0.004
"""What a run costs before its first datagram."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """What happens to datagrams in each direction. `loss` is the average; with `burst_length` above 1 it comes in
    bursts of that many datagrams on average, in which everything is lost."""

    loss: float = 0.0
    burst_length: float = 1.0
    delay_ms: float = 10.0
    jitter_ms: float = 0.0
    bandwidth: int = 0
    queue_bytes: int = 64 << 10
    reorder: float = 0.0
    duplicate: float = 0.0
    corrupt: float = 0.0

    def faults(self) -> Faults:
        """Return the simulator's form of it; raise `BadOption` for what cannot be."""
        loss = per_million("loss", self.loss)
        if not 1 <= self.burst_length <= 10_000:
            raise BadOption(f"burst_length is {self.burst_length:g}; it must be from 1 (no bursts) to 10000")
        bursts = self.burst_length > 1 and 0 < loss < MILLION
        most = self.burst_length / (1 + self.burst_length)
        if bursts and self.loss > most:
            raise BadOption(
                f"loss is {self.loss:g} in bursts of {self.burst_length:g}; between two a datagram gets through, "
                f"so it can be {most:.3g} at the most"
            )
        leave = round(MILLION / self.burst_length)
        return Faults(
            loss=0 if bursts else loss,
            burst_enter=min(MILLION, round(leave * loss / (MILLION - loss))) if bursts else 0,
            burst_leave=leave,
            burst_loss=MILLION,
            duplicate=per_million("duplicate", self.duplicate),
            reorder=per_million("reorder", self.reorder),
            corrupt=per_million("corrupt", self.corrupt),
            delay_us=_microseconds("delay_ms", self.delay_ms),
            jitter_us=_microseconds("jitter_ms", self.jitter_ms),
            bandwidth_bytes_per_s=self.bandwidth,
            queue_bytes=self.queue_bytes,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """What each flow sends. With several flows and a bandwidth they share one bottleneck."""

    messages: int = 100
    size: int = 64
    interval_ms: float = 0.0
    flows: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One run of the grid."""

    protocol: str
    options: Mapping[str, Option] = field(default_factory=dict)
    link: Link = field(default_factory=Link)
    load: Traffic = field(default_factory=Traffic)
    seed: int = 1

    @property
    def key(self) -> str:
        """32 hex digits that no other cell has."""
        return blake2b(f"{FORMAT} {self.text()}".encode(), digest_size=16).hexdigest()

    def text(self) -> str:
        """Return the cell as one line of JSON, the same for equal cells."""
        return json.dumps(self.plain(), sort_keys=True, separators=(",", ":"))

    def plain(self) -> dict[str, Any]:
        """Return the cell as plain values for JSON."""
        return {
            "protocol": self.protocol,
            "options": dict(self.options),
            "link": asdict(self.link),
            "load": asdict(self.load),
            "seed": self.seed,
        }

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Cell:
        """Take back what `plain` gave."""
        return cls(**{**plain, "link": Link(**plain["link"]), "load": Traffic(**plain["load"])})

    @property
    def parts(self) -> int:
        """How many datagrams a message takes."""
        if protocol(self.protocol).single_datagram:
            return 1
        options = make_options(self.protocol, **self.options)
        return max(1, -(-self.load.size // (options.datagram_bytes_max - 42)))

    @property
    def cost_s(self) -> float:
        """Estimate how long the run keeps a core busy."""
        datagrams = self.load.messages * self.load.flows * self.parts * (2 if self.parts == 1 else 1.1)
        return START_S + datagrams / (1 - min(self.link.loss, 0.9)) / DATAGRAMS_PER_S

    def configuration(self) -> Configuration:
        """Return what the simulator runs; raise `BadOption` for what cannot be."""
        load = self.load
        known = protocol(self.protocol)
        if not 1 <= load.messages <= 1_000_000:
            raise BadOption(f"messages is {load.messages}; it must be from 1 to 1000000")
        options = make_options(self.protocol, **self.options)
        smallest = 0 if known.empty_messages else 1
        largest = getattr(options, "message_bytes_max", known.message_bytes_max)
        if not smallest <= load.size <= largest:
            raise BadOption(f"size is {load.size}; {self.protocol} carries {smallest} to {largest} bytes")
        if load.interval_ms < 0:
            raise BadOption(f"interval_ms is {load.interval_ms:g}; it must not be negative")
        return Configuration(
            protocol=self.protocol,
            options=options,
            faults=self.link.faults(),
            load=Load(
                messages=load.messages,
                bytes_min=load.size,
                bytes_max=load.size,
                interval_us=_microseconds("interval_ms", load.interval_ms),
                batch=1 if load.interval_ms else 64,
            ),
            clients=load.flows,
            shared_bottleneck=load.flows > 1 and self.link.bandwidth > 0,
            fault_us=FAULT_US,
        )

    def run(self, trace: Trace | None = None) -> Result:
        return run(self.configuration(), self.seed, trace=trace)


def _microseconds(name: str, milliseconds: float) -> int:
    if not 0 <= milliseconds <= 600_000:
        raise BadOption(f"{name} is {milliseconds:g}; it must be from 0 to 600000")
    return round(milliseconds * 1_000)


def measured(cell: Cell, number: int) -> Row:
    """Run a cell and return its row of the table `runs`."""
    result = cell.run()
    measures = result.measures
    delivered_us, acknowledged_us = sorted(measures.delivered_us), sorted(measures.acknowledged_us)
    sent = cell.load.messages * cell.load.flows
    delivered = max(1, measures.delivered)
    options = cell.configuration().options
    row: Row = {
        "cell": number,
        "key": cell.key,
        "protocol": cell.protocol,
        "variant": variant(cell),
        "controller": options.controller,
        "window": options.window,
        "options": json.dumps(dict(cell.options), sort_keys=True),
        **asdict(cell.link),
        "messages": cell.load.messages,
        "size_bytes": cell.load.size,
        "interval_ms": cell.load.interval_ms,
        "flows": cell.load.flows,
        "seed": cell.seed,
        "delivered": measures.delivered,
        "acknowledged": len(acknowledged_us),
        "failed": sent - len(acknowledged_us),
        "latency_p50_us": quantile(delivered_us, 50),
        "latency_p90_us": quantile(delivered_us, 90),
        "latency_p99_us": quantile(delivered_us, 99),
        "acknowledgement_p50_us": quantile(acknowledged_us, 50),
        "acknowledgement_p99_us": quantile(acknowledged_us, 99),
        "goodput_bytes_per_s": measures.bytes_per_s,
        "load_us": result.load_us,
        "datagrams": result.datagrams,
        "datagrams_per_message": result.datagrams / delivered,
        "bytes_per_message": result.bytes / delivered,
        "retransmissions": result.total("retransmissions"),
        "duplicates": result.total("duplicates"),
        "fairness": measures.fairness,
        "passed": result.passed,
        "digest": result.digest,
    }
    return {name: row[name] for name in RUNS.names}


def variant(cell: Cell) -> str:
    """Return the protocol with the options that the grid sets for it, for legends."""
    chosen = " ".join(f"{name}={value}" for name, value in sorted(cell.options.items()))
    return f"{cell.protocol} {chosen}".strip()
