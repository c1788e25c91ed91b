"""A pydevts receiver in raw bytes: `type, success, id, crc`, big-endian; it repeats an ack until its close comes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack
from zlib import crc32

from .world import SECOND, TAG_BYTES, Habits, ScriptedPeer

PACKET, ACK, CLOSE = 0, 1, 3
HEADER_BYTES = 8
ACK_AGAIN_US = 3 * SECOND
ACK_REPEATS_MAX = 10


class PydevtsPeer(ScriptedPeer):
    """Takes every whole packet once and acknowledges each arrival."""

    protocol = "pydevts"

    def __init__(
        self, *, queue_max: int = 1 << 20, commit_us: int = 0, at_ticks: bool = False, **habits: Unpack[Habits]
    ) -> None:
        super().__init__(**habits)
        self.queue_max = queue_max
        """Packets that wait for their commit; others are dropped without a word."""
        self.commit_us = commit_us
        """How long the application takes for a packet, which is acknowledged then."""
        self.at_ticks = at_ticks
        """Commit all that has come at the next multiple of that time."""
        self._uncommitted: set[bytes] = set()
        self._incoming: set[bytes] = set()
        """Id and crc of what is not closed yet."""
        self._known: set[bytes] = set()

    def forget(self) -> None:
        self._incoming = set()
        self._known = set()

    def message_of(self, data: bytes) -> bytes | None:
        return data[HEADER_BYTES : HEADER_BYTES + TAG_BYTES] if data[0] == PACKET else None

    def needed(self, bodies: Sequence[bytes]) -> int:
        return 2 * len(bodies)

    def receive(self, data: bytes) -> None:
        key = data[2:HEADER_BYTES]
        if data[0] == CLOSE:
            self._incoming.discard(key)
        elif data[0] == PACKET:
            body = data[HEADER_BYTES:]
            assert crc32(body) == int.from_bytes(key[2:], "big"), "the link damages nothing"
            if key not in self._known:
                if len(self._uncommitted) == self.queue_max:
                    return
                self._known.add(key)
                self.taken[body[:TAG_BYTES]] += 1
                self._uncommitted.add(key)
                if self.commit_us:
                    early_us = self.world.now_us % self.commit_us if self.at_ticks else 0
                    self.world.at(self.world.now_us + self.commit_us - early_us, self._commit, key)
                else:
                    self._commit(key)
            elif key not in self._uncommitted:
                self.answer(bytes((ACK, 0)) + key)

    def _commit(self, key: bytes) -> None:
        self._uncommitted.discard(key)
        self._incoming.add(key)
        self._repeat_later(key, ACK_REPEATS_MAX)
        self.answer(bytes((ACK, 0)) + key)

    def _repeat_later(self, key: bytes, left: int) -> None:
        def repeat() -> None:
            if key in self._incoming:
                self.answer(bytes((ACK, 0)) + key)
                if left > 1:
                    self._repeat_later(key, left - 1)

        self.world.at(self.world.now_us + self.answers.late_us + ACK_AGAIN_US, repeat)
