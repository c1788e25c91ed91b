"""What every machine says to the same mistake of its caller: the errors and their words."""

from __future__ import annotations

from fairway.core.errors import AlreadyOpen, BadMessage, CannotConnect, NoSuchPeer, NotSupported, QueueFull
from fairway.core.events import Address, Peer


def no_such_peer(protocol: str, peer: Peer) -> NoSuchPeer:
    session = "" if peer.session is None else f", session {peer.session}"
    return NoSuchPeer(f"{protocol} has no open conversation with {peer.address!r}{session}")


def endpoint_closed() -> CannotConnect:
    return CannotConnect("this endpoint was closed: it opens no new conversations")


def too_many_peers(peers_max: int) -> CannotConnect:
    return CannotConnect(f"peers_max is {peers_max} and so many conversations are open or being opened")


def still_closing(address: Address) -> CannotConnect:
    return CannotConnect(f"the conversation with {address!r} is still closing")


def already_open(address: Address) -> AlreadyOpen:
    return AlreadyOpen(f"the conversation with {address!r} is open already: restore before anything arrives")


def send_queue_full(address: Address) -> QueueFull:
    return QueueFull(f"the send queue of {address!r} is full: wait for Writable")


def too_many_pings(pings_max: int, address: Address) -> QueueFull:
    return QueueFull(f"pings_max is {pings_max} and so many pings to {address!r} wait for their answer")


def too_large(protocol: str, size: int, limit: int, whose: str = "") -> BadMessage:
    """Return the error for a message that is larger than a limit; `whose` goes on with where the limit comes from."""
    return BadMessage(f"a message of {size} bytes is too large: {protocol} carries at most {limit}{whose}")


TOO_LARGE_FOR_PATH = ", which is what the path takes; send less at a time, or use rup, which cuts its messages"
"""How `too_large` goes on when the limit is the path's and not the protocol's."""


def no_flags(protocol: str) -> NotSupported:
    return NotSupported(f"{protocol} messages carry neither flags nor answers; those belong to udpc")
