"""A run is a function of its configuration and its seed, and the swarm draws all that can happen."""

from __future__ import annotations

import subprocess
import sys
from functools import partial

import pytest

from fairway.core.machine import CONTROLLERS, Transmit
from fairway.protocols import NAMES
from fairway.sim.configuration import Crash, Partition, Rebind
from fairway.sim.run import run
from fairway.sim.swarm import draw, run_seed
from tests.sim.test_mutations import Between


@pytest.mark.parametrize("protocol", NAMES)
def test_the_digest_is_the_same_under_every_hash_seed(protocol: str) -> None:
    code = f"from fairway.sim.swarm import run_seed; print(*(run_seed({protocol!r}, s).digest for s in range(40, 45)))"
    printed = []
    for hash_seed in ("1", "4242"):
        environment = {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": ":".join(sys.path)}
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
        printed.append(done.stdout)
    assert printed[0] == printed[1]
    assert len(set(printed[0].split())) == 5


class OtherByte(Between):
    left = 5

    def transmits(self) -> list[Transmit]:
        changed = super().transmits()
        self.left -= bool(changed)
        if self.left == 0 and changed:
            *others, last = changed[0].data
            changed[0] = changed[0]._replace(data=bytes([*others, last ^ 1]))
        return changed


def test_the_digest_sees_a_single_changed_byte() -> None:
    configuration = draw("udpc", 3)
    other = partial(OtherByte, "udpc", configuration.options)
    assert run(configuration, 3, make_machine=other).digest != run_seed("udpc", 3).digest  # type: ignore[arg-type]


@pytest.mark.parametrize("protocol", NAMES)
def test_a_swarm_draws_every_kind_of_trouble(protocol: str) -> None:
    drawn = [draw(protocol, seed) for seed in range(300)]
    assert drawn[0] == draw(protocol, 0)
    assert {configuration.options.controller for configuration in drawn} == set(CONTROLLERS)
    for happens in (
        lambda c: c.faults.loss,
        lambda c: c.faults.burst_enter,
        lambda c: c.faults.bandwidth_bytes_per_s,
        lambda c: c.coalesce_us,
        lambda c: c.hostile_actions,
        lambda c: c.tight,
        lambda c: c.mild,
        lambda c: c.options.deferred,
        lambda c: c.load.two_way,
        lambda c: any(isinstance(step, Crash) and step.with_snapshot for step in c.plan),
        lambda c: any(isinstance(step, Crash) and not step.with_snapshot for step in c.plan),
        lambda c: any(isinstance(step, Partition) for step in c.plan),
        lambda c: any(isinstance(step, Rebind) for step in c.plan),
    ):
        assert 5 < sum(bool(happens(configuration)) for configuration in drawn) < 290
