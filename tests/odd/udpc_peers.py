"""A udpc server in raw bytes: header `index, sessionID, ackIndex, flag`, big-endian, then the body."""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Unpack

from .world import TAG_BYTES, Habits, ScriptedPeer

ACK, REQ, ASY, SYN, IMP, FIN, HBT = 0x01, 0x02, 0x04, 0x08, 0x10, 0x20, 0x40
HEADER = Struct(">IIIB")
SESSION = 0x0A0B0C0D


class UdpcPeer(ScriptedPeer):
    """Answers a SYN, acknowledges every IMP but those it ignores, and answers heartbeats at once."""

    protocol = "udpc"

    def __init__(
        self,
        *,
        ignores: Callable[[bytes], bool] = lambda _: False,
        response_takes_us: int = 0,
        **habits: Unpack[Habits],
    ) -> None:
        super().__init__(**habits)
        self.ignores = ignores
        """Which bodies are above the buffer: dropped without an acknowledgement and without a mark."""
        self.response_takes_us = response_takes_us
        """How long the application thinks about a request; duplicates get the response again."""
        self._session = 0
        self._index = 0
        self._seen: set[int] = set()
        self._responses: dict[int, bytes] = {}

    def forget(self) -> None:
        self._session = 0
        self._seen = set()

    def message_of(self, data: bytes) -> bytes | None:
        return data[HEADER.size : HEADER.size + TAG_BYTES] if data[12] == IMP else None

    def receive(self, data: bytes) -> None:
        index, session, _, flag = HEADER.unpack_from(data)
        if flag == SYN:
            if not self._session:
                self._session, self._index = SESSION + len(self.taken), 1
            self.world.answer(HEADER.pack(1, self._session, index, SYN | ACK))
        elif session != self._session:
            return
        elif flag == IMP:
            self._important(index, data[HEADER.size :])
        elif flag & REQ and index not in self._seen:
            self._seen.add(index)
            self.world.at(self.world.now_us + self.response_takes_us, self._respond, index)
        elif flag & REQ and index in self._responses:
            self.world.answer(self._responses[index])
        elif flag == HBT:
            self.world.answer(self._packet(index, HBT | ACK))
        elif flag == FIN:
            self.forget()

    def _respond(self, index: int) -> None:
        self._responses[index] = self._packet(index, ACK) + b"response"
        self.world.answer(self._responses[index])

    def _important(self, index: int, body: bytes) -> None:
        if self.ignores(body):
            return
        if index not in self._seen:
            self._seen.add(index)
            self.taken[body[:TAG_BYTES]] += 1
        self.answer(self._packet(index, IMP | ACK))

    def _packet(self, answered: int, flag: int) -> bytes:
        self._index += 1
        return HEADER.pack(self._index, self._session, answered, flag)
