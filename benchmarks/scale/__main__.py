"""Runs everything at full size and prints what was found: `make scale` and `make soak-net`.

python -m benchmarks.scale exact crowd flood
python -m benchmarks.scale soak --minutes 10
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict

from benchmarks.namespaces import NotPermitted, namespaces
from benchmarks.scale.comings import soak
from benchmarks.scale.exact import PERCENT, bad_relay, carry
from benchmarks.scale.gatherings import crowd, flood
from benchmarks.transport.environments import Environment, lossy_environments

LIMIT_S = 1_800.0
GROWTH_BYTES_MAX = 4 << 20
"""Over minutes: less than a leak of one small object per conversation would give."""

Finding = dict[str, object]


def exact(size: int, count: int) -> Iterator[Finding]:
    """Carry bytes and messages over a bad relay, and over a bad wire where that is permitted."""
    yield from _exact(bad_relay(), size, count)
    try:
        with namespaces() as both:
            yield from _exact(lossy_environments([PERCENT], both)[-1], size, count)
    except NotPermitted as reason:
        yield {"left out": f"network namespaces: {reason}"}


def _exact(environment: Environment, size: int, count: int) -> Iterator[Finding]:
    yield carry("rup", size, environment, seed=1, limit_s=LIMIT_S)
    for peer in ("udpc", "mrp"):
        yield carry(peer, count, environment, seed=1, limit_s=LIMIT_S)
        # One that shares the link is slower on it by design: a tenth must do.
        yield carry(f"{peer}-newreno", count // 10, environment, seed=1, limit_s=LIMIT_S)


def soaking(minutes: float) -> Iterator[Finding]:
    """Soak, and fail when memory grew, a task was left, or asyncio complained."""
    soaked = soak(minutes * 60)
    finding = {name: value for name, value in asdict(soaked).items() if name != "resident"}
    yield finding | {"growth_bytes": soaked.growth_bytes, "resident_mb": soaked.resident[-1] / 1e6}
    soaked.judge(GROWTH_BYTES_MAX)


def main(arguments: list[str]) -> int:
    """Run what is named; return 1 when something does not hold."""
    parser = argparse.ArgumentParser(prog="benchmarks.scale")
    parser.add_argument("what", nargs="+", choices=("exact", "crowd", "flood", "soak"))
    parser.add_argument("--bytes", type=int, default=1_000_000_000)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--sessions", type=int, default=10_000)
    parser.add_argument("--calls", type=int, default=200_000)
    parser.add_argument("--minutes", type=float, default=10.0)
    chosen = parser.parse_args(arguments)
    parts: dict[str, Callable[[], Iterator[Finding]]] = {
        "exact": lambda: exact(chosen.bytes, chosen.messages),
        "crowd": lambda: (crowd(one, chosen.sessions, limit_s=LIMIT_S) for one in ("udpc", "mrp")),
        "flood": lambda: (flood(one, chosen.calls, limit_s=LIMIT_S) for one in ("udpc", "mrp")),
        "soak": lambda: soaking(chosen.minutes),
    }
    for what in chosen.what:
        try:
            for finding in parts[what]():
                print(time.strftime("%H:%M:%S"), what, json.dumps(finding), flush=True)
        except Exception as error:
            print(f"FAILED {what}: {type(error).__name__}: {error}", flush=True)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
