"""The virtual network: addresses, pipes between nodes, and what arrives where and when.

A node keeps its index for the whole run; its address may change (a NAT that forgets its mapping), and then whatever
is under way to the old address is lost. Datagrams to addresses that nobody holds vanish, as those to the victims of
a spoofer do; the ledger has counted them by then.

The ledger of amplification is the network's own, kept apart from the machines that it judges. Bytes that leave a node
for an address count against three times the bytes that came from it, unless the node's own application named it. For
udpc and mrp an address counts as proved here once something came from it after something had reached it: that is
later than the protocols' own proof at the earliest, so this account never accuses wrongly. For rup and pydevts nothing
proves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from fairway.core.events import Address
from fairway.core.machine import Transmit
from fairway.core.random_source import Seeded
from fairway.sim.digest import Digest
from fairway.sim.pipe import Faults, Pipe
from fairway.sim.schedule import Schedule

FACTOR = 3


@dataclass(slots=True, eq=False)
class Account:
    """What one node and one address exchanged."""

    exempt: bool
    received_bytes: int = 0
    sent_bytes: int = 0
    heard: bool = False
    """Something from the node has reached this address."""

    def sent(self, count: int) -> bool:
        """Count bytes towards the address; return whether the limit still holds."""
        self.sent_bytes += count
        return self.exempt or self.sent_bytes <= FACTOR * self.received_bytes


class AmplificationLedger:
    """The accounts of one node, by address; they live longer than its processes."""

    __slots__ = ("_accounts", "_provable", "_watched")

    def __init__(self, provable: bool, watched: bool = True) -> None:
        self._accounts: dict[Address, Account] = {}
        self._provable = provable
        self._watched = watched
        """False for a hostile peer: it may send what it likes."""

    def account(self, address: Address) -> Account:
        """Return the account of an address; it stays the same object."""
        account = self._accounts.get(address)
        if account is None:
            account = self._accounts[address] = Account(not self._watched)
        return account

    def named(self, address: Address) -> None:
        """Note that the node's own application named the address as a destination."""
        self.account(address).exempt = True

    def reached(self, address: Address) -> None:
        """Note that something from the node arrived at the address."""
        self.account(address).heard = True

    def received(self, address: Address, count: int) -> None:
        account = self.account(address)
        account.received_bytes += count
        if account.heard and self._provable:
            account.exempt = True


COALESCED_BYTES_MAX = 65_000
COALESCED_DATAGRAMS_MAX = 64
NOWHERE = 0xFFFF


class Station(Protocol):
    """Whoever holds an address: a node, or a hostile peer."""

    index: int
    address: Address
    up: bool
    ledger: AmplificationLedger

    def arrive(self, data: bytes, source: Address, segment_bytes: int | None) -> None: ...


@dataclass(frozen=True, slots=True)
class Sighting:
    """A datagram as it left its sender."""

    time_us: int
    source: Address
    destination: Address
    data: bytes


Tap = Callable[[Sighting], None]


class Route(NamedTuple):
    """The way from a station to an address."""

    station: int
    """Who is at its end, or NOWHERE."""
    pipe: Pipe | None
    account: Account


