"""The layers of an endpoint and the interfaces between them. Calls go down, events come back up.

    Connection, Listener     what an application holds
        │                    ▲ EventHandler   conversations and messages; the gateway plugs in here
    Endpoint                 tokens and their futures, commits, what waits to be sent
        │                    ▲ DriverEvents   what a machine reported
    Driver                   one machine, one clock, one timer
        │                    ▲ LinkEvents     something can be read, ICMP errors, the path's limit
    Link                     datagrams in and out, each with a peer's address, and a deadline

A link is a socket (`fairway.net.link`), or a layer that wraps one, encryption for instance: `send` changes datagrams
and passes them to the link inside, `drain` does the reverse, and `deadline_us` is when it wants to be woken.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from fairway.core import events
from fairway.core.events import Address, Event
from fairway.core.machine import Buffer, Transmit
from fairway.dtls import DtlsCounters
from fairway.net.counters import SocketCounters

Receive = Callable[[Buffer, Address, int | None], None]
"""Takes a datagram, or several with their segment size, and the address it came from. The buffer is used again
afterwards: who keeps anything copies it."""

Screen = Callable[[Buffer, Address, int, int | None], bool]
"""Returns whether the machine may see what arrived: data, address, the time and the segment size."""


class Link(Protocol):
    """Datagrams in and out."""

    counters: SocketCounters
    dtls: DtlsCounters | None
    """What a layer of DTLS has counted; None on a plain socket."""

    @property
    def local(self) -> Address:
        """The address of the socket."""

    @property
    def deadline_us(self) -> int | None:
        """When `wake` is due, on the clock of the loop; None if never. A plain socket has no deadline."""

    def start(self, above: LinkEvents, screen: Screen | None = None) -> None:
        """Begin to read: from now on `above` is told what happens. A layer around a socket drops what `screen` does not
        admit before it answers or keeps anything; a socket leaves that to the layer above. Called once."""

    def drain(self, receive: Receive) -> int:
        """Pass on what has arrived, within bounds, and return the number of receives."""

    def send(self, transmits: list[Transmit]) -> None:
        """Send in order; what the kernel has no room for leaves when it has."""

    def wake(self, now_us: int) -> None:
        """Do what is due; what has to be sent for that is sent by the link itself."""

    def pause(self) -> None:
        """Stop reading, so that the kernel's buffer fills."""

    def resume(self) -> None:
        """Read again."""

    def expect_errors(self, wanted: bool) -> None:
        """Ask for ICMP errors, or no longer."""

    def refresh(self) -> None:
        """Bring the counters up to date that the kernel keeps."""

    def close(self) -> None:
        """Close the socket. Twice is fine."""


class LinkEvents(Protocol):
    """What a link tells the layer above."""

    def readable(self) -> None:
        """Something has arrived: drain."""

    def unreachable(self, address: Address | None, why: int | str) -> None:
        """An ICMP error, by its number, came back for this address (None: the only one that a connected socket knows);
        or a layer above the socket says in words why one end refuses the other, before anything of ours has left."""

    def path_limited(self, datagram_bytes: int, *, fragments: bool) -> None:
        """The path takes no larger datagrams than this in one piece (`fragments`), or at all."""


class DriverEvents(Protocol):
    """What a driver tells the layer above."""

    def report(self, event: Event) -> None:
        """The machine reported an event."""

    def gather(self, now_us: int) -> bool:
        """The turn ends: give the machine what was gathered; return whether it may have something to say to that."""

    def oversized(self) -> None:
        """A message came that the options never admit."""

    def failed(self, error: Exception) -> None:
        """The machine raised: it is not to be trusted with another datagram."""


class EventHandler(Protocol):
    """What an endpoint tells the layer above: the life of conversations, and what arrives on them."""

    @property
    def screen(self) -> Screen | None:
        """Sees every datagram before the machine does; None admits all."""

    @property
    def outer_screen(self) -> Screen | None:
        """Sees every datagram as it came from the network before a layer of encryption does; None admits all."""

    def connected(self, event: events.Connected) -> None: ...

    def moved(self, event: events.PeerMoved) -> None: ...

    def closed(self, event: events.Closed) -> None: ...

    def message(self, event: events.MessageReceived) -> None: ...

    def messages(self, event: events.MessagesReceived) -> None: ...

    def part(self, event: events.PartReceived) -> None: ...

    def request(self, event: events.RequestReceived) -> None: ...

    def ended(self, reason: str) -> None:
        """The endpoint is closed: nothing more will be reported."""
