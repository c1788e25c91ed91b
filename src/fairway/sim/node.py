"""A node drives a machine with the loop that the sockets use, and survives its own crashes.

A node has an application on top and a disk below. Each life of it is a process with a machine of its own; whatever an
earlier process had planned is void.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fairway.core.errors import FairwayError
from fairway.core.events import Address, Event, Peer
from fairway.core.machine import Machine, Transmit, settle
from fairway.core.random_source import Seeded
from fairway.sim.configuration import WITH_SESSIONS
from fairway.sim.disk import Disk, Transaction
from fairway.sim.memory import memory_violation
from fairway.sim.network import AmplificationLedger

if TYPE_CHECKING:
    from fairway.sim.application import LoadApplication
    from fairway.sim.run import World

WAKES_AT_ONE_INSTANT_MAX = 200
IDLE_WAKES_MAX = 1_000
"""Wakes in a row after which nothing was sent or reported: more is a machine that spins."""
ARRIVALS_BETWEEN_MEMORY_CHECKS = 512
DURABLE_AFTER_CRASH = 650_000


class Node:
    """One endpoint of the simulated network."""

    def __init__(self, around: World, index: int, address: Address, random: Seeded) -> None:
        self.around = around
        self.index = index
        self.address = address
        self.up = False
        self.process = 0
        self.lives = 0
        self.disk = Disk()
        self.ledger = AmplificationLedger(provable=around.configuration.protocol in WITH_SESSIONS)
        self.application: LoadApplication
        self.machine: Machine
        self._random = random
        self._deadline_us: int | None = None
        self._timer_us: int | None = None
        self._wakes_us = -1
        self._wakes = 0
        self._idle_wakes = 0
        self._arrivals = 0
        self._counted = [0, 0, 0, 0]
        """Datagrams and bytes sent and received by this process, as its machine's statistics must have them."""

    # Lives.

    def start(self, with_snapshot: bool = False) -> None:
        """Begin a process; with its snapshots it takes up its conversations again."""
        around = self.around
        self.up = True
        self.lives += 1
        self.machine = around.make_machine(self._random.fork(self.lives))
        self._deadline_us = self._timer_us = None
        self._counted = [0, 0, 0, 0]
        around.judge.started(self.index, restored=with_snapshot)
        around.digest.note(f"start {around.schedule.now_us} {self.index} {with_snapshot}")
        resumed = self._restore() if with_snapshot else []
        if not with_snapshot:
            self.disk = Disk()
        self.application.start(resumed)
        self.settle()

    def _restore(self) -> list[Peer]:
        """Restore each conversation but the mrp ones on which own data was sent after the snapshot, and store it anew
        before anything is sent: a second restore from the same snapshot would use numbers twice."""
        resumed = []
        kept: dict[Peer, bytes] = {}
        for peer, snapshot in self.disk.snapshots.items():
            if self.around.configuration.protocol == "mrp" and self.disk.sent_since.get(peer, False):
                continue
            try:
                restored = self.machine.restore(snapshot, self.around.schedule.now_us)
                kept[peer] = self.machine.snapshot(restored)
            except FairwayError as error:
                self.around.judge.accuse("snapshots can be restored", f"{peer}: {error}")
                continue
            if restored != peer:
                self.around.judge.accuse("snapshots can be restored", f"{peer} came back as {restored}")
            resumed.append(peer)
            self.around.judge.resumed(self.index, peer)
        self.disk.snapshots = kept
        return resumed

    def crash(self) -> None:
        """End the process at once: nothing is said to anybody."""
        self.check_statistics()
        disk = self.disk
        if not self.around.configuration.options.deferred:
            disk.keep(self.machine, self.application.open_receipts(), self.quiet)
        elif disk.writing is not None and self._random.happens(DURABLE_AFTER_CRASH):
            self._stored(disk.end())
        disk.writing = None
        disk.crash()
        self.application.crash()
        self.up = False
        self.process += 1
        self.around.digest.note(f"crash {self.around.schedule.now_us} {self.index}")

    def quiet(self, peer: Peer) -> bool:
        """Return whether no data of our own is under way to the peer."""
        return self.around.judge.open_towards(self.index, peer) == 0

    # Driving the machine.

    def settle(self) -> None:
        """Send, report and arm, as every driver of a machine does."""
        settle(self.machine, self._transmit, self._report, self._arm)

    def _transmit(self, transmits: list[Transmit]) -> None:
        self._idle_wakes = 0
        for transmit in transmits:
            _, data, segment_bytes = transmit
            self._counted[0] += 1 if segment_bytes is None else -(-len(data) // segment_bytes)
            self._counted[1] += len(data)
            self.around.network.transmit(self, transmit)

    def _report(self, event: Event) -> None:
        self._idle_wakes = 0
        self.around.digest.event(self.around.schedule.now_us, self.index, event)
        self.application.report(event)

    def _arm(self, deadline_us: int | None) -> None:
        self._deadline_us = deadline_us
        if deadline_us is not None and (self._timer_us is None or deadline_us < self._timer_us):
            self._timer_us = deadline_us
            self.around.schedule.at(deadline_us, self._timer, (self.process, deadline_us))

    def _timer(self, armed: tuple[int, int]) -> None:
        process, timer_us = armed
        if process != self.process or timer_us != self._timer_us or not self.up:
            return
        self._timer_us = None
        now_us = self.around.schedule.now_us
        if self._deadline_us is None or self._deadline_us > now_us:
            self._arm(self._deadline_us)
            return
        self._wakes = self._wakes + 1 if self._wakes_us == now_us else 1
        self._wakes_us = now_us
        self._idle_wakes += 1
        if self._wakes > WAKES_AT_ONE_INSTANT_MAX or self._idle_wakes > IDLE_WAKES_MAX:
            text = f"node {self.index} woke {self._wakes} times now, {self._idle_wakes} times in a row for nothing"
            self.around.judge.accuse("deadlines move on", text)
            self._idle_wakes = 0
            self.around.schedule.stop()
            return
        self.machine.wake(now_us)
        self.settle()

    def arrive(self, data: bytes, source: Address, segment_bytes: int | None) -> None:
        """Pass what the network brings to the machine."""
        self._counted[2] += 1 if segment_bytes is None else -(-len(data) // segment_bytes)
        self._counted[3] += len(data)
        self.machine.receive(data, source, self.around.schedule.now_us, segment_bytes)
        self.settle()
        self._arrivals += 1
        if self.around.configuration.tight and self._arrivals % ARRIVALS_BETWEEN_MEMORY_CHECKS == 0:
            self.check_memory()

    def check_memory(self) -> None:
        """Check whether the machine's tables are within their bounds."""
        broken = memory_violation(self.machine, self.around.entries_max)
        if broken is not None:
            self.around.judge.accuse("bounds of memory", f"node {self.index}: {broken}")

    def check_statistics(self) -> None:
        """Check whether the machine counts what it sends and gets."""
        counts = self.machine.statistics
        told = [counts.datagrams_sent, counts.bytes_sent, counts.datagrams_received, counts.bytes_received]
        if told != self._counted:
            text = f"node {self.index} counts {told}, the network {self._counted}"
            self.around.judge.accuse("statistics count what happens", text)

    def later(self, delay_us: int, action: Callable[[Any], None], argument: Any = None) -> None:
        """Do something in a while, unless the process has ended by then, and settle."""
        self.around.schedule.at(self.around.schedule.now_us + delay_us, self._planned, (self.process, action, argument))

    def _planned(self, plan: tuple[int, Callable[[Any], None], Any]) -> None:
        process, action, argument = plan
        if process == self.process and self.up:
            action(argument)
            self.settle()

    # The disk.

    def write(self) -> None:
        """Begin a transaction if none is under way and something waits for one."""
        disk = self.disk
        if disk.writing is None and disk.pending:
            disk.begin(self.machine, self.process, self.quiet)
            self.later(self.around.configuration.load.disk_us, self._written)

    def _written(self, _: None) -> None:
        transaction = self.disk.end()
        self._stored(transaction)
        for stored in transaction.stored:
            self.machine.commit(stored.receipt, self.around.schedule.now_us)
            if stored.afterwards is not None:
                stored.afterwards()
        self.write()

    def _stored(self, transaction: Transaction) -> None:
        for stored in transaction.stored:
            for body in stored.bodies:
                self.around.judge.committed(self.index, stored.receipt.peer, body, transaction.process)
