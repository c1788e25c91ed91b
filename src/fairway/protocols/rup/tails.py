"""Last parts that were overtaken: the receiver asks for what is missing before a later part, but a last part has none.

The receiver confirms a whole message at once, so a message whose last part left before those of three messages that
have since been delivered has probably lost it. It is repeated then, about a round trip after it left, and not after a
time-out. With one part a message, as small messages are, this is the only repair by name.
"""

from __future__ import annotations

from fairway.core.flight import OVERTAKEN_BY
from fairway.protocols.rup.outgoing import Outgoing


class Tails:
    """Last parts in the order in which they left."""

    __slots__ = ("_order", "_top", "_waiting")

    def __init__(self) -> None:
        self._order = 0
        self._waiting: dict[Outgoing, tuple[int, int]] = {}
        """Orders of the latest and of the first transmission; in the order of the latest."""
        self._top = [-1] * OVERTAKEN_BY
        """The highest orders that were delivered, ascending."""

    def left(self, message: Outgoing) -> None:
        """Takes note that the last part of a message leaves."""
        _, first = self._waiting.pop(message, (0, self._order))
        self._waiting[message] = (self._order, first)
        self._order += 1

    def ended(self, message: Outgoing, *, delivered: bool) -> None:
        """Takes note that a message has its outcome; which transmission was confirmed is unknown, so the first."""
        orders = self._waiting.pop(message, None)
        if delivered and orders is not None and orders[1] > self._top[0]:
            self._top[0] = orders[1]
            self._top.sort()

    def overtaken(self) -> list[Outgoing]:
        """Lists the messages whose last part was overtaken and is all that they miss, oldest first."""
        found: list[Outgoing] = []
        for message, (latest, _) in self._waiting.items():
            if latest >= self._top[0]:
                break
            if message.confirmed == message.part_count - 1:
                found.append(message)
        return found
