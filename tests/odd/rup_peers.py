"""A rup receiver in raw bytes: it confirms, asks for what is missing, and says nothing about what it does not take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Unpack

from .world import MS, SECOND, TAG_BYTES, Habits, ScriptedPeer

HEADER_BYTES = 42
PART_BYTES = 1_200 - HEADER_BYTES
CONFIRM_AFTER_US = 20 * MS
CONFIRM_EVERY_PARTS = 64
REQUEST_AFTER_US = 10 * MS
REQUEST_FIRST_AGAIN_US = 200 * MS
REQUEST_AGAIN_US_MAX = 3 * SECOND
REQUESTS_OPEN_MAX = 1_024
FORGET_US = 30 * SECOND


def number(digits: bytes) -> int:
    """Return the value of four digits in base 255, least significant first."""
    return digits[0] + 255 * (digits[1] + 255 * (digits[2] + 255 * digits[3]))


def uint(value: int) -> bytes:
    """Return four digits in base 255, least significant first."""
    return bytes(value // 255**index % 255 for index in range(4))


def is_last_part(data: bytes) -> bool:
    """Return whether a datagram is the part that ends its message."""
    return data[:1] == b"d" and number(data[34:38]) + len(data) - HEADER_BYTES == number(data[38:42])


@dataclass(slots=True)
class Missing:
    """A part that later ones have passed."""

    seen: int
    """Parts of the message that had come when it was missed."""
    noticed_us: int
    asked_us: int = 0
    times: int = 0


@dataclass(slots=True)
class Unfinished:
    """A message of which parts have come."""

    total: int
    tag: bytes = b""
    size: int = 0
    """Of every part but the last, once one has come."""
    parts: dict[int, int] = field(default_factory=dict)
    """Bytes by position."""
    upto: int = 0
    """Everything below has come."""
    highest: int = 0
    """Where the parts that have come end."""
    missing: dict[int, Missing] = field(default_factory=dict)
    unconfirmed: int = 0
    confirm_armed: bool = False
    ticking: bool = False
    grown_us: int = 0


class RupPeer(ScriptedPeer):
    """Takes messages up to its bounds."""

    protocol = "rup"

    def __init__(
        self,
        *,
        unfinished_max: int = 1 << 20,
        message_bytes_max: int = 64 << 20,
        requests: bool = True,
        polls_us: int = 0,
        confirms_again_us: int = 0,
        **habits: Unpack[Habits],
    ) -> None:
        super().__init__(**habits)
        self.unfinished_max = unfinished_max
        """Messages taken at a time; parts of others are ignored in silence."""
        self.message_bytes_max = message_bytes_max
        self.requests = requests
        """Ask for parts that later ones have passed."""
        self.polls_us = polls_us
        """Ask for the next missing part of each message so often, whatever has come; 0 is never."""
        self.confirms_again_us = confirms_again_us
        """Repeat the confirm of each unfinished message so often; 0 is never."""
        self._unfinished: dict[bytes, Unfinished] = {}
        self._done: dict[bytes, int] = {}
        self._round_trip_us = 0

    def forget(self) -> None:
        self._unfinished = {}
        self._done = {}

    def message_of(self, data: bytes) -> bytes | None:
        return data[HEADER_BYTES : HEADER_BYTES + TAG_BYTES] if data[:2] == b"d\x01" else None

    def needed(self, bodies: Sequence[bytes]) -> int:
        return sum(max(1, -(-len(body) // PART_BYTES)) for body in bodies)

    def receive(self, data: bytes) -> None:
        if data[:1] != b"d":
            return
        identity, position, total = data[2:34], number(data[34:38]), number(data[38:42])
        if identity in self._done:
            self._confirm(identity, self._done[identity])
            return
        message = self._unfinished.get(identity) or self._start(identity, total)
        if message is not None:
            self._take(identity, message, position, data)

    def _start(self, identity: bytes, total: int) -> Unfinished | None:
        if total > self.message_bytes_max:
            return None
        now_us = self.world.now_us
        if len(self._unfinished) >= self.unfinished_max:
            for old in [key for key, kept in self._unfinished.items() if now_us - kept.grown_us > FORGET_US]:
                del self._unfinished[old]
            if len(self._unfinished) >= self.unfinished_max:
                return None
        message = self._unfinished[identity] = Unfinished(total, grown_us=now_us)
        for every_us, action in ((self.polls_us, self._poll), (self.confirms_again_us, self._confirm_again)):
            if every_us:
                self.world.at(now_us + every_us, action, identity)
        return message

    def _take(self, identity: bytes, message: Unfinished, position: int, data: bytes) -> None:
        length = len(data) - HEADER_BYTES
        if position not in message.parts:
            self._keep(identity, message, position, length)
            if position == 0:
                message.tag = data[HEADER_BYTES : HEADER_BYTES + TAG_BYTES]
        if message.upto == message.total:
            self.taken[message.tag] += 1
            del self._unfinished[identity]
            self._done[identity] = message.total
            self._confirm(identity, message.total)
            return
        message.unconfirmed += 1
        if message.unconfirmed >= CONFIRM_EVERY_PARTS:
            message.unconfirmed = 0
            self._confirm(identity, message.upto)
        elif not message.confirm_armed:
            message.confirm_armed = True
            self.world.at(self.world.now_us + CONFIRM_AFTER_US, self._confirm_armed, identity)
        if self.requests and message.missing:
            self._ask_early(identity, message)

    def _keep(self, identity: bytes, message: Unfinished, position: int, length: int) -> None:
        now_us = self.world.now_us
        message.parts[position] = length
        message.grown_us = now_us
        asked = message.missing.pop(position, None)
        if asked is not None and asked.times == 1:
            self._round_trip_us = now_us - asked.asked_us
        end = position
        if position + length < message.total and not message.size:
            message.size = length
            if message.highest == message.total:  # the last part came first: all between are missing
                message.highest, end = 0, message.total
        if message.size:
            for passed in range(message.highest, end, message.size):
                if passed not in message.parts:
                    message.missing.setdefault(passed, Missing(len(message.parts), now_us))
        elif position:
            message.missing.setdefault(0, Missing(len(message.parts), now_us))
        message.highest = max(message.highest, end, position + length)
        while message.upto < message.total and message.upto in message.parts:
            message.upto += message.parts[message.upto]

    # Confirms.

    def _confirm(self, identity: bytes, upto: int) -> None:
        self.answer(b"c" + identity + b"\0" + uint(upto))

    def _confirm_armed(self, identity: bytes) -> None:
        message = self._unfinished.get(identity)
        if message is not None:
            message.confirm_armed = False
            if message.unconfirmed:
                message.unconfirmed = 0
                self._confirm(identity, message.upto)

    def _confirm_again(self, identity: bytes) -> None:
        message = self._unfinished.get(identity)
        if message is not None:
            self._confirm(identity, message.upto)
            self.world.at(self.world.now_us + self.confirms_again_us, self._confirm_again, identity)

    # Requests.

    def _request(self, identity: bytes, position: int) -> None:
        self.world.answer(b"r" + identity + b"\0" + uint(position))

    def _poll(self, identity: bytes) -> None:
        message = self._unfinished.get(identity)
        if message is not None:
            self._request(identity, message.upto)
            self.world.at(self.world.now_us + self.polls_us, self._poll, identity)

    def _ask_early(self, identity: bytes, message: Unfinished) -> None:
        """Ask for what three later parts have passed, and look again while something is missing."""
        arrived = len(message.parts)
        for position, missing in message.missing.items():
            if arrived - missing.seen < 2:
                break
            if not missing.times:
                self._ask(identity, position, missing)
        if not message.ticking:
            message.ticking = True
            self.world.at(self.world.now_us + REQUEST_AFTER_US, self._tick, identity)

    def _ask(self, identity: bytes, position: int, missing: Missing) -> None:
        missing.asked_us = self.world.now_us
        missing.times += 1
        self._request(identity, position)

    def _tick(self, identity: bytes) -> None:
        message = self._unfinished.get(identity)
        if message is None or not message.missing:
            if message is not None:
                message.ticking = False
            return
        now_us = self.world.now_us
        again_us = max(5 * MS, self._round_trip_us * 3 // 2) if self._round_trip_us else REQUEST_FIRST_AGAIN_US
        for position in sorted(message.missing)[:REQUESTS_OPEN_MAX]:
            missing = message.missing[position]
            wait_us = min(REQUEST_AGAIN_US_MAX, again_us << max(0, missing.times - 3))
            due_us = missing.asked_us + wait_us if missing.times else missing.noticed_us + REQUEST_AFTER_US
            if now_us >= due_us:
                self._ask(identity, position, missing)
        self.world.at(now_us + REQUEST_AFTER_US, self._tick, identity)
