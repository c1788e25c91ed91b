"""One conversation: all that goes on with one address."""

from __future__ import annotations

from fairway.core import conversations
from fairway.core.events import Peer
from fairway.core.recovery.asking import Pace
from fairway.protocols.rup.context import Context
from fairway.protocols.rup.feedback import AckPolicy
from fairway.protocols.rup.incoming import Incoming
from fairway.protocols.rup.sender import Sender


class Conversation(conversations.Conversation):
    """What is on its way from and to one address."""

    __slots__ = (
        "_context", "_sender", "ack_policy", "answered", "heard_us", "incoming", "incoming_bytes", "is_named", "pace",
        "receipts", "serial",
    )  # fmt: skip

    def __init__(self, peer: Peer, context: Context, now_us: int) -> None:
        super().__init__(peer)
        self.is_named = False
        """Our application named this address: the conversation stays until it is closed."""
        self.answered = False
        """Something valid has come from there."""
        self.heard_us = now_us
        self.ack_policy = AckPolicy(context.options.confirm_every_parts)
        options = context.options
        self.pace = Pace(
            initial_us=options.request_again_us,
            min_us=options.request_again_us_min,
            max_us=options.request_again_us_max,
        )
        self.incoming: dict[bytes, Incoming] = {}
        self.incoming_bytes = 0
        self.receipts: dict[bytes, int] = {}
        """Messages delivered and not yet committed, with the bytes that each counts for."""
        self.serial = context.next_serial()
        self._context = context
        self._sender: Sender | None = None

    @property
    def sender(self) -> Sender:
        """The sending half, made when something is first sent: it is most of what a caller costs, and most of those
        who only call never get a message."""
        if self._sender is None:
            self._sender = Sender(self.peer, self._context)
        return self._sender

    @property
    def is_blocked(self) -> bool:
        """Whether the three-times limit keeps something back."""
        return self._sender is not None and self._sender.is_blocked

    @property
    def has_sent(self) -> bool:
        """Whether there is a sending half."""
        return self._sender is not None

    @property
    def unfinished(self) -> int:
        """How many messages to the peer have no outcome."""
        return 0 if self._sender is None else self._sender.backlog.messages

    @property
    def is_busy(self) -> bool:
        """Whether something is unfinished."""
        return bool(self.incoming or self.receipts or self.unfinished)
