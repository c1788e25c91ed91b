"""One peer of a machine: both directions, and whether the conversation is open."""

from __future__ import annotations

from enum import Enum

from fairway.core.events import Address, CloseReason, Peer
from fairway.core.pings import Pings
from fairway.protocols.pydevts.receiver import Receiver
from fairway.protocols.pydevts.sender import Sender


class Phase(Enum):
    """What a conversation does with new messages: takes them, or flushes its own, or is opened by them again."""

    OPEN = "open"
    CLOSING = "closing"
    CLOSED = "closed"


class Conversation:
    """What the machine knows of one address. It stays after the end, to answer copies and to number later messages."""

    __slots__ = (
        "address", "answered", "close_reason", "first_id", "named", "peer", "phase", "pings", "receiver", "sender",
        "used_blocks",
    )  # fmt: skip

    def __init__(self, address: Address, deferred: bool) -> None:
        self.address = address
        self.peer = Peer(address)
        self.receiver = Receiver(deferred)
        self.sender: Sender | None = None
        """Made when the first message is sent: most callers of a server are never written to."""
        self.first_id: int | None = None
        """Where own ids go on after a restart."""
        self.used_blocks: dict[int, int] = {}
        """Blocks of own ids used before a restart, and when: they rest before they are used again."""
        self.phase = Phase.OPEN
        self.answered = False
        """Something well-formed has come from there."""
        self.pings: Pings | None = None
        """Marked by the key of an ack that belongs to nothing; every peer answers it with a close."""
        self.named = False
        """Whether our application named the address, which proves it."""
        self.close_reason = CloseReason.LOCAL

    @property
    def unfinished(self) -> int:
        """Messages of ours without an outcome."""
        return 0 if self.sender is None else self.sender.backlog.messages

    @property
    def idle(self) -> bool:
        """Whether nothing would be delivered twice, and nothing lost, if this were gone."""
        if self.named and self.phase is not Phase.CLOSED:
            return False
        return not (
            self.receiver.known or self.receiver.places or self.unfinished or (self.pings and self.pings.waiting)
        )
