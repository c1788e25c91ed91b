"""The sending half of a machine: whose turn it is to send, and which sender an ack is for."""

from __future__ import annotations

from collections.abc import Sequence

from fairway.core.events import Address
from fairway.core.outputs import Outputs
from fairway.core.random_source import RandomSource
from fairway.core.recovery.runs import NEVER
from fairway.core.timers import Deadlines
from fairway.protocols.pydevts import wire
from fairway.protocols.pydevts.conversations import Conversation, Conversations
from fairway.protocols.pydevts.identifiers import IDS, Identifiers, RecentUses
from fairway.protocols.pydevts.options import PydevtsOptions
from fairway.protocols.pydevts.sender import Sender
from fairway.protocols.pydevts.wire import CLOSE, FAILED, KEY_MASK


class Outbound:
    """What leaves for all peers."""

    __slots__ = (
        "_conversations",
        "_due",
        "_options",
        "_outbox",
        "_outputs",
        "_random_source",
        "_recent",
        "_senders",
    )  # fmt: skip

    def __init__(
        self,
        options: PydevtsOptions,
        conversations: Conversations,
        outputs: Outputs[Conversation],
        random_source: RandomSource,
    ) -> None:
        self._options = options
        self._conversations = conversations
        self._outputs = outputs
        self._outbox = outputs.outbox
        self._random_source = random_source
        self._recent = RecentUses(options.reuse_after_us, options.recent_uses_max)
        self._senders = 0
        self._due: Deadlines[Address] = Deadlines()

    # The queue.

    def sender(self, conversation: Conversation) -> Sender:
        """Return the sending side towards a peer, made when it is first needed."""
        if conversation.sender is None:
            first = conversation.first_id if conversation.first_id is not None else self._options.first_id
            if first is None:
                first = self._random_source.below(IDS)
            self._senders += 1
            identifiers = Identifiers(first, self._recent, self._senders, self._options.reuse_after_us)
            identifiers.rest(conversation.used_blocks)
            conversation.sender = Sender(conversation.peer, self._options, identifiers, self._outputs)
        return conversation.sender

    def queue(
        self, conversation: Conversation, bodies: Sequence[bytes], token: int, now_us: int, *, equal: bool
    ) -> None:
        """Queue messages that there is room for."""
        self.sender(conversation).queue(bodies, token, equal=equal)
        self._outputs.ready[conversation] = now_us
        self._conversations.busy(conversation)

    def flush(self) -> None:
        """Send what may leave."""
        for conversation, now_us in self._outputs.take_ready().items():
            if conversation.sender is not None and self._conversations.get(conversation.address) is conversation:
                due_us = conversation.sender.flush(now_us)
                self._due.set(conversation.address, None if due_us == NEVER else due_us)

    # Acks.

    def ack(self, header: int, address: Address, conversation: Conversation | None, now_us: int) -> None:
        """Take one ack."""
        key = header & KEY_MASK
        sender = None if conversation is None else conversation.sender
        number = None if sender is None else sender.find(key)
        if conversation is None or sender is None or number is None:
            self._outbox.answer(address, wire.datagram(CLOSE | key), wire.HEADER_BYTES)
        elif header & FAILED:
            sender.damaged(number, now_us)
        else:
            sender.acknowledge(number, now_us)
            self._resume(conversation, now_us)

    def ack_run(self, keys: tuple[int, ...], conversation: Conversation, now_us: int) -> bool:
        """Take good acks if all belong to open messages; change nothing otherwise."""
        taken = conversation.sender is not None and conversation.sender.acknowledge_run(keys, now_us)
        if taken:
            self._resume(conversation, now_us)
        return taken

    def _resume(self, conversation: Conversation, now_us: int) -> None:
        """Do what follows every outcome: have more sent, or let the conversation be idle."""
        if conversation.unfinished:
            self._outputs.ready[conversation] = now_us
        else:
            self._conversations.note(conversation)

    def end(self, conversation: Conversation, reason: str, now_us: int) -> None:
        """Give every message to a peer its outcome."""
        if conversation.sender is not None:
            conversation.sender.end(reason)
            self._resume(conversation, now_us)

    # Time.

    def next_due_us(self) -> int | None:
        """Return when a packet is due again or pacing lets one leave."""
        return self._due.next_us()

    def wake(self, now_us: int) -> None:
        """Give up what was transmitted often enough, and have retransmissions and paced packets sent."""
        for address in self._due.pop_due(now_us):
            conversation = self._conversations.get(address)
            if conversation is not None and conversation.sender is not None:
                if conversation.sender.wake(now_us, answered=conversation.answered):
                    self._resume(conversation, now_us)
                self._outputs.ready[conversation] = now_us
