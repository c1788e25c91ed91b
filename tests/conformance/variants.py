"""What each protocol promises, in one table, and the cases that a scenario runs over.

Datagrams are told apart here by their bytes as the standard gives them, not with the package's own decoders: a decoder
that is wrong in the same way as its machine must not hide the mistake.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

import pytest

from fairway.core.events import Peer
from fairway.core.machine import Machine
from fairway.core.random_source import Seeded
from fairway.protocols import make_machine, make_options

from .pair import Datagram, Node, Predicate, Pump
from .secured import DATAGRAM_BYTES_MAX, inside, secured

CLIENT = ("client", 1)
SERVER = ("server", 9)
SECOND = 1_000_000

UDPC_ACK, UDPC_REQ, UDPC_ASY, UDPC_SYN, UDPC_IMP, UDPC_FIN = 0x01, 0x02, 0x04, 0x08, 0x10, 0x20


def _udpc_kind(data: bytes) -> str:
    flag = data[12]
    if flag in (0, UDPC_IMP, UDPC_REQ, UDPC_REQ | UDPC_ASY):
        return "data"
    if flag == UDPC_IMP | UDPC_ACK:
        return "ack"
    return {UDPC_SYN: "opening", UDPC_SYN | UDPC_ACK: "accepting"}.get(flag, "other")


def _stamped_kind(data: bytes) -> str:
    return {1: "opening", 2: "accepting", 3: "data", 4: "ack"}.get(data[3], "other")


def _piggyback_kind(data: bytes) -> str:
    if data[3] == 3:
        return "data" if len(data) > 12 else "ack"
    return {1: "opening", 2: "accepting"}.get(data[3], "other")


def _rup_kind(data: bytes) -> str:
    return {0x64: "data", 0x63: "ack"}.get(data[0], "other")


def _pydevts_kind(data: bytes) -> str:
    return {0: "data", 1: "ack"}.get(data[0], "other")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Variant:
    """One protocol in one of its forms, and what it promises."""

    name: str
    protocol: str
    kind: Callable[[bytes], str]
    """Tells `opening`, `accepting`, `data`, `ack` and `other` datagrams apart."""
    options: dict[str, object] = field(default_factory=dict)
    handshake: bool
    ordered: bool
    carries_empty: bool = True
    header_bytes: int
    body_bytes_max: int | None
    """The largest body; None where only the configured maximum bounds it."""
    repairs: bool
    """A packet that later ones overtook is repeated at once."""
    windowed: bool
    near_the_end: dict[str, object] | None = None
    """Options that start every counter just before its end; None where nothing counts."""
    session_dies_us: int | None = None
    """When a conversation whose peer fell silent while data was out is closed, with some room."""


UDPC = Variant(
    name="udpc",
    protocol="udpc",
    kind=_udpc_kind,
    handshake=True,
    ordered=False,
    header_bytes=13,
    body_bytes_max=65_494,
    repairs=True,
    windowed=True,
    near_the_end={"first_index": 2**32 - 40},
    session_dies_us=12 * SECOND,
)
MRP_STAMPED = Variant(
    name="mrp-stamped",
    protocol="mrp",
    kind=_stamped_kind,
    options={"layout": "stamped"},
    handshake=True,
    ordered=True,
    header_bytes=14,
    body_bytes_max=65_493,
    repairs=True,
    windowed=True,
    near_the_end={"first_sequence": 65_500},
    session_dies_us=34 * SECOND,
)
MRP_PIGGYBACK = replace(
    MRP_STAMPED,
    name="mrp-piggyback",
    kind=_piggyback_kind,
    options={"layout": "piggyback"},
    carries_empty=False,
    header_bytes=12,
    body_bytes_max=65_495,
)
RUP = Variant(
    name="rup",
    protocol="rup",
    kind=_rup_kind,
    handshake=False,
    ordered=False,
    header_bytes=42,
    body_bytes_max=None,
    repairs=True,
    windowed=True,
)
PYDEVTS = Variant(
    name="pydevts",
    protocol="pydevts",
    kind=_pydevts_kind,
    handshake=False,
    ordered=False,
    header_bytes=8,
    body_bytes_max=65_499,
    repairs=False,
    windowed=False,
    near_the_end={"first_id": 65_516},
)
VARIANTS = (UDPC, MRP_STAMPED, MRP_PIGGYBACK, RUP, PYDEVTS)


@dataclass(slots=True)
class Pair:
    """A client and a server in a pump, with the conversation open."""

    pump: Pump
    client: Node
    server: Node
    peer: Peer

    def send_all(self, bodies: Iterable[bytes]) -> list[int]:
        """Queue messages from the client one by one."""
        return [self.pump.send(self.client, self.peer, body) for body in bodies]

    def deliver(self, bodies: Iterable[bytes]) -> None:
        """Queue messages from the client one by one, and wait until all are delivered."""
        self.pump.delivers(self.client, self.send_all(bodies))

    def caller(self) -> Peer:
        """The client as the server knows it, once it has received something."""
        return self.server.received[0].peer


@dataclass(frozen=True, slots=True)
class Case:
    """A variant with the switches that a scenario turns."""

    variant: Variant
    deferred: bool = False
    controller: str = "newreno"
    batched: bool = False
    dtls: bool = False

    def __str__(self) -> str:
        words = [self.variant.name, "deferred" if self.deferred else "", "eager" if self.controller == "eager" else ""]
        words += ["batched" if self.batched else "", "dtls" if self.dtls else ""]
        return "-".join(word for word in words if word)

    def machine(self, seed: int = 1, **overrides: object) -> Machine:
        """Make a machine of this case; overrides are options."""
        chosen: dict[str, object] = {"deferred": self.deferred, "controller": self.controller}
        if self.dtls:
            chosen["datagram_bytes_max"] = DATAGRAM_BYTES_MAX
        options = make_options(self.variant.protocol, **{**chosen, **self.variant.options, **overrides})
        return make_machine(self.variant.protocol, options, Seeded(seed))

    def pump(self, delay_us: int = 20_000, start_us: int = SECOND) -> Pump:
        """Make an empty pump."""
        return Pump(delay_us=delay_us, batched=self.batched, start_us=start_us)

    def pair(
        self,
        *,
        client: dict[str, object] | None = None,
        server: dict[str, object] | None = None,
        commits: bool = True,
        delay_us: int = 20_000,
        start_us: int = SECOND,
    ) -> Pair:
        """Make a pump with a client that has an open conversation with a server."""
        pump = self.pump(delay_us, start_us)
        called, caller = self.machine(2, **(server or {})), self.machine(1, **(client or {}))
        if self.dtls:
            called, caller = secured(called, pump, None), secured(caller, pump, SERVER)
        there = pump.add(called, SERVER, commits=commits)
        here = pump.add(caller, CLIENT)
        peer = pump.connected(here, SERVER)
        pump.run(2 * delay_us)
        return Pair(pump, here, there, peer)

    def of_kind(self, kind: str, source: object = None) -> Predicate:
        """Return a predicate for datagrams of a kind, from one address or from any."""
        tell = self.variant.kind

        def matches(datagram: Datagram) -> bool:
            data = inside(datagram.data) if self.dtls else datagram.data
            return (source is None or datagram.source == source) and tell(data) == kind

        return matches

    def first_datagram(self, body: bytes = b"hello", seed: int = 1) -> bytes:
        """Return what a caller that nobody knows sends first."""
        pump = self.pump()
        client = pump.add(self.machine(seed), CLIENT)
        pump.connect(client, SERVER)
        if not self.variant.handshake:
            event = client.outcomes[next(iter(client.outcomes))]
            pump.send(client, event.peer, body)  # type: ignore[union-attr]
        return pump.log[0].data


def over(
    *variants: Variant,
    deferred: Iterable[bool] = (False,),
    controllers: Iterable[str] = ("newreno",),
    batched: Iterable[bool] = (False,),
    where: Callable[[Variant], bool] = lambda _: True,
    dtls: Iterable[bool] = (False,),
) -> pytest.MarkDecorator:
    """Run a scenario over variants (all that qualify, unless named) and over every combination of the switches."""
    cases = [
        Case(variant, late, controller, joined, secure)
        for variant in variants or VARIANTS
        if where(variant)
        for late in deferred
        for controller in controllers
        for joined in batched
        for secure in dtls
    ]
    return pytest.mark.parametrize("case", cases, ids=str)


BOTH = (False, True)
"""Without and with a switch. Scenarios that bring datagrams of their own, or count them, are about a machine without a
layer of DTLS below it."""


def numbered(count: int, size: int = 12, tag: str = "m") -> list[bytes]:
    """Make different bodies of one size."""
    return [f"{tag}{number:07d}".encode().ljust(size, b".")[: max(size, 8)] for number in range(count)]