class Network:
    """Moves datagrams between stations; every pair of them has its own pipe in each direction."""

    def __init__(
        self,
        schedule: Schedule,
        digest: Digest,
        faults: Faults,
        random: Seeded,
        *,
        covered_from: int | None = None,
        coalesce_us: int = 0,
        shared_bottleneck: bool = False,
        accuse: Callable[[str, str], None],
    ) -> None:
        self.happened: Counter[str] = Counter()
        self.datagrams = 0
        self.bytes = 0
        self.taps: list[Tap] = []
        self.trace: Callable[[int, Sighting], None] | None = None
        """Told of each datagram as a station sends it and as it reaches one."""
        self.owners: dict[Address, int] = {}
        """Which station an address belongs or belonged to; addresses are never given twice."""
        self._schedule = schedule
        self._digest = digest
        self._faults = faults
        self._random = random
        self._covered_from = covered_from
        self._coalesce_us = coalesce_us
        self._shared_bottleneck = shared_bottleneck
        self._accuse = accuse
        self._stations: dict[Address, Station] = {}
        self._pipes: dict[tuple[int, int], Pipe] = {}
        self._blocked: dict[tuple[int, int], bool] = {}
        self._routes: dict[tuple[int, Address], Route] = {}

    def join(self, station: Station, address: Address) -> None:
        """Give a station an address; it may hold several."""
        self._stations[address] = station
        self.owners[address] = station.index

    def rebind(self, station: Station, address: Address) -> None:
        """Move a station to a new address; what is under way to the old one is lost."""
        del self._stations[station.address]
        station.address = address
        self.join(station, address)
        self._digest.note(f"rebind {self._schedule.now_us} {station.index} {address!r}")

    def pipe(self, source: int, destination: int) -> Pipe:
        """Return the pipe between two stations, made when first needed."""
        key = (0 if self._shared_bottleneck else source, destination)
        pipe = self._pipes.get(key)
        if pipe is None:
            random = self._random.fork(key[0] * 65_536 + key[1])
            pipe = self._pipes[key] = Pipe(self._faults, random, self.happened, self._covered_from)
        return pipe

    def block(self, between: tuple[int, int], blocked: bool) -> None:
        """Part or join two stations, in both directions."""
        self._blocked[between] = self._blocked[between[::-1]] = blocked
        self._digest.note(f"block {self._schedule.now_us} {between} {blocked}")

    def heal(self) -> None:
        """Take every fault off every pipe."""
        self._faults = self._faults.healed()
        self._blocked.clear()
        for pipe in self._pipes.values():
            pipe.faults = self._faults
        self._digest.note(f"heal {self._schedule.now_us}")

    def transmit(self, station: Station, datagrams: Transmit) -> None:
        """Send what a machine wants sent; a batch is cut up into its datagrams."""
        address, data, segment_bytes = datagrams
        if segment_bytes is None:
            self.carry(station, station.address, address, bytes(data))
            return
        data = bytes(data)
        if self._coalesce_us and len(data) > segment_bytes:
            route = self._routes.get((station.index, address)) or self._route(station, address)
            if route.pipe is not None and route.pipe.faults.only_loses and not self._blocked:
                self._carry_together(station, address, data, segment_bytes, route)
                return
        for start in range(0, len(data), segment_bytes):
            self.carry(station, station.address, address, data[start : start + segment_bytes])

    def _carry_together(
        self, station: Station, destination: Address, data: bytes, segment_bytes: int, route: Route
    ) -> None:
        """Carry a batch over a link that only loses: the same as one by one, for the price of a few."""
        now_us = self._schedule.now_us
        count = -(-len(data) // segment_bytes)
        index, pipe, account = route
        assert pipe is not None
        self.datagrams += count
        self.bytes += len(data)
        if not account.sent(len(data)):
            self._accuse_of_amplification(destination, account)
        self._digest.note(f"together {segment_bytes}")
        self._digest.datagram(b">", now_us, station.index, index, data)
        if self.taps or self.trace is not None:
            for start in range(0, len(data), segment_bytes):
                self._show(station, station.address, destination, data[start : start + segment_bytes])
        arrival_us, lost = pipe.carry_together(count, now_us)
        for number in reversed(lost):
            data = data[: number * segment_bytes] + data[(number + 1) * segment_bytes :]
        together = min(COALESCED_DATAGRAMS_MAX, max(COALESCED_BYTES_MAX // segment_bytes, 1)) * segment_bytes
        gathered_us = -(-arrival_us // self._coalesce_us) * self._coalesce_us
        for start in range(0, len(data), together):
            arriving = data[start : start + together]
            segments = segment_bytes if len(arriving) > segment_bytes else None
            self._schedule.at(gathered_us, self._arrive, (destination, station.address, arriving, segments))

    def _show(self, station: Station, source: Address, destination: Address, data: bytes) -> None:
        """Let those who watch see a datagram leave."""
        sighting = Sighting(self._schedule.now_us, source, destination, data)
        for tap in self.taps:
            tap(sighting)
        if self.trace is not None:
            self.trace(station.index, sighting)

    def _accuse_of_amplification(self, address: Address, account: Account) -> None:
        text = f"{account.sent_bytes} bytes went to {address}, from where only {account.received_bytes} came"
        self._accuse("amplification", text)

    def carry(self, station: Station, source: Address, destination: Address, data: bytes) -> None:
        """Take one datagram from a station; `source` differs from the station's own address when it lies."""
        now_us = self._schedule.now_us
        size = len(data)
        self.datagrams += 1
        self.bytes += size
        route = self._routes.get((station.index, destination))
        if route is None:
            route = self._route(station, destination)
        index, pipe, account = route
        if not account.sent(size):
            self._accuse_of_amplification(destination, account)
        self._digest.datagram(b">", now_us, station.index, index, data)
        if self.taps or self.trace is not None:
            self._show(station, source, destination, data)
        if pipe is None:
            self.happened["nowhere"] += 1
            return
        if self._blocked and self._blocked.get((station.index, index)):
            self.happened["partition"] += 1
            return
        quantum_us = self._coalesce_us
        for arrival_us, arriving in pipe.carry(data, now_us):
            gathered_us = -(-arrival_us // quantum_us) * quantum_us if quantum_us else arrival_us
            self._schedule.at(gathered_us, self._arrive, (destination, source, arriving, None))

    def _route(self, station: Station, destination: Address) -> Route:
        """Find a way; it is kept once somebody has the address, because addresses are never given twice."""
        account = station.ledger.account(destination)
        index = self.owners.get(destination, NOWHERE)
        if index == NOWHERE:
            return Route(NOWHERE, None, account)
        route = self._routes[station.index, destination] = Route(index, self.pipe(station.index, index), account)
        return route

    def _arrive(self, arrival: tuple[Address, Address, bytes, int | None]) -> None:
        destination, source, data, segment_bytes = arrival
        station = self._stations.get(destination)
        if station is None or not station.up:
            self.happened["nobody"] += 1
            return
        if segment_bytes is None and self._coalesce_us:
            data, segment_bytes = self._coalesced(destination, source, data)
        if segment_bytes is not None:
            self.happened["coalesced"] += -(-len(data) // segment_bytes)
            self._digest.note(f"together {segment_bytes}")
        if self.trace is not None:
            self._trace_arrival(station, source, destination, data, segment_bytes)
        self._digest.datagram(b"<", self._schedule.now_us, self.owners.get(source, NOWHERE), station.index, data)
        station.ledger.received(source, len(data))
        sender = self._stations.get(source)
        if sender is not None:
            sender.ledger.reached(destination)
        station.arrive(data, source, segment_bytes)

    def _trace_arrival(
        self, station: Station, source: Address, destination: Address, data: bytes, segment_bytes: int | None
    ) -> None:
        assert self.trace is not None
        size = segment_bytes or len(data) or 1
        for start in range(0, len(data) or 1, size):
            piece = data[start : start + size]
            self.trace(station.index, Sighting(self._schedule.now_us, source, destination, piece))

    def _coalesced(self, destination: Address, source: Address, data: bytes) -> tuple[bytes, int | None]:
        """Join what arrives next, now, from the same source and of the same size, as GRO does; the last may be
        shorter."""
        heap = self._schedule.heap
        size = len(data)
        pieces = [data]
        total = size
        while heap and size and len(pieces) < COALESCED_DATAGRAMS_MAX and len(pieces[-1]) == size:
            time_us, _, action, argument = heap[0]
            if time_us != self._schedule.now_us or action != self._arrive:
                break
            to, came_from, more, segment_bytes = argument
            fits = segment_bytes is None and 0 < len(more) <= size and total + len(more) <= COALESCED_BYTES_MAX
            if to != destination or came_from != source or not fits:
                break
            self._schedule.take()
            pieces.append(more)
            total += len(more)
        if len(pieces) == 1:
            return data, None
        return b"".join(pieces), size
