"""Swarm seeds in bulk: every run keeps every promise. A failure prints the command that replays it."""

from __future__ import annotations

from collections import Counter

import pytest

from fairway.protocols import NAMES
from fairway.sim.swarm import replay_command, run_seed

SEEDS, MORE_SEEDS = 208, 520
"""For each protocol in `make test` and in `make test-all`; `make soak` runs thousands."""
BLOCK = 26
"""Seeds in one test: small enough to spread over processes, large enough to be worth one."""


def _said(protocol: str, seed: int) -> str | None:
    """Runs a seed; tells how to replay it if it fails."""
    try:
        violations = run_seed(protocol, seed).violations
    except Exception as error:
        return f"{replay_command(protocol, seed)}\n    {type(error).__name__}: {error}"
    if not violations:
        return None
    return "\n    ".join([replay_command(protocol, seed), *map(str, violations[:3])])


@pytest.mark.parametrize(
    "first",
    [
        *range(0, SEEDS, BLOCK),
        *(pytest.param(seed, marks=pytest.mark.long) for seed in range(SEEDS, MORE_SEEDS, BLOCK)),
    ],
)
@pytest.mark.parametrize("protocol", NAMES)
def test_every_seed_keeps_every_promise(protocol: str, first: int) -> None:
    failures = [said for seed in range(first, first + BLOCK) if (said := _said(protocol, seed)) is not None]
    assert not failures, "\n" + "\n".join(failures)


@pytest.mark.parametrize("protocol", NAMES)
def test_the_swarm_reaches_the_rare_branches(protocol: str) -> None:
    """A swarm that no longer fills a receiver or joins a batch would pass everything: counters prove that it does."""
    results = [run_seed(protocol, seed) for seed in range(70)]
    counted = Counter[str]()
    for result in results:
        for name in ("batches", "duplicates", "retransmissions", "repairs"):
            counted[name] += result.total(name)
        for statistics in result.nodes:
            counted["full"] += sum(count for reason, count in statistics.dropped.items() if reason.endswith("full"))
        counted["unknown"] += result.outcomes["unknown"]
        counted.update(result.network)
    branches = ["batches", "duplicates", "retransmissions", "full", "unknown", "loss", "burst", "queue", "duplicate"]
    branches += ["reorder", "coalesced", "partition", "nobody", "nowhere"]
    branches += ["damage"] if protocol == "pydevts" else ["checksum", "repairs"]
    assert {branch: counted[branch] for branch in branches if counted[branch] < 10} == {}
