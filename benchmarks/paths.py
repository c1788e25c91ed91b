"""What share of a bottleneck one long flow reaches in the simulator, and how long the queue in front of it is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fairway.sim.bottleneck import Bottleneck, Load, Path

GOALS = {"0": 0.90, "1": 0.85, "2": 0.85, "5": 0.80, "10": 0.65, "5b": 0.80}
"""The share to reach by the per cent lost each way; `b` for as many in bursts."""
ROUND_TRIPS = 100
SECONDS_MIN = 10
"""A run is so many round trips long, or so many seconds; the second half of it is measured."""


def measure(
    protocols: Sequence[str], rates_mbit: Sequence[int], round_trips_ms: Sequence[int], losses: Sequence[str]
) -> Iterator[dict[str, object]]:
    """Return a row for each point and protocol: the share reached, the mean length of the queue, and the verdict."""
    for rate in rates_mbit:
        for round_trip in round_trips_ms:
            for loss in losses:
                path = Path(
                    rate_mbit=rate,
                    round_trip_ms=round_trip,
                    loss=float(loss.rstrip("b")) / 100,
                    bursts=loss.endswith("b"),
                )
                row: dict[str, object] = {"Mbit/s": rate, "round trip ms": round_trip, "loss %": loss}
                yield row | dict(cell for protocol in protocols for cell in _cells(protocol, path, GOALS.get(loss, 0)))


def _cells(protocol: str, path: Path, goal: float) -> list[tuple[str, object]]:
    world = Bottleneck(path, [Load(protocol=protocol, options={"controller": "model"})], seed=1)
    to_us = max(SECONDS_MIN * 1_000_000, ROUND_TRIPS * path.round_trip_ms * 1_000)
    seen = world.run(to_us // 2, to_us)
    good = seen.shares[0] >= goal and seen.queue_mean <= 0.5
    return [(protocol, f"{seen.shares[0]:.2f} / {seen.queue_mean:.2f}{'' if good else ' !'}")]
