"""How many datagrams the simulator carries in a second of one core, machines, judge and digest included."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from time import process_time

from fairway.protocols import NAMES
from fairway.sim.configuration import Configuration, RunOptions, case
from fairway.sim.run import run

MESSAGES = {"rup": 20}
SIZES = {"rup": 1_000_000}
"""rup is made for large messages; small ones cost it more per datagram, as every part of the way is done anew."""
JOINED_US = 200
"""Arrivals within this time come as one super-buffer, as from a socket with GRO."""


def measure(seconds: int = 1) -> Iterator[dict[str, object]]:
    """Return two rows per protocol, arrivals one by one and joined: 64-byte messages (rup: 1 MB), 0.1 % loss.

    Time is that of the processor, so that a busy machine does not count against the simulator.
    """
    for protocol in NAMES:
        for arrivals, coalesce_us in (("single", 0), ("joined", JOINED_US)):
            yield {"protocol": protocol, "arrivals": arrivals} | _rate(_load(protocol, coalesce_us), seconds)


def _load(protocol: str, coalesce_us: int) -> Configuration:
    asked = RunOptions(
        protocol=protocol,
        messages=MESSAGES.get(protocol, 10_000),
        size=SIZES.get(protocol, 64),
        loss=0.001,
        delay_ms=5,
        controller="eager",
    )
    return replace(case(asked), coalesce_us=coalesce_us)


def _rate(configuration: Configuration, seconds: int) -> dict[str, object]:
    run(replace(configuration, load=replace(configuration.load, messages=10)), 0)
    datagrams = runs = 0
    started = process_time()
    while process_time() - started < seconds:
        datagrams += run(configuration, runs).datagrams
        runs += 1
    return {"runs": runs, "datagrams": datagrams, "datagrams_per_s": round(datagrams / (process_time() - started))}
