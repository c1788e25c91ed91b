"""What unfinished messages hold, and which of them may grow when that is at its bound.

Messages that fit one by one may not fit together. If at the bound all of them stopped, none would ever be complete; so
the oldest goes on, above the bound, and when it is complete or forgotten it leaves what it held to the others. At the
bound of one peer that is the oldest of this peer, at the bound of all the oldest of all. The oldest of all is also the
oldest of its peer: there is always one that nothing stops, and what exceeds a bound belongs to one message.
"""

from __future__ import annotations

from collections import OrderedDict

from fairway.protocols.rup.conversation import Conversation
from fairway.protocols.rup.incoming import Incoming
from fairway.protocols.rup.options import RupOptions


class Memory:
    """Bytes of unfinished messages, per peer and in all. Spooled messages keep nothing but a last part, for a while."""

    __slots__ = ("_all", "_of_peer", "_options", "held_bytes", "reserved_bytes")

    def __init__(self, options: RupOptions) -> None:
        self._options = options
        self._all: OrderedDict[Incoming, None] = OrderedDict()
        self._of_peer: dict[Conversation, dict[Incoming, None]] = {}
        """Messages that are kept, the oldest first."""
        self.held_bytes = 0
        self.reserved_bytes = 0
        """What the final places of unfinished messages take: address space, of which they use what was received."""

    def admits(self, conversation: Conversation | None, more: int) -> bool:
        """Return whether a message may begin with so many bytes."""
        own = 0 if conversation is None else conversation.incoming_bytes
        return (
            self.held_bytes + more <= self._options.incoming_bytes_max
            and own + more <= self._options.incoming_bytes_per_peer_max
        )

    def lets_grow(self, message: Incoming, more: int) -> bool:
        """Return whether a message that was begun may take so many more bytes."""
        conversation = message.conversation
        if self.held_bytes + more > self._options.incoming_bytes_max and next(iter(self._all)) is not message:
            return False
        return (
            conversation.incoming_bytes + more <= self._options.incoming_bytes_per_peer_max
            or next(iter(self._of_peer[conversation])) is message
        )

    def begin(self, message: Incoming) -> None:
        """Add a message that is younger than all others."""
        if not message.spooled:
            self._all[message] = None
            self._of_peer.setdefault(message.conversation, {})[message] = None

    def count(self, message: Incoming, held_before: int) -> None:
        """Count a change of what a message holds."""
        more = message.held_bytes - held_before
        message.conversation.incoming_bytes += more
        self.held_bytes += more

    def place(self, message: Incoming) -> None:
        """Give a message its final place, if all such places together are within their bound."""
        if not message.reserved_bytes and self.reserved_bytes + message.total <= self._options.incoming_bytes_max:
            message.assemble()
            self.reserved_bytes += message.reserved_bytes

    def end(self, message: Incoming) -> None:
        """Remove a message that is complete or forgotten."""
        conversation = message.conversation
        conversation.incoming_bytes -= message.held_bytes
        self.held_bytes -= message.held_bytes
        self.reserved_bytes -= message.reserved_bytes
        if not message.spooled:
            del self._all[message]
            del self._of_peer[conversation][message]
            if not self._of_peer[conversation]:
                del self._of_peer[conversation]
