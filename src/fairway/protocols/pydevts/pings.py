"""Questions for a sign of life: an ack that belongs to nothing, which every peer answers with a close."""

from __future__ import annotations

from typing import NamedTuple

from fairway.core.chance import Chance
from fairway.core.events import NO_ANSWER, Address, DeliveryUnknown, PingAnswered
from fairway.core.outputs import Outputs
from fairway.protocols.pydevts import wire
from fairway.protocols.pydevts.conversation import Conversation
from fairway.protocols.pydevts.identifiers import IDS
from fairway.protocols.pydevts.options import PydevtsOptions


class Ping(NamedTuple):
    """One question."""

    conversation: Conversation
    token: int
    sent_us: int


class Pings:
    """Questions that wait for their answer, the oldest first."""

    __slots__ = ("_chance", "_options", "_outputs", "_waiting")

    def __init__(self, options: PydevtsOptions, outputs: Outputs[Conversation], chance: Chance) -> None:
        self._options = options
        self._outputs = outputs
        self._chance = chance
        self._waiting: dict[tuple[Address, int], Ping] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def start(self, conversation: Conversation, token: int, now_us: int) -> int:
        """Gives the key of a new question. Its crc is not 0, which would speak for every message with its id."""
        key = wire.key(self._chance.below(IDS), 1 + self._chance.below(wire.CRC_MASK))
        while (conversation.address, key) in self._waiting:
            key = wire.key((key >> 32) + 1 & 0xFFFF, key & wire.CRC_MASK)
        self._waiting[conversation.address, key] = Ping(conversation, token, now_us)
        conversation.pings += 1
        self._outputs.unfinished += 1
        return key

    def answered(self, address: Address, key: int, now_us: int) -> bool:
        """Takes a close; tells whether it answers a question."""
        ping = self._waiting.pop((address, key), None) if self._waiting else None
        if ping is None:
            return False
        ping.conversation.pings -= 1
        self._outputs.unfinished -= 1
        self._outputs.report(PingAnswered(ping.conversation.peer, ping.token, max(1, now_us - ping.sent_us)))
        return True

    def end(self, conversation: Conversation, reason: str) -> None:
        """Give up the questions to a peer."""
        for key in [key for key, ping in self._waiting.items() if ping.conversation is conversation]:
            self._give_up(key, reason)

    def next_due_us(self) -> int | None:
        """Tells when the oldest question is given up."""
        if not self._waiting:
            return None
        return next(iter(self._waiting.values())).sent_us + self._options.ping_timeout_us

    def wake(self, now_us: int) -> None:
        """Gives up questions whose time is over."""
        while (due_us := self.next_due_us()) is not None and due_us <= now_us:
            self._give_up(next(iter(self._waiting)), NO_ANSWER)

    def _give_up(self, key: tuple[Address, int], reason: str) -> None:
        ping = self._waiting.pop(key)
        ping.conversation.pings -= 1
        self._outputs.unfinished -= 1
        self._outputs.report(DeliveryUnknown(ping.conversation.peer, (ping.token,), reason))
