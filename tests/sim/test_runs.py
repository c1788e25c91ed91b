"""A run is a function of its configuration and its seed, and the toy machine keeps every promise in it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from io import BytesIO

import pytest

from fairway.core.events import (
    Address,
    Closed,
    CloseReason,
    Delivered,
    DeliveryUnknown,
    Event,
    MessageReceived,
    Peer,
    Receipt,
)
from fairway.core.machine import CONTROLLERS, Options, Transmit
from fairway.core.random_source import RandomSource
from fairway.protocols import NAMES
from fairway.sim.configuration import Configuration, Crash, Partition, Rebind
from fairway.sim.load import Load
from fairway.sim.pipe import Faults
from fairway.sim.result import Result
from fairway.sim.run import run
from fairway.sim.swarm import draw, replay_command, run_seed
from fairway.sim.trace import tracer
from tests.sim.toy import ToyMachine

ROUGH = Faults(loss=100_000, duplicate=100_000, reorder=200_000, delay_us=3_000)
PLAN = (
    Crash(at_us=300_000, node=0, down_us=100_000, with_snapshot=True),
    Partition(at_us=900_000, between=(0, 1), for_us=800_000),
    Crash(at_us=2_000_000, node=1, down_us=50_000, with_snapshot=False),
)
Maker = Callable[[Options, RandomSource], ToyMachine]


def toy(deferred: bool = False, **changes: object) -> Configuration:
    """Return a rough run of the toy machine; without plan or hostile peer unless the changes bring them."""
    plain = Configuration(
        protocol="toy",
        options=Options(deferred=deferred, send_queue_messages_max=20),
        faults=ROUGH,
        load=Load(messages=60, commit_us=2_000, disk_us=1_000 if deferred else 0),
        clients=2,
        fault_us=120_000_000,
    )
    return replace(plain, **changes)  # type: ignore[arg-type]


def run_toy(configuration: Configuration, seed: int = 1, kind: Maker = ToyMachine) -> Result:
    return run(configuration, seed, make_machine=lambda chance: kind(configuration.options, chance))


def rules(result: Result) -> list[str]:
    return list(dict.fromkeys(violation.rule for violation in result.violations))


@pytest.mark.parametrize("deferred", [False, True])
@pytest.mark.parametrize("coalesce_us", [0, 1_000])
def test_the_toy_keeps_its_promises_under_everything(deferred: bool, coalesce_us: int) -> None:
    for seed in range(5):
        result = run_toy(toy(deferred, plan=PLAN, hostile_actions=150, coalesce_us=coalesce_us), seed)
        assert result.violations == ()
        assert result.network["partition"] > 0
        assert result.total("duplicates") > 0
        assert result.hostile_datagrams > 100


def test_an_address_change_may_repeat_a_message_of_a_protocol_that_knows_peers_by_address() -> None:
    plan = (Rebind(at_us=220_000, node=1),)
    result = run_toy(toy(plan=plan, faults=Faults(delay_us=50_000)))
    assert result.violations == ()
    assert result.network["nobody"] > 0


def test_equal_seeds_give_equal_runs_and_others_do_not() -> None:
    digests = [run_toy(toy(), seed).digest for seed in (7, 7, 8)]
    assert digests[0] == digests[1] != digests[2]


@pytest.mark.parametrize("protocol", NAMES)
def test_the_digest_is_the_same_under_every_hash_seed(protocol: str) -> None:
    code = f"from fairway.sim.swarm import run_seed; print(*(run_seed({protocol!r}, s).digest for s in range(40, 48)))"
    printed = []
    for hash_seed in ("1", "4242"):
        environment = {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": ":".join(sys.path)}
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
        printed.append(done.stdout)
    assert printed[0] == printed[1]
    assert len(set(printed[0].split())) == 8


def test_the_digest_sees_a_single_changed_byte() -> None:
    class OtherByte(ToyMachine):
        def transmits(self) -> list[Transmit]:
            changed = super().transmits()
            if self.statistics.datagrams_received == 5 and changed:
                changed[0] = Transmit(changed[0].address, bytes(changed[0].data)[:-1] + b"\0")
            return changed

    assert run_toy(toy(), 3, OtherByte).digest != run_toy(toy(), 3).digest


def test_a_trace_holds_every_datagram_at_both_ends() -> None:
    file = BytesIO()
    configuration = toy(faults=Faults(loss=200_000), clients=1)
    points = ["server", "client 1"]
    traced = run(
        configuration,
        1,
        make_machine=lambda chance: ToyMachine(configuration.options, chance),
        trace=tracer(file.write, points),
    )
    assert traced.digest == run_toy(configuration).digest, "tracing changes nothing"
    from tests.capture.reading import read_pcapng

    frames = list(read_pcapng(file.getvalue()))
    arrived = traced.datagrams - traced.network["loss"]
    assert len(frames) == traced.datagrams + arrived


def test_the_replay_command_names_protocol_and_seed() -> None:
    assert replay_command("mrp", 8141) == "fairway sim --protocol mrp --swarm --seed 8141"


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


# Machines that break one promise each: the judge must name it.


class DeliversTwice(ToyMachine):
    def is_copy(self, address: Address, process: int, number: int) -> bool:
        return False


class ChangesBodies(ToyMachine):
    def events(self) -> list[Event]:
        return [
            MessageReceived(event.peer, event.id, event.body[:-1] + b"!")
            if isinstance(event, MessageReceived)
            else event
            for event in super().events()
        ]


class AcknowledgesUnheard(ToyMachine):
    def events(self) -> list[Event]:
        return [event for event in super().events() if not isinstance(event, MessageReceived) or int(event.id) % 9]


class ReportsTwice(ToyMachine):
    def events(self) -> list[Event]:
        events = super().events()
        return events + [event for event in events if isinstance(event, Delivered)]


class NeverGivesUp(ToyMachine):
    def events(self) -> list[Event]:
        return [event for event in super().events() if not isinstance(event, DeliveryUnknown)]


class Amplifies(ToyMachine):
    def acknowledge(self, address: Address, process: int, number: int) -> None:
        for _ in range(20):
            super().acknowledge(address, process, number)


class Spins(ToyMachine):
    now_us = 0

    def wake(self, now_us: int) -> None:
        self.now_us = now_us
        super().wake(now_us)

    def next_deadline_us(self) -> int | None:
        return self.now_us if self.now_us else super().next_deadline_us()


class Hoards(ToyMachine):
    def __init__(self, options: Options, chance: RandomSource) -> None:
        super().__init__(options, chance)
        self.hoard: dict[int, Address] = {}

    def receive(self, data: object, address: Address, now_us: int, segment_bytes: int | None = None) -> None:
        self.hoard[len(self.hoard)] = address
        super().receive(data, address, now_us, segment_bytes)  # type: ignore[arg-type]


class ForgetsSnapshots(ToyMachine):
    def restore(self, snapshot: bytes, now_us: int) -> Peer:
        peer = super().restore(snapshot, now_us)
        self.newest.clear()
        return peer


class SpeaksAfterClosed(ToyMachine):
    def events(self) -> list[Event]:
        events = super().events()
        for event in list(events):
            if isinstance(event, Delivered) and event.tokens[0] == 10:
                events.append(Closed(Peer(event.peer.address, 1), CloseReason.REMOTE))
                events.append(MessageReceived(Peer(event.peer.address, 1), 1, b"late"))
        return events


class AcknowledgesBeforeCommit(ToyMachine):
    def _deliver(self, address: Address, process: int, number: int, body: bytes) -> None:
        super()._deliver(address, process, number, body)
        if (address, number) in self.open:
            self.acknowledge(address, process, number)


LAZY = Load(messages=60, commit_us=200_000)
TIGHT = Options(
    send_queue_messages_max=20, open_receipts_max=20, peers_max=20, half_open_max=20, unproved_max=20, window=4
)


@pytest.mark.parametrize(
    ("kind", "rule", "changes"),
    [
        (DeliversTwice, "nothing twice", {}),
        (ChangesBodies, "only what was sent", {}),
        (AcknowledgesUnheard, "acknowledged means delivered", {}),
        (AcknowledgesBeforeCommit, "acknowledged means delivered", {"deferred": True, "load": LAZY}),
        (ReportsTwice, "outcomes", {}),
        (NeverGivesUp, "everything has an outcome", {"plan": (Partition(at_us=1, between=(0, 1), for_us=9_000_000),)}),
        (Amplifies, "amplification", {}),
        (Spins, "deadlines move on", {}),
        (Hoards, "bounds of memory", {"options": TIGHT, "tight": True, "load": Load(messages=400)}),
        (ForgetsSnapshots, "nothing twice", {"deferred": True, "plan": PLAN, "faults": replace(ROUGH, loss=400_000)}),
        (SpeaksAfterClosed, "no event after Closed", {}),
    ],
)
def test_a_broken_promise_is_named(kind: Maker, rule: str, changes: dict[str, object]) -> None:
    configuration = toy(**changes)  # type: ignore[arg-type]
    found = [rules(run_toy(configuration, seed, kind)) for seed in range(6)]
    assert any(rule in names for names in found), found
    assert all(run_toy(configuration, seed).passed for seed in range(6)), "the toy itself breaks nothing"


def test_committing_part_of_what_was_handed_over_frees_that_part() -> None:
    machine = ToyMachine(Options(deferred=True), _Zero())
    peer = Peer(("10.0.0.1", 1))
    machine.open = {(peer.address, 1): (0, 1), (peer.address, 2): (0, 2)}
    machine.commit(Receipt(peer, 2), 0)
    assert list(machine.open) == [(peer.address, 1)]


class _Zero:
    def bits(self, count: int) -> int:
        return 0

    def below(self, bound: int) -> int:
        return 0


def test_seeds_run_by_the_swarm_are_those_of_the_replay_command() -> None:
    assert run_seed("pydevts", 5).digest == run(draw("pydevts", 5), 5).digest
