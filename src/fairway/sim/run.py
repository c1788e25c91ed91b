"""One run: a configuration and a seed in, a result out, and nothing else matters.

First *safety*: the load runs under faults, crashes and a hostile peer. Then everything heals and *liveness* is
required: what was accepted arrives or has been reported as failed, and every client gets a new message through,
within a bound of virtual time. In the end everything is closed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fairway import protocols as registry
from fairway.core.events import Address
from fairway.core.machine import Machine
from fairway.core.random_source import Seeded
from fairway.sim.application import LoadApplication
from fairway.sim.checks import Judge, Promises
from fairway.sim.configuration import SERVER, WITH_SESSIONS, CloseOne, Configuration, Crash, Partition, Rebind, Step
from fairway.sim.digest import Digest
from fairway.sim.hostile import Hostile
from fairway.sim.load import Bodies
from fairway.sim.memory import entries_max
from fairway.sim.network import Network, Sighting
from fairway.sim.node import Node
from fairway.sim.result import Result
from fairway.sim.schedule import Schedule

POLL_US = 100_000
CLOSE_WITHIN_US = 60_000_000
MID_WRITE_WITHIN_US = 2_000_000
MID_WRITE_POLL_US = 700
ACTIONS_MAX = 500_000
ACTIONS_PER_MESSAGE_MAX = 2_000
"""A run that takes more steps than this does not come to rest."""
PYDEVTS_CRC_FROM = 4

MachineMaker = Callable[[Seeded], Machine]
Trace = Callable[[int, Sighting], None]


def run(
    configuration: Configuration, seed: int, *, make_machine: MachineMaker | None = None, trace: Trace | None = None
) -> Result:
    """Run a configuration; `make_machine` replaces the protocol's own machine (by one that is broken on purpose)."""
    world = World(configuration, seed, make_machine or _maker(configuration))
    world.network.trace = trace
    return world.run()


def _maker(configuration: Configuration) -> MachineMaker:
    return lambda random: registry.make_machine(configuration.protocol, configuration.options, random)


def promises(configuration: Configuration) -> Promises:
    """Return what the judge may ask of this configuration."""
    options, protocol = configuration.options, configuration.protocol
    stamped = getattr(options, "layout", "stamped") == "stamped"
    return Promises(
        deferred=options.deferred,
        ordered=protocol == "mrp",
        keeps_acknowledged=protocol == "mrp" and stamped and not options.deferred,
        by_address=protocol not in WITH_SESSIONS,
        all_arrive=configuration.mild,
        sequenced=bool(getattr(options, "sequenced", False)),
        ids_by_chance=protocol == "pydevts",
    )


