"""How conversations come and go: a bounded table of addresses in which only idle ones make room for new ones."""

from __future__ import annotations

from collections import OrderedDict

from fairway.core import conversations
from fairway.core.events import Address, Closed, CloseReason, Connected, Peer
from fairway.core.pings import Pings
from fairway.protocols.pydevts.options import PydevtsOptions
from fairway.protocols.pydevts.receiver import Receiver
from fairway.protocols.pydevts.sender import Sender
from fairway.protocols.pydevts.wire import HEADER_BYTES


class Conversation(conversations.Conversation):
    """What the machine knows of one address; also after the end, to answer duplicates and to number later messages."""

    __slots__ = (
        "address", "answered", "ended", "first_id", "named", "pings", "receiver", "sender", "used_blocks",
    )  # fmt: skip
    header_bytes = HEADER_BYTES

    def __init__(self, address: Address, deferred: bool) -> None:
        super().__init__(Peer(address))
        self.address = address
        self.receiver = Receiver(deferred)
        self.sender: Sender | None = None
        """Made when the first message is sent: most callers of a server are never written to."""
        self.first_id: int | None = None
        """Where own ids go on after a restart."""
        self.used_blocks: dict[int, int] = {}
        """Blocks of own ids used before a restart, and when: they rest before they are used again."""
        self.ended = False
        self.answered = False
        """Something well-formed has come from there."""
        self.pings: Pings | None = None
        """Marked by the key of an ack that belongs to nothing; every peer answers it with a close."""
        self.named = False
        """Whether our application named the address, which proves it."""

    @property
    def unfinished(self) -> int:
        """Messages of ours without an outcome."""
        return 0 if self.sender is None else self.sender.backlog.messages

    @property
    def idle(self) -> bool:
        """Whether nothing would be delivered twice, and nothing lost, if this were gone."""
        if self.named and not self.ended:
            return False
        return not (
            self.receiver.known or self.receiver.receipts or self.unfinished or (self.pings and self.pings.waiting)
        )


class ConversationMachine(conversations.ConnectionlessMachine[Conversation]):
    """All conversations of a machine, also those that are over, as long as something of them is remembered."""

    def __init__(self, options: PydevtsOptions) -> None:
        super().__init__(options)
        self._options = options
        self._outbox = self._outputs.outbox
        self._conversations: dict[Address, Conversation] = self._table
        self._now_us = 0
        self._idle: OrderedDict[Address, int] = OrderedDict()
        """Those that may make room for new ones, the longest idle first, with the time at which they are forgotten
        without that; 0 before the machine has told the time. Not a plain dict: finding its first entry costs more with
        each one deleted before it."""
        self._reached: OrderedDict[Address, int] = OrderedDict()
        """How far the numbers of forgotten addresses had come, the longest forgotten first: a number must not come
        twice. The longest forgotten goes when there are as many as `peers_max`."""

    def _at(self, address: Address) -> Conversation | None:
        conversation = self._conversations.get(address)
        return None if conversation is None or conversation.ended else conversation

    def _has_room(self) -> bool:
        return len(self._conversations) < self._peers_max or bool(self._idle)

    def _called(self, address: Address, token: int | None) -> Conversation:
        """Return the open conversation with an address and report `Connected` if it was not open, or for a token."""
        conversation = self._conversations.get(address)
        if conversation is None:
            conversation = self._add(address)
        elif conversation.ended:
            self.statistics.conversations_opened += 1
        elif token is None:
            return conversation
        conversation.closing, conversation.ended = None, False
        conversation.answered = conversation.answered or token is None
        self._outputs.report(Connected(conversation.peer, token))
        return conversation

    def _add(self, address: Address) -> Conversation:
        """Make a conversation; the longest idle one makes room."""
        if len(self._conversations) >= self._peers_max and self._idle:
            self._evict(next(iter(self._idle)))
        conversation = self._conversations[address] = Conversation(address, self._options.deferred)
        conversation.receiver.widener.highest = self._reached.pop(address, -1)
        self.statistics.conversations_opened += 1
        return conversation

    def _evict(self, address: Address) -> None:
        """Forget an idle conversation, but for how far its numbers had come."""
        del self._idle[address]
        self._outbox.disown(address)
        conversation = self._conversations.pop(address)
        if conversation.receiver.widener.highest >= 0:
            self._reached[address] = conversation.receiver.widener.highest
            if len(self._reached) > self._peers_max:
                self._reached.popitem(last=False)
        if conversation.closing is None:
            self.statistics.conversations_closed += 1
            self._outputs.report(Closed(conversation.peer, CloseReason.FORGOTTEN))

    def _name(self, address: Address, token: int, now_us: int) -> None:
        self._now_us = now_us
        self._prove(self._called(address, token))

    def _prove(self, conversation: Conversation) -> None:
        """Note that our application named the address: it counts as proved as long as the conversation lasts."""
        conversation.named = True
        self._outbox.prove(conversation.address)
        self._note(conversation)

    def busy(self, conversation: Conversation) -> None:
        if self._idle:
            self._idle.pop(conversation.address, None)

    def _note(self, conversation: Conversation) -> None:
        if conversation.idle:
            self._idle.setdefault(conversation.address, 0)
        else:
            self._idle.pop(conversation.address, None)

    # Time.

    def _next_idle_us(self, now_us: int) -> int | None:
        """Return when the next idle conversation is forgotten: when it was idle for as long as an id rests, so that
        neither side's memory of keys can still be asked for. Those that became idle just now are given their time."""
        if not self._idle:
            return None
        idle = self._idle
        for address in reversed(idle):
            if idle[address]:
                break
            idle[address] = now_us + self._options.reuse_after_us
        return next(iter(idle.values()))

    def _wake_idle(self, now_us: int) -> None:
        """Forget what has been idle for long enough."""
        while (due_us := self._next_idle_us(now_us)) is not None and due_us <= now_us:
            self._evict(next(iter(self._idle)))

    def peers(self) -> list[Peer]:
        """List those that ever sent a message."""
        return [one.peer for one in self._conversations.values() if one.receiver.widener.highest >= 0]
