"""Swarm seeds in bulk: every run keeps every promise. A failure prints the command that replays it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pytest

from fairway.protocols import NAMES
from fairway.sim.result import Result
from fairway.sim.swarm import replay_command, run_seed

FIRST_SEEDS, SEEDS, MORE_SEEDS = 70, 174, 520
"""For each protocol: those whose branches are counted, all of `make test`, and all of `make test-all`; `make soak` runs
thousands."""
BLOCK = 26
"""Seeds in one test: small enough to spread over processes, large enough to be worth one."""


def kept(protocol: str, seeds: Iterable[int]) -> list[Result]:
    """Run seeds, all of which must keep every promise; fail with the commands that replay those that do not."""
    results, failures = [], []
    for seed in seeds:
        said: tuple[object, ...]
        try:
            results.append(run_seed(protocol, seed))
            said = results[-1].violations[:3]
        except Exception as error:
            said = (f"{type(error).__name__}: {error}",)
        if said:
            failures.append("\n    ".join([replay_command(protocol, seed), *map(str, said)]))
    assert not failures, "\n" + "\n".join(failures)
    return results


@pytest.mark.parametrize(
    "first",
    [
        *range(FIRST_SEEDS, SEEDS, BLOCK),
        *(pytest.param(seed, marks=pytest.mark.long) for seed in range(SEEDS, MORE_SEEDS, BLOCK)),
    ],
)
@pytest.mark.parametrize("protocol", NAMES)
def test_every_seed_keeps_every_promise(protocol: str, first: int) -> None:
    assert len(kept(protocol, range(first, first + BLOCK))) == BLOCK


@pytest.mark.parametrize("protocol", NAMES)
def test_every_seed_keeps_every_promise_and_the_swarm_reaches_the_rare_branches(protocol: str) -> None:
    """A swarm that no longer fills a receiver or joins a batch would pass everything: counters prove that it does."""
    counted = Counter[str]()
    for result in kept(protocol, range(FIRST_SEEDS)):
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
