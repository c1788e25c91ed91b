"""What flows reach on a bottleneck in the simulator: their shares of it, and how long the queue in front of it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from benchmarks.bottleneck import Bottleneck, Constant, Load, Path
from fairway.sim.measures import quantile

GOALS = {0: 0.90, 2: 0.85, 5: 0.80, 10: 0.65}
"""The share to reach where up to so many per cent are lost each way."""
QUEUE_MAX = 0.5
SHARE_MIN, UNEQUAL_MAX = 0.1, 1.25
"""The least share beside NewReno, and how much more than the half one of two equals may have."""
ROUND_TRIPS = 100
SECOND = 1_000_000
RUN_US_MIN = 10 * SECOND
"""A run of one flow is so many round trips long, or so many seconds; the second half of it is measured."""
JOINS_US, CALM_US = 10 * SECOND, 5 * SECOND
"""When constant traffic of nine tenths joins, and how long it may take until the queue is short again."""
TRICKLE_US = 10_000


def _model(protocol: str, **more: int) -> Load:
    return Load(protocol=protocol, options={"controller": "model"}, **more)


def _one(protocol: str, path: Path) -> tuple[str, bool]:
    to_us = max(RUN_US_MIN, ROUND_TRIPS * path.round_trip_ms * 1_000)
    seen = Bottleneck(path, [_model(protocol)], seed=1).run(to_us // 2, to_us)
    goal = next((share for percent, share in GOALS.items() if 100 * path.loss <= percent), 0)
    text = f"{seen.shares[0]:.2f} / {seen.queue_mean:.2f}"
    return text, seen.shares[0] >= goal and seen.queue_mean <= QUEUE_MAX


def _two(protocol: str, path: Path) -> tuple[str, bool]:
    loads = [_model(protocol), _model(protocol, begin_us=2 * SECOND)]
    seen = Bottleneck(path, loads, seed=1).run(30 * SECOND, 50 * SECOND)
    more = max(seen.shares) <= UNEQUAL_MAX * sum(seen.shares) / 2
    text = f"{seen.shares[0]:.2f}, {seen.shares[1]:.2f} / {seen.queue_mean:.2f}"
    return text, more and seen.queue_mean <= QUEUE_MAX


def _newreno(protocol: str, path: Path) -> tuple[str, bool]:
    loads = [_model(protocol), Load(protocol=protocol, options={"controller": "newreno"})]
    seen = Bottleneck(path, loads, seed=1).run(10 * SECOND, 30 * SECOND)
    text = f"{seen.shares[0]:.2f}, {seen.shares[1]:.2f} / {seen.queue_mean:.2f}"
    return text, min(seen.shares) >= SHARE_MIN


def _joined(protocol: str, path: Path) -> tuple[str, bool]:
    world = Bottleneck(path, [_model(protocol)], seed=1, constant=Constant(share=0.9, begin_us=JOINS_US))
    calm_us = JOINS_US + CALM_US
    seen = world.run(calm_us, calm_us + CALM_US)
    return f"{seen.shares[0]:.2f} / {seen.queue_mean:.2f}", seen.queue_mean <= QUEUE_MAX


def _trickle(protocol: str, path: Path) -> tuple[str, bool]:
    world = Bottleneck(path, [_model(protocol, interval_us=TRICKLE_US)], seed=1)
    world.run(0, 30 * SECOND)
    (flow,) = world.flows
    p50, p99 = (
        (quantile(sorted(flow.latencies_us), percent) or 0) / path.round_trip_ms / 1_000 for percent in (50, 99)
    )
    return f"{p50:.1f} / {p99:.1f}", p50 <= 3 and (p99 <= 4 or path.loss > 0.05) and not flow.failed


CASES: dict[str, tuple[str, Callable[[str, Path], tuple[str, bool]]]] = {
    "one": ("one flow: its share of the bottleneck / mean queue of a full one", _one),
    "two": ("two flows, shares from 30 s on / mean queue", _two),
    "newreno": ("its share and that of a NewReno flow beside it / mean queue", _newreno),
    "joins": ("5 to 10 s after constant traffic of 90 % joined: share / mean queue", _joined),
    "trickle": ("100 messages of 200 bytes a second: p50 / p99 to the acknowledgement, in round trips", _trickle),
}


def measure(
    case: str, protocols: Sequence[str], rates_mbit: Sequence[int], round_trips_ms: Sequence[int],
    losses: Sequence[str], queue_share: float = 1.0, jitter_ms: int = 0,
) -> Iterator[dict[str, object]]:  # fmt: skip
    """Return a row for each point, with what each protocol reached there; `!` misses a goal."""
    for rate in rates_mbit:
        for round_trip in round_trips_ms:
            for loss in losses:
                path = Path(
                    rate_mbit=rate,
                    round_trip_ms=round_trip,
                    loss=float(loss.rstrip("b")) / 100,
                    bursts=loss.endswith("b"),
                    queue_share=queue_share,
                    jitter_ms=jitter_ms,
                )
                row: dict[str, object] = {"Mbit/s": rate, "round trip ms": round_trip, "loss %": loss}
                for protocol in protocols:
                    text, good = CASES[case][1](protocol, path)
                    row[protocol] = text if good else f"{text} !"
                yield row
