"""An mrp server in raw bytes, in both layouts, that keeps what is ahead of the next packet up to its window.

With a window of 1 it is the strict ping/pong receiver of the original protocol: it takes only the next packet and drops
what is ahead without a word.
"""

from __future__ import annotations

from struct import Struct
from typing import Unpack

from .world import TAG_BYTES, Habits, ScriptedPeer

MAGIC = b"MRP"
CONNECT, CON_REPLY, DATA, ACK = 1, 2, 3, 4
STAMPED_HEADER_BYTES, PIGGYBACK_HEADER_BYTES = 14, 12
SERVER_ID = 777
TURN = 1 << 16
_SEQUENCE = Struct(">H")
_PIGGYBACK = Struct(">4sHHHH")


class MrpPeer(ScriptedPeer):
    """Accepts one connection and acknowledges as its layout says."""

    protocol = "mrp"

    def __init__(self, layout: str, *, window: int = 256, rests_us: int = 0, **habits: Unpack[Habits]) -> None:
        super().__init__(**habits)
        self.options = {"layout": layout}
        self.window = window
        self.rests_us = rests_us
        """How long the only receipt is open after each packet: new ones are dropped without a word until then."""
        self._rests_until_us = 0
        self._stamped = layout == "stamped"
        self._client = 0
        self._server = SERVER_ID - 1
        self._next = 1
        self._ahead: dict[int, bytes] = {}

    def forget(self) -> None:
        self._client = 0
        self._next = 1
        self._ahead = {}

    @property
    def _header_bytes(self) -> int:
        return STAMPED_HEADER_BYTES if self._stamped else PIGGYBACK_HEADER_BYTES

    def message_of(self, data: bytes) -> bytes | None:
        if data[3] != DATA or len(data) <= self._header_bytes:
            return None
        return data[self._header_bytes : self._header_bytes + TAG_BYTES]

    def receive(self, data: bytes) -> None:
        if data[3] == CONNECT:
            client = int.from_bytes(data[5:8], "big")
            if client != self._client:
                self.forget()
                self._client = client
                self._server += 1
            ids = data[5:8] + self._server.to_bytes(3, "big")
            self.world.answer(MAGIC + bytes((CON_REPLY, 1, 0)) + ids)
        elif data[3] == DATA and len(data) > self._header_bytes and self._mine(data):
            self._data(data)

    def _mine(self, data: bytes) -> bool:
        if self._stamped:
            return data[4:10] == self._server.to_bytes(3, "big") + self._client.to_bytes(3, "big")
        return data[4:8] == self._client.to_bytes(2, "big") + self._server.to_bytes(2, "big")

    def _data(self, data: bytes) -> None:
        sequence: int = _SEQUENCE.unpack_from(data, 10 if self._stamped else 8)[0]
        distance = (sequence - self._next) % TURN
        if self.window <= distance < TURN // 2:
            return
        if distance < self.window and sequence not in self._ahead:
            if self.world.now_us < self._rests_until_us:
                return
            self._rests_until_us = self.world.now_us + self.rests_us
            self._ahead.setdefault(sequence, data[self._header_bytes :][:TAG_BYTES])
            while self._next in self._ahead:
                self.taken[self._ahead.pop(self._next)] += 1
                self._next = (self._next + 1) % TURN
        if self._stamped:
            self.answer(MAGIC + bytes((ACK,)) + data[7:10] + data[4:7] + data[10:14])
        else:
            received = (self._next - 1) % TURN
            self.answer(_PIGGYBACK.pack(MAGIC + bytes((DATA,)), self._server, self._client, 0, received))
