"""What we send to one peer: messages that wait to leave, and open ones that wait for their ack.

The shared recovery knows packets by wide numbers, an ack names an id and a crc; two tables lead from one to the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from zlib import crc32

from fairway.core.events import NO_ACKNOWLEDGEMENT
from fairway.core.machine import Buffer
from fairway.core.outputs import Outputs
from fairway.core.recovery.congestion import make_controller
from fairway.core.recovery.queue import Backlog, SendQueue
from fairway.core.recovery.recovery import Kind, Recovery
from fairway.core.recovery.runs import Run, Stream
from fairway.core.recovery.timing import Fixed
from fairway.protocols.pydevts import wire
from fairway.protocols.pydevts.identifiers import IDS, Identifiers
from fairway.protocols.pydevts.options import PydevtsOptions
from fairway.protocols.pydevts.wire import HEADER_BYTES

if TYPE_CHECKING:
    from fairway.protocols.pydevts.conversations import Conversation, ConversationMachine

NO_ID_RETRY_US = 1_000_000
"""How long a message waits before it looks again for a free id: looking through all of them costs milliseconds."""


class Sender:
    """The sending side towards one peer."""

    __slots__ = (
        "_blocked_until_us", "_conversation", "_keys", "_machine", "_numbers", "_outbox", "_outputs", "_packets",
        "_recovery", "_statistics", "_waiting", "_window", "backlog", "identifiers",
    )  # fmt: skip

    def __init__(
        self,
        machine: ConversationMachine,
        conversation: Conversation,
        options: PydevtsOptions,
        identifiers: Identifiers,
        outputs: Outputs[Conversation],
    ) -> None:
        self._machine = machine
        self._conversation = conversation
        self._outputs = outputs
        self._window = options.window
        self._outbox = outputs.outbox
        self._statistics = outputs.statistics
        self.identifiers = identifiers
        self.backlog = Backlog(options, outputs, conversation.peer)
        self._waiting = SendQueue()
        kind = Kind(by_name=False, transmissions_max=1 + options.packet_repeats_max)
        controller = make_controller(options.controller, options.window)
        self._recovery = Recovery(kind, Fixed(options.repeat_after_us), controller, outputs.statistics)
        self._packets = Stream()
        self._numbers: dict[int, int] = {}
        """The number of each open key."""
        self._keys: dict[int, int] = {}
        """The key of each open id."""
        self._blocked_until_us = 0
        """When to look again for a free id."""

    # What leaves.

    def queue(self, bodies: Sequence[Buffer], token: int, now_us: int, *, equal: bool) -> None:
        self.backlog.add(len(bodies), sum(map(len, bodies)))
        self._waiting.add(bodies, token, equal=equal)
        self._outputs.ready[self._conversation] = now_us
        self._machine.busy(self._conversation)

    def flush(self, now_us: int) -> int:
        """Send what may leave now, retransmissions first; return when there is something to do again."""
        recovery, queue = self._recovery, self._waiting
        while (run := recovery.next_retransmission(now_us)) is not None:
            self._transmit(run.datagrams(), run.segment_bytes, run.count)
        while queue.messages and now_us >= self._blocked_until_us:
            room = min(queue.messages, self._window - recovery.left)
            room = min(room, recovery.room(now_us)) if room > 0 else 0
            if room <= 0:
                break
            token, bodies = queue.take(room)
            self._launch(token, bodies, now_us)
        due_us = recovery.next_us()
        if queue.messages and recovery.left < self._window:
            blocked_us = self._blocked_until_us
            due_us = min(due_us, blocked_us if now_us < blocked_us else recovery.next_room_us(now_us))
        return due_us

    def _launch(self, token: int, bodies: Sequence[bytes], now_us: int) -> None:
        """Send messages of one size for the first time, as far as ids are free."""
        segment_bytes, done = HEADER_BYTES + len(bodies[0]), 0
        for number, keys in self.identifiers.take(list(map(crc32, bodies)), self._keys, now_us):
            count = len(keys)
            data = wire.packets(keys, bodies[done : done + count])
            self._recovery.sent(self._packets, number, count, now_us, data, segment_bytes, token + done)
            if count == 1:
                self._numbers[keys[0]] = number
                self._keys[keys[0] >> 32] = keys[0]
            else:
                self._numbers.update(zip(keys, range(number, number + count), strict=True))
                self._keys.update(zip([key >> 32 for key in keys], keys, strict=True))
            self._transmit(data, segment_bytes, count)
            done += count
        self._statistics.messages_sent += done
        if done < len(bodies):
            self._blocked_until_us = now_us + NO_ID_RETRY_US
            self._waiting.put_back(bodies[done:], token + done)

    def _transmit(self, data: Buffer, segment_bytes: int, count: int = 1) -> None:
        self._outbox.answer(self._conversation.address, data, segment_bytes, count)

    # What comes back.

    def find(self, key: int) -> int | None:
        """Return the number of the open message that an ack with this key speaks of."""
        number = self._numbers.get(key)
        if number is None and not key & wire.CRC_MASK:
            number = self._numbers.get(self._keys.get(key >> 32, -1))
        return number

    def acknowledge(self, number: int, now_us: int) -> None:
        """Answer the ack of an open message by a close and end the message as delivered."""
        key = self._keys[number % IDS]
        self._transmit(wire.datagram(wire.CLOSE | key), HEADER_BYTES)
        run = self._recovery.acknowledge_one(self._packets, number, now_us)
        if run is not None:
            self._delivered((key,), run.tokens, run.segment_bytes - HEADER_BYTES)
        else:
            self._take_off((key,), number, now_us)

    def acknowledge_run(self, keys: Sequence[int], now_us: int) -> bool:
        """Do the same for many acks if each names another open message; change nothing otherwise and return False."""
        found = [self._numbers.get(key) for key in keys]
        numbers = [number for number in found if number is not None]
        if not len(numbers) == len(keys) == len(set(keys)):
            return False
        self._transmit(wire.controls(keys, wire.TYPE_CLOSE), HEADER_BYTES, len(keys))
        if numbers == list(range(numbers[0], numbers[0] + len(keys))):
            self._take_off(keys, numbers[0], now_us)
        else:
            for key, number in zip(keys, numbers, strict=True):
                self._take_off((key,), number, now_us)
        return True

    def _take_off(self, keys: Sequence[int], first: int, now_us: int) -> None:
        """End open messages with consecutive numbers as delivered."""
        pieces = self._recovery.acknowledge(self._packets, first, len(keys), now_us)
        tokens = pieces[0].tokens if len(pieces) == 1 else [token for piece in pieces for token in piece.tokens]
        self._delivered(keys, tokens, sum(piece.count * (piece.run.segment_bytes - HEADER_BYTES) for piece in pieces))

    def _delivered(self, keys: Sequence[int], tokens: Sequence[int], body_bytes: int) -> None:
        for key in keys:
            del self._numbers[key]
            del self._keys[key >> 32]
        statistics = self._statistics
        statistics.rtt_us = self._recovery.timing.smoothed_us or statistics.rtt_us
        self.backlog.delivered(tokens, body_bytes)

    def damaged(self, number: int, now_us: int) -> None:
        """Retransmit an open message that arrived damaged, and say so."""
        run = self._recovery.damaged(self._packets, number, now_us)
        if run is None:
            self._statistics.dropped["repeats_used_up"] += 1
        else:
            self._transmit(wire.with_failure(run.datagrams()), run.segment_bytes)

    # What ends without an answer.

    def wake(self, now_us: int, *, answered: bool) -> bool:
        """End what was transmitted as often as is allowed, and then, if the peer has never answered, all the rest.
        Return whether anything ended."""
        spent = self._recovery.wake(now_us)
        if spent and answered:
            self._unknown(spent, NO_ACKNOWLEDGEMENT)
        elif spent:
            self.end(NO_ACKNOWLEDGEMENT, spent)
        return bool(spent)

    def end(self, reason: str, spent: Sequence[Run] = ()) -> None:
        """End everything: what was transmitted (some of it is taken off already) as unknown, the rest as refused."""
        for tokens, body_bytes in self._waiting.clear():
            self.backlog.refused(tokens, body_bytes)
        self._unknown([*spent, *self._recovery.withdraw(self._packets)], reason)

    def _unknown(self, runs: Sequence[Run], reason: str) -> None:
        for run in runs:
            for number in range(run.first, run.end):
                del self._numbers[self._keys.pop(number % IDS)]
        if runs:
            body_bytes = sum(run.count * (run.segment_bytes - HEADER_BYTES) for run in runs)
            self.backlog.unknown([token for run in runs for token in run.tokens], body_bytes, reason)
