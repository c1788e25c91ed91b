"""One conversation: all that goes on with one address."""

from __future__ import annotations

from fairway.core.events import CloseReason, Peer
from fairway.protocols.rup.confirming import Confirming
from fairway.protocols.rup.context import Context
from fairway.protocols.rup.incoming import Incoming
from fairway.protocols.rup.sender import Sender


class Conversation:
    """What is on its way from and to one address."""

    __slots__ = (
        "answered",
        "closing",
        "confirming",
        "heard_us",
        "incoming",
        "incoming_bytes",
        "is_named",
        "peer",
        "receipts",
        "sender",
        "serial",
    )

    def __init__(self, peer: Peer, context: Context, now_us: int) -> None:
        self.peer = peer
        self.is_named = False
        """Our application named this address: the conversation stays until it is closed."""
        self.answered = False
        """Something valid has come from there."""
        self.closing: CloseReason | None = None
        """Set from `close` on, while outstanding messages are flushed."""
        self.heard_us = now_us
        self.confirming = Confirming(context.options.confirm_every_parts)
        self.incoming: dict[bytes, Incoming] = {}
        self.incoming_bytes = 0
        self.receipts: dict[bytes, int] = {}
        """Messages handed over and not yet committed, with the bytes that each counts for."""
        self.sender = Sender(peer, context)
        self.serial = context.next_serial()

    @property
    def is_busy(self) -> bool:
        """Tells whether something is unfinished."""
        return bool(self.incoming or self.receipts or self.sender.backlog.unfinished)
