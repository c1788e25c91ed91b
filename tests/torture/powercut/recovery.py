"""A gateway starts on what a power cut left, and must find every promise that it had made.

- Every message acknowledged before the cut is there once, every other that was sent at most once, and nothing else.
- A segment that could be read before the cut is there with the same rows: whoever landed it lands nothing twice.
- The lake's own account is balanced.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from fairway.core import layout
from fairway.demo.fleet import key_of
from fairway.gateway.home import prepare_lake
from fairway.gateway.service import Service
from fairway.gateway.settings import build
from fairway.gateway.worker_count import settle_workers
from tests.torture.powercut.ground import Ground
from tests.torture.powercut.recording import NAME, Recording
from tests.torture.powercut.trace import Event, Synced, Wrote

SURVIVES = (0, 0, 300_000, 700_000)
"""Chances out of a million that something survives which was not synced; every other cut leaves only what was."""


DRAIN = "300s"
"""What is not sealed is not found below, and a machine with other work takes its time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """One power cut."""

    number: int
    """Of the event before which the power goes."""
    per_million: int
    seed: int

    def __str__(self) -> str:
        return f"cut before event {self.number}, {self.per_million} of a million survive, seed {self.seed}"


def draw(events: Sequence[Event], count: int, seed: int) -> list[Moment]:
    """Draw the moments of cuts: half of them anywhere, half of them where names or lengths change."""
    random = Random(seed)
    rare = [number for number in range(1, len(events)) if not isinstance(events[number - 1], Wrote | Synced)]
    moments = []
    for index in range(count):
        number = random.choice(rare) if index % 2 else random.randrange(len(events))
        per_million = random.choice(SURVIVES)
        moments.append(Moment(number=number, per_million=per_million, seed=random.getrandbits(32)))
    return moments


def cut(recording: Recording, moment: Moment, folder: Path) -> list[str]:
    """Rebuild the lake as the cut leaves it, start a gateway on it, and return what is wrong then."""
    cut_us = recording.events[moment.number].begin_us
    ground = Ground(recording.lake)
    ground.follow(recording.events, cut_us)
    ground.build(folder, Random(moment.seed), moment.per_million)
    lake = folder / recording.lake.name
    try:
        asyncio.run(_recover(lake, recording.urls))
    except Exception as error:
        return [f"the gateway does not start: {type(error).__name__}: {error}"]
    seen = ground.segments(recording.lake / layout.LANDING / NAME)
    return [*_judge(recording, lake, cut_us), *_compare(recording, lake, seen), *_reconcile(lake)]


async def _recover(lake: Path, urls: tuple[str, ...]) -> None:
    """Start a gateway where the recorded one was, and have it seal everything and end."""
    prepare_lake(lake)
    settle_workers(lake, NAME, 1)
    service = Service(build({"urls": list(urls), "lake": str(lake), "name": NAME, "drain": DRAIN}), NAME)
    stop = asyncio.Event()
    await service.open()
    stop.set()
    await service.run(stop)


def _segments(lake: Path) -> dict[str, Any]:
    import pyarrow.parquet as pq

    folder = lake / layout.LANDING / NAME
    return {path.name: pq.read_table(path) for path in sorted(folder.iterdir()) if layout.segment_range(path.name)}


def _judge(recording: Recording, lake: Path, cut_us: int) -> list[str]:
    found: Counter[bytes] = Counter()
    for segment in _segments(lake).values():
        found.update(map(key_of, segment.column("body").to_pylist()))
    ledger = recording.ledger
    promised = [key for key, at_s in ledger.acknowledged_s.items() if at_s * 1e6 < cut_us]
    missing = sum(key not in found for key in promised)
    double = sum(count - 1 for count in found.values())
    foreign = sum(key not in ledger.outcomes for key in found)
    if missing or double or foreign:
        return [f"{missing} of {len(promised)} acknowledged are missing, {double} double, {foreign} foreign"]
    return []


def _compare(recording: Recording, lake: Path, seen: set[str]) -> list[str]:
    before, after = _segments(recording.lake), _segments(lake)
    lost = sorted(name for name in seen if name not in after or not after[name].equals(before[name]))
    return [f"the segment {name} could be read before, and is missing or another now" for name in lost]


def _reconcile(lake: Path) -> list[str]:
    from fairway.lake.landing.reconcile import reconcile
    from fairway.store.lakes import Lake

    return [f"reconcile: {account}" for account in reconcile(Lake(lake, create=False)) if not account.balanced]
