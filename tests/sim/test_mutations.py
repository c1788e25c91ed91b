"""Machines broken on purpose, one rule each: the swarm finds every one of them within a few seeds.

A mutation either replaces a piece inside a machine, or stands between a machine and its driver. The seed that finds
it is run again without it, so that what was found is the mutation and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import pytest

from fairway.core.errors import NoSuchPeer
from fairway.core.events import (
    Address,
    Closed,
    Delivered,
    DeliveryUnknown,
    Event,
    MessageReceived,
    MessagesReceived,
    Peer,
    Receipt,
)
from fairway.core.machine import Buffer, Options, Transmit
from fairway.core.outputs import Ledger
from fairway.core.random_source import RandomSource, Seeded
from fairway.core.serial import Seen
from fairway.protocols import make_machine
from fairway.protocols.mrp import receiver as mrp_receiver
from fairway.protocols.rup.remembered import Remembered
from fairway.protocols.udpc import snapshot as udpc_snapshot
from fairway.protocols.udpc.session import Session
from fairway.sim.configuration import Configuration
from fairway.sim.run import run
from fairway.sim.swarm import draw, run_seed

SEEDS_MAX = 150


class Between:
    """Stands between a machine and its driver and changes nothing; mutations override one method."""

    def __init__(self, protocol: str, options: Options, random: RandomSource) -> None:
        self.protocol = protocol
        self.options = options
        self.machine = make_machine(protocol, self.changed_options(options), random)

    def changed_options(self, options: Options) -> Options:
        return options

    def __getattr__(self, name: str) -> object:
        return getattr(self.machine, name)

    def events(self) -> list[Event]:
        return self.machine.events()

    def transmits(self) -> list[Transmit]:
        return self.machine.transmits()


class AcknowledgesBeforeCommit(Between):
    def changed_options(self, options: Options) -> Options:
        return replace(options, deferred=False)


class NeverRepeats(Between):
    """Sends no datagram a second time."""

    def __init__(self, protocol: str, options: Options, random: RandomSource) -> None:
        super().__init__(protocol, options, random)
        self._sent: dict[tuple[Address, bytes], bool] = {}

    def transmits(self) -> list[Transmit]:
        fresh = []
        for address, data, segment_bytes in super().transmits():
            size = segment_bytes or len(data) or 1
            for start in range(0, len(data), size):
                datagram = bytes(data[start : start + size])
                if (address, datagram) not in self._sent:
                    self._sent[address, datagram] = True
                    fresh.append(Transmit(address, datagram))
        return fresh


class DeliversOutOfOrder(Between):
    def events(self) -> list[Event]:
        flat: list[Event] = []
        for event in super().events():
            flat.extend(event) if isinstance(event, MessagesReceived) else flat.append(event)
        for index in range(len(flat) - 1):
            if isinstance(flat[index], MessageReceived) and isinstance(flat[index + 1], MessageReceived):
                flat[index], flat[index + 1] = flat[index + 1], flat[index]
        return flat


class NamesTheWrongPlace(Between):
    """Gives ids from which the order of sending cannot be restored."""

    def events(self) -> list[Event]:
        return [
            event._replace(id=int(event.id) ^ 1) if isinstance(event, MessageReceived) and event.reliable else event
            for event in super().events()
        ]


class ForgetsTheSnapshot(Between):
    def restore(self, snapshot: bytes, now_us: int) -> Peer:
        forgotten = make_machine(self.protocol, self.options, Seeded(1))
        self._old = snapshot
        return forgotten.restore(snapshot, now_us)

    def snapshot(self, peer: Peer, committing: Sequence[Receipt] = ()) -> bytes:
        try:
            return self.machine.snapshot(peer, committing)
        except NoSuchPeer:
            return self._old


class SnapshotsTooEarly(Between):
    """Leaves out of the snapshot what is stored together with it."""

    def snapshot(self, peer: Peer, committing: Sequence[Receipt] = ()) -> bytes:
        return self.machine.snapshot(peer)


class ReportsTwice(Between):
    def events(self) -> list[Event]:
        events = super().events()
        return events + [event for event in events if isinstance(event, Delivered)]


class NeverGivesUp(Between):
    def events(self) -> list[Event]:
        return [event for event in super().events() if not isinstance(event, DeliveryUnknown)]


class CutsBodies(Between):
    def events(self) -> list[Event]:
        return [
            event._replace(body=event.body[:-1]) if isinstance(event, MessageReceived) else event
            for event in super().events()
        ]


class SwallowsMessages(Between):
    """Acknowledges and does not deliver."""

    def events(self) -> list[Event]:
        return [
            event for event in super().events() if not (isinstance(event, MessageReceived) and event.body[-1:] == b"\7")
        ]


class SpeaksAfterClosed(Between):
    def events(self) -> list[Event]:
        events = super().events()
        return [event for event in events if isinstance(event, Closed)] + [
            event for event in events if not isinstance(event, Closed)
        ]


class WakesAtOnce(Between):
    """Asks to be woken at the time of the last wake."""

    now_us: int | None = None

    def wake(self, now_us: int) -> None:
        self.now_us = now_us
        self.machine.wake(now_us)

    def next_deadline_us(self) -> int | None:
        return self.machine.next_deadline_us() if self.now_us is None else self.now_us


class RemembersEverybody(Between):
    """Keeps something of every address, for ever."""

    def __init__(self, protocol: str, options: Options, random: RandomSource) -> None:
        super().__init__(protocol, options, random)
        self.guests: list[Address] = []

    def receive(self, data: Buffer, address: Address, now_us: int, segment_bytes: int | None = None) -> None:
        self.guests.append(address)
        self.machine.receive(data, address, now_us, segment_bytes)


# Pieces inside the machines.


def _no_dedup(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Seen, "__contains__", lambda self, number: False)


def _evicting_dedup(patch: pytest.MonkeyPatch) -> None:
    add = Remembered.add

    def make_room(
        self: Remembered, address: Address, identity: bytes, total: int, expires_us: int, *, silent: bool = False
    ) -> None:
        oldest_us = self.next_us()
        if len(self) >= 2 and oldest_us is not None:
            self.expire(oldest_us)
        add(self, address, identity, total, expires_us, silent=silent)

    patch.setattr(Remembered, "add", make_room)


def _no_amplification_limit(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Ledger, "allows", lambda self, address, count: True)


def _acknowledges_when_full(patch: pytest.MonkeyPatch) -> None:
    deliver = Session._deliver

    def lenient(self: Session, number: int, body: bytes, important: bool) -> str:
        reason = deliver(self, number, body, important)
        return "" if reason == "receipts_full" else reason

    patch.setattr(Session, "_deliver", lenient)


def _reuses_indices(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(udpc_snapshot, "RESTORED_AFTER", 0)
    patch.setattr(udpc_snapshot, "following", lambda index, count=1: index - 5)


def _sends_index_zero(patch: pytest.MonkeyPatch) -> None:
    def take_index(self: Session, count: int = 1) -> int:
        self.next_index += count
        return self.next_index - count

    patch.setattr(Session, "take_index", take_index)


def _wraps_a_sequence_early(patch: pytest.MonkeyPatch) -> None:
    def early(wire: int, near: int, bits: int) -> int:
        ahead = (wire - near) % 65_535
        return near + ahead if ahead < 32_768 else near + ahead - 65_535

    patch.setattr(mrp_receiver, "widen", early)


Piece = Callable[[pytest.MonkeyPatch], None]
GIVEN_UP = "mild faults lose nothing"
HANDED = "acknowledged means delivered"
MUTATIONS: list[tuple[str, Piece | type[Between], tuple[str, ...]]] = [
    ("udpc", _no_dedup, ("nothing twice",)),
    ("rup", _evicting_dedup, ("nothing twice",)),
    ("udpc", AcknowledgesBeforeCommit, (HANDED,)),
    ("mrp", AcknowledgesBeforeCommit, (HANDED,)),
    ("rup", AcknowledgesBeforeCommit, (HANDED,)),
    ("pydevts", AcknowledgesBeforeCommit, (HANDED,)),
    ("udpc", NeverRepeats, (GIVEN_UP,)),
    ("rup", NeverRepeats, (GIVEN_UP,)),
    ("pydevts", NeverRepeats, (GIVEN_UP,)),
    ("udpc", _sends_index_zero, (GIVEN_UP, "everything has an outcome")),
    ("mrp", _wraps_a_sequence_early, (GIVEN_UP, "order", "messages get through after the heal")),
    ("udpc", _acknowledges_when_full, (HANDED,)),
    ("udpc", _reuses_indices, (HANDED,)),
    ("pydevts", _no_amplification_limit, ("amplification",)),
    ("rup", _no_amplification_limit, ("amplification",)),
    ("mrp", DeliversOutOfOrder, ("order",)),
    ("mrp", NamesTheWrongPlace, ("order",)),
    ("rup", ForgetsTheSnapshot, ("nothing twice",)),
    ("pydevts", ForgetsTheSnapshot, ("nothing twice",)),
    ("pydevts", SnapshotsTooEarly, ("nothing twice",)),
    ("mrp", SnapshotsTooEarly, ("nothing twice",)),
    ("mrp", ReportsTwice, ("outcomes",)),
    ("pydevts", NeverGivesUp, ("everything has an outcome",)),
    ("rup", CutsBodies, ("only what was sent",)),
    ("pydevts", SwallowsMessages, (HANDED,)),
    ("mrp", SpeaksAfterClosed, ("no event after Closed",)),
    ("udpc", WakesAtOnce, ("deadlines move on",)),
    ("mrp", RemembersEverybody, ("bounds of memory",)),
]


def _name(mutation: Piece | type[Between]) -> str:
    return mutation.__name__.strip("_")


def _broken(configuration: Configuration, seed: int, mutation: Piece | type[Between]) -> set[str]:
    """Run a configuration with the mutation and return the names of the rules that were broken."""
    with pytest.MonkeyPatch.context() as patch:
        maker: Callable[[RandomSource], object] | None = None
        if isinstance(mutation, type):
            maker = partial(mutation, configuration.protocol, configuration.options)
        else:
            mutation(patch)
        result = run(configuration, seed, make_machine=maker)  # type: ignore[arg-type]
    return {violation.rule for violation in result.violations}


@pytest.mark.parametrize(
    ("protocol", "mutation", "rules"),
    MUTATIONS,
    ids=[f"{protocol}-{_name(mutation)}" for protocol, mutation, _ in MUTATIONS],
)
def test_the_swarm_finds_a_broken_rule(protocol: str, mutation: Piece | type[Between], rules: tuple[str, ...]) -> None:
    for seed in range(SEEDS_MAX):
        if _broken(draw(protocol, seed), seed, mutation).intersection(rules):
            assert run_seed(protocol, seed).passed, f"seed {seed} fails without the mutation"
            return
    pytest.fail(f"{SEEDS_MAX} seeds did not find it")


def test_standing_between_changes_nothing() -> None:
    for protocol in ("udpc", "mrp", "rup", "pydevts"):
        configuration = draw(protocol, 3)
        between = partial(Between, protocol, configuration.options)
        assert run(configuration, 3, make_machine=between).digest == run(configuration, 3).digest  # type: ignore[arg-type]
