"""Flows through one bottleneck: what share of it they reach, and how long its queue is.

A lean world beside `fairway.sim.run`: the same machines, pipes and clock, without judge, digest and crashes, because
a long flow at 100 Mbit/s is a million datagrams. All flows share one pipe towards the receivers, in front of
which a queue waits, and one pipe back. What is measured depends on the seed and on nothing else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from fairway import protocols as registry
from fairway.core import events
from fairway.core.events import Address, Event, Peer
from fairway.core.machine import Machine, Options, Transmit, settle
from fairway.core.random_source import MILLION, Seeded
from fairway.sim.pipe import Faults, Pipe
from fairway.sim.schedule import Schedule

DATAGRAM_BYTES = 1_200
BODY_BYTES = {"udpc": 1_187, "mrp": 1_186, "rup": 1_158, "pydevts": 1_192}
"""What a full datagram of each protocol carries."""
RUP_MESSAGE_BYTES = 4_000 * BODY_BYTES["rup"]
BATCH = 256
BACKLOG_BYTES = 32 << 20
"""What a long flow keeps in its send queue: more than any window."""
TICKS_PER_ROUND_TRIP = 16
BURST_LEAVE = 250_000
BURST_LOSS = 900_000
"""A burst is four datagrams long on average, of which nine in ten are lost."""


@dataclass(frozen=True, kw_only=True)
class Path:
    """A link with a bottleneck; its queue holds one bandwidth-delay product unless `queue_share` says otherwise."""

    rate_mbit: int
    round_trip_ms: int
    loss: float = 0.0
    """The share of datagrams that is lost, in each direction."""
    bursts: bool = False
    """Lose as many on average, but in bursts."""
    queue_share: float = 1.0
    jitter_ms: int = 0
    """By how much datagrams are late at the most, in each direction; they keep their order."""

    @property
    def bytes_per_s(self) -> int:
        return self.rate_mbit * 125_000

    @property
    def product_bytes(self) -> int:
        """Bandwidth times delay."""
        return self.bytes_per_s * self.round_trip_ms // 1_000

    @property
    def queue_us(self) -> int:
        """How long a full queue takes."""
        return round(self.round_trip_ms * 1_000 * self.queue_share)

    @property
    def queue_bytes(self) -> int:
        return max(2 * DATAGRAM_BYTES, self.bytes_per_s * self.queue_us // 1_000_000)

    def faults(self) -> Faults:
        """Return what each direction does to datagrams."""
        loss = round(self.loss * MILLION)
        # The share of time in the bad state times what it loses is the average.
        bad = self.loss / (BURST_LOSS / MILLION)
        enter = round(BURST_LEAVE * bad / (1 - bad)) if self.bursts else 0
        return Faults(
            loss=0 if self.bursts else loss,
            burst_enter=enter,
            burst_leave=BURST_LEAVE,
            burst_loss=BURST_LOSS,
            delay_us=self.round_trip_ms * 500,
            jitter_us=self.jitter_ms * 1_000,
            bandwidth_bytes_per_s=self.bytes_per_s,
            queue_bytes=self.queue_bytes,
        )


@dataclass(frozen=True, kw_only=True)
class Load:
    """One flow: as much as the path takes, or a message of `bytes` every `interval_us`."""

    protocol: str
    options: dict[str, object] = field(default_factory=dict)
    begin_us: int = 0
    interval_us: int = 0
    bytes: int = 200


@dataclass(frozen=True, kw_only=True)
class Constant:
    """Traffic that listens to nobody."""

    share: float
    begin_us: int


class Flow:
    def __init__(self, world: Bottleneck, index: int, load: Load, random: Seeded) -> None:
        self._world = world
        self.load = load
        self.body_bytes = BODY_BYTES[load.protocol]
        client, server = (f"10.0.1.{index}", 5_000), (f"10.0.0.{index}", 9_000)
        options: Options = registry.make_options(load.protocol, **load.options)
        receiving = replace(options, spool_above_bytes=1 << 16) if load.protocol == "rup" else options  # type: ignore[call-arg]
        self.sender = End(world, client, registry.make_machine(load.protocol, options, random.fork(1)), self._sent)
        self.receiver = End(world, server, registry.make_machine(load.protocol, receiving, random.fork(2)), self._got)
        self._peer: Peer | None = None
        self._bodies = [bytes(self.body_bytes)] * BATCH
        self.waiting = 0
        """Messages without an outcome."""
        self._sent_us: dict[int, int] = {}
        self.arrived_bytes = 0
        self.failed = 0
        self.latencies_us: list[int] = []
        """From `send` to the acknowledgement, of a flow of single messages."""

    def begin(self, _: None) -> None:
        self.sender.machine.connect(self.receiver.address, self._world.now_us)
        self.sender.settle()

    def _sent(self, event: Event) -> None:
        if isinstance(event, events.Connected):
            self._peer = event.peer
            if self.load.interval_us:
                self._trickle(None)
            else:
                self._fill()
        elif isinstance(event, events.Delivered):
            self.waiting -= len(event.tokens)
            if self.load.interval_us:
                for token in event.tokens:
                    self.latencies_us.append(self._world.now_us - self._sent_us.pop(token))
            elif (self.waiting + BATCH) * self.body_bytes < BACKLOG_BYTES:
                self._fill()
        elif isinstance(event, events.DeliveryUnknown | events.Refused):
            self.waiting -= len(event.tokens)
            self.failed += len(event.tokens)

    @property
    def _unit_bytes(self) -> int:
        return RUP_MESSAGE_BYTES if self.load.protocol == "rup" else self.body_bytes

    def _fill(self) -> None:
        assert self._peer is not None
        machine, now_us = self.sender.machine, self._world.now_us
        while self.waiting * self._unit_bytes < BACKLOG_BYTES:
            if self.load.protocol == "rup":
                machine.send(self._peer, self._world.large, now_us)
                self.waiting += 1
            else:
                taken = len(machine.send_many(self._peer, self._bodies, now_us))
                self.waiting += taken
                if not taken:
                    return

    def _trickle(self, _: None) -> None:
        assert self._peer is not None
        token = self.sender.machine.send(self._peer, bytes(self.load.bytes), self._world.now_us)
        self._sent_us[token] = self._world.now_us
        self.waiting += 1
        self._world.schedule.at(self._world.now_us + self.load.interval_us, self._next, None)

    def _next(self, _: None) -> None:
        self._trickle(None)
        self.sender.settle()

    def _got(self, event: Event) -> None:
        if isinstance(event, events.PartReceived):
            self.arrived_bytes += len(event.body)
        elif isinstance(event, events.MessagesReceived):
            self.arrived_bytes += sum(map(len, event.bodies))
            self.receiver.machine.commit(event.receipt, self._world.now_us)
        elif isinstance(event, events.MessageReceived | events.RequestReceived):
            self.arrived_bytes += len(event.body)
            self.receiver.machine.commit(event.receipt, self._world.now_us)


class End:
    def __init__(self, world: Bottleneck, address: Address, machine: Machine, report: object) -> None:
        self.address = address
        self.machine = machine
        self._world = world
        self._report = report
        self._timer_us: int | None = None
        world.ends[address] = self

    def settle(self) -> None:
        """Send, report and arm, as every driver does."""
        settle(self.machine, self._transmit, self._report, self._arm)  # type: ignore[arg-type]

    def arrive(self, data: bytes, source: Address) -> None:
        self.machine.receive(data, source, self._world.now_us)
        self.settle()

    def _transmit(self, transmits: list[Transmit]) -> None:
        for address, data, segment_bytes in transmits:
            whole, size = bytes(data), segment_bytes or max(1, len(data))
            for start in range(0, max(1, len(whole)), size):
                self._world.carry(self.address, address, whole[start : start + size])

    def _arm(self, deadline_us: int | None) -> None:
        if deadline_us is not None and (self._timer_us is None or deadline_us < self._timer_us):
            self._timer_us = deadline_us
            self._world.schedule.at(deadline_us, self._wake, deadline_us)

    def _wake(self, timer_us: int) -> None:
        if timer_us != self._timer_us:
            return
        self._timer_us = None
        deadline_us = self.machine.next_deadline_us()
        if deadline_us is not None and deadline_us <= self._world.now_us:
            self.machine.wake(self._world.now_us)
        self.settle()


class Bottleneck:
    """All flows of one run, and the path that they share."""

    def __init__(self, path: Path, loads: Sequence[Load], seed: int, constant: Constant | None = None) -> None:
        random = Seeded(seed)
        self.path = path
        self.schedule = Schedule()
        self.ends: dict[Address, End] = {}
        self.large = bytes(RUP_MESSAGE_BYTES)
        faults = path.faults()
        self._forth, self._back = (Pipe(faults, random.fork(way), Counter(), None) for way in (1, 2))
        self.flows = [Flow(self, index + 1, load, random.fork(10 + index)) for index, load in enumerate(loads)]
        self._receivers = {flow.receiver.address for flow in self.flows}
        for flow in self.flows:
            self.schedule.at(flow.load.begin_us, flow.begin)
        self._constant_us = 0
        if constant is not None:
            self._constant_us = round(DATAGRAM_BYTES * 1_000_000 / (path.bytes_per_s * constant.share))
            self.schedule.at(constant.begin_us, self._constant)

    @property
    def now_us(self) -> int:
        return self.schedule.now_us

    def carry(self, source: Address, destination: Address, data: bytes) -> None:
        """Take a datagram to wherever it goes."""
        pipe = self._forth if destination in self._receivers else self._back
        for arrival_us, arriving in pipe.carry(data, self.now_us):
            self.schedule.at(arrival_us, self._arrive, (destination, source, arriving))

    def _arrive(self, arrival: tuple[Address, Address, bytes]) -> None:
        destination, source, data = arrival
        self.ends[destination].arrive(data, source)

    def _constant(self, _: None) -> None:
        self._forth.carry(bytes(DATAGRAM_BYTES), self.now_us)
        self.schedule.at(self.now_us + self._constant_us, self._constant)

    def run(self, from_us: int, to_us: int) -> Measured:
        """Go on to `to_us`, and return what was measured from `from_us` on."""
        self.schedule.run(from_us, 1 << 62)
        before = [flow.arrived_bytes for flow in self.flows]
        step_us = max(1_000, self.path.round_trip_ms * 1_000 // TICKS_PER_ROUND_TRIP)
        queued: list[int] = []
        while self.now_us < to_us:
            self.schedule.run(min(to_us, self.now_us + step_us), 1 << 62)
            queued.append(self._forth.waiting_us(self.now_us))
        elapsed_us = to_us - from_us
        shares = []
        for flow, was in zip(self.flows, before, strict=True):
            most = self.path.bytes_per_s * elapsed_us * flow.body_bytes // DATAGRAM_BYTES
            shares.append((flow.arrived_bytes - was) * 1_000_000 / most)
        mean_us = sum(queued) / len(queued)
        return Measured(shares=shares, queue_mean=mean_us / self.path.queue_us)


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What flows reached over some time."""

    shares: list[float]
    """By flow: body bytes that arrived, of what the bottleneck carries less the headers."""
    queue_mean: float
    """How long the queue was, of a full one."""
