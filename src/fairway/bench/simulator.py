"""How many datagrams the simulator carries in a second of one core, machines included."""

from __future__ import annotations

from collections.abc import Iterator
from time import process_time

from fairway.protocols import NAMES
from fairway.sim.cases import Wishes, case
from fairway.sim.run import run

MESSAGES = {"udpc": 5_000, "mrp": 5_000, "rup": 500, "pydevts": 5_000}
SIZES = {"rup": 20_000}


def measure(seconds: int = 1) -> Iterator[dict[str, object]]:
    """Gives one row per protocol: a windowed load over a link with a little loss, run again until the time is over."""
    for protocol in NAMES:
        yield _row(protocol, seconds)


def _row(protocol: str, seconds: int) -> dict[str, object]:
    wishes = Wishes(protocol=protocol, messages=MESSAGES[protocol], size=SIZES.get(protocol, 64), loss=0.01, delay_ms=5)
    configuration = case(wishes)
    run(case(Wishes(protocol=protocol, messages=10)), 0)
    datagrams = runs = 0
    started = process_time()
    while process_time() - started < seconds:
        result = run(configuration, runs)
        datagrams += result.datagrams
        runs += 1
    elapsed = process_time() - started
    return {
        "protocol": protocol,
        "runs": runs,
        "datagrams": datagrams,
        "datagrams_per_s": round(datagrams / elapsed),
        "virtual_s": round(result.virtual_us / 1_000_000, 3),
    }