class World:
    """All that the nodes of a run share, and the phases that they go through."""

    def __init__(self, configuration: Configuration, seed: int, make_machine: MachineMaker) -> None:
        self.configuration = configuration
        self.seed = seed
        random = Seeded(seed)
        self.schedule = Schedule()
        self.digest = Digest()
        self.network = Network(
            self.schedule,
            self.digest,
            configuration.faults,
            random.fork(1),
            covered_from=PYDEVTS_CRC_FROM if configuration.protocol == "pydevts" else None,
            coalesce_us=configuration.coalesce_us,
            shared_bottleneck=configuration.shared_bottleneck,
            accuse=self._accuse,
        )
        self.judge = Judge(promises(configuration), self.network.owners, lambda: self.schedule.now_us)
        self.bodies = Bodies(configuration.load, random.fork(2))
        self.make_machine = make_machine
        self.entries_max = entries_max(configuration.options)
        self._steps_left = len(configuration.plan)
        self._rebinds = 0
        self._down: dict[int, bool] = {}
        self._ready: Callable[[], bool] = lambda: False
        self.nodes = [self._node(index, random.fork(100 + index)) for index in range(configuration.nodes)]
        self.applications = self._applications(random)
        self.hostile = Hostile(self.network, self.schedule, configuration.protocol, len(self.nodes), random.fork(3))

    def _accuse(self, rule: str, what: str) -> None:
        self.judge.accuse(rule, what)

    def _node(self, index: int, random: Seeded) -> Node:
        address: Address = ("10.0.0.1", 9_000) if index == SERVER else (f"10.0.1.{index}", 5_000)
        node = Node(self, index, address, random)
        self.network.join(node, address)
        return node

    def _applications(self, random: Seeded) -> list[LoadApplication]:
        """Give each node its application: clients call the server, which calls back where peers are addresses."""
        configuration = self.configuration
        calls_back = configuration.load.two_way and configuration.protocol not in WITH_SESSIONS
        applications = []
        for node in self.nodes:
            others = [self.nodes[SERVER]] if node.index != SERVER else self.nodes[1:] if calls_back else []
            targets = [other.address for other in others]
            application = LoadApplication(node, targets, random.fork(200 + node.index))
            node.application = application
            applications.append(application)
        return applications

    # Phases.

    def run(self) -> Result:
        """Go through all phases and return the result."""
        configuration = self.configuration
        for node in self.nodes:
            node.start()
        for step in configuration.plan:
            self.schedule.at(step.at_us, self._take_step, step)
        if configuration.hostile_actions:
            targets = [node.address for node in self.nodes]
            self.hostile.begin(targets, configuration.hostile_actions, configuration.hostile_interval_us)
        self._phase(configuration.fault_us, lambda: self._steps_left == 0 and self._all_done())
        load_us = max(0, self.judge.last_outcome_us - self.judge.first_accepted_us)
        self._heal()
        healed_us = self.schedule.now_us
        self._phase(healed_us + configuration.heal_us, self._all_done)
        self._judge_liveness()
        self._close()
        return self._result(healed_us, load_us)

    def _phase(self, until_us: int, ready: Callable[[], bool]) -> None:
        """Run until everything is ready or the time is over."""
        self._ready = ready
        self.schedule.at(self.schedule.now_us, self._poll, ready)
        load = self.configuration.load
        parts = load.bytes_max // self.configuration.options.datagram_bytes_max + 1
        actions_max = ACTIONS_MAX + ACTIONS_PER_MESSAGE_MAX * load.messages * self.configuration.clients * parts
        if not self.schedule.run(until_us, actions_max - self.schedule.taken):
            self._accuse("the run comes to rest", f"{actions_max} steps were not enough")

    def _poll(self, ready: Callable[[], bool]) -> None:
        if ready is not self._ready:
            return
        if ready():
            self.schedule.stop()
        else:
            self.schedule.at(self.schedule.now_us + POLL_US, self._poll, ready)

    def _all_done(self) -> bool:
        return all(node.up for node in self.nodes) and all(application.done() for application in self.applications)

    def _heal(self) -> None:
        self.judge.measures.ended = True
        self.hostile.stop()
        self.network.heal()
        self._steps_left = -1
        for node in self.nodes:
            if not node.up:
                node.start(self._down[node.index])
        for node, application in zip(self.nodes, self.applications, strict=True):
            application.heal()
            node.settle()

    def _judge_liveness(self) -> None:
        for node, application in zip(self.nodes, self.applications, strict=True):
            for target in application.targets:
                if not target.proved:
                    self._accuse(
                        "messages get through after the heal", f"node {node.index} cannot reach {target.address}"
                    )
            if not self.judge.open_tokens(node.index) and node.machine.unfinished():
                text = f"node {node.index} counts {node.machine.unfinished()} although each token has its outcome"
                self._accuse("unfinished counts open tokens", text)
            node.check_memory()
        self.judge.finish({node.index: node.lives for node in self.nodes})

    def _close(self) -> None:
        for node, application in zip(self.nodes, self.applications, strict=True):
            application.stop()
            node.settle()
        self._phase(self.schedule.now_us + CLOSE_WITHIN_US, self._all_closed)
        for node, application in zip(self.nodes, self.applications, strict=True):
            for peer in application.still_open():
                self._accuse("closing ends", f"node {node.index} still has {peer}")
            node.check_statistics()

    def _all_closed(self) -> bool:
        return not any(application.still_open() for application in self.applications)

    def _result(self, healed_us: int, load_us: int) -> Result:
        return Result(
            protocol=self.configuration.protocol,
            seed=self.seed,
            digest=self.digest.hexdigest(),
            violations=tuple(self.judge.violations),
            virtual_us=self.schedule.now_us,
            healed_us=healed_us,
            load_us=load_us,
            datagrams=self.network.datagrams,
            bytes=self.network.bytes,
            accepted=self.judge.accepted_total,
            delivered=self.judge.delivered_total,
            outcomes=self.judge.outcomes,
            network=self.network.happened,
            hostile_datagrams=self.hostile.sent,
            nodes=tuple(node.machine.statistics for node in self.nodes),
            measures=self.judge.measures,
        )

    # The plan.

    def _take_step(self, step: Step) -> None:
        if self._steps_left < 0:
            return
        if isinstance(step, Crash):
            self._crash(step)
        elif isinstance(step, Partition):
            self.network.block(step.between, True)
            self._later(step.for_us, lambda _: self.network.block(step.between, False))
        elif isinstance(step, Rebind):
            self._rebinds += 1
            self.network.rebind(self.nodes[step.node], (f"10.0.2.{step.node}", 6_000 + self._rebinds))
            self._steps_left -= 1
        elif isinstance(step, CloseOne):
            self._close_one(step)
            self._steps_left -= 1

    def _later(self, delay_us: int, action: Callable[[Any], None]) -> None:
        """End a step after a while, unless everything has healed by then."""

        def end(_: None) -> None:
            if self._steps_left > 0:
                action(None)
                self._steps_left -= 1

        self.schedule.at(self.schedule.now_us + delay_us, end)

    def _crash(self, step: Crash) -> None:
        node = self.nodes[step.node]
        if not node.up:
            self._steps_left -= 1
            return
        waited_us = self.schedule.now_us - step.at_us
        if step.mid_write and node.disk.writing is None and waited_us < MID_WRITE_WITHIN_US:
            self.schedule.at(self.schedule.now_us + MID_WRITE_POLL_US, self._take_step, step)
            return
        node.crash()
        self._down[step.node] = step.with_snapshot
        self._later(step.down_us, lambda _: node.start(step.with_snapshot))

    def _close_one(self, step: CloseOne) -> None:
        node = self.nodes[step.node]
        if node.up:
            self.applications[step.node].close(0)
            node.settle()
