"""A flood: calls from made-up addresses, none of which ever answers.

All come through one socket that names another source within 127.0.0.0/8 for each datagram.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator

from fairway.protocols.mrp import wire as mrp
from fairway.protocols.udpc import wire as udpc

IP_PKTINFO = 8
_PACKET_INFO = struct.Struct("=i4s4s")
"""Interface (0: any), source address, unused on the way out."""


class Flood:
    """Sends calls of one protocol."""

    def __init__(self, protocol: str, listener: tuple[str, int]) -> None:
        self._protocol = protocol
        self._listener = listener
        self._sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._sock.bind(("0.0.0.0", 0))
        self._sent = 0

    def pour(self, count: int) -> None:
        """Sends so many more calls, each from an address of its own."""
        for number in range(self._sent, self._sent + count):
            control = [(socket.IPPROTO_IP, IP_PKTINFO, _PACKET_INFO.pack(0, made_up(number), bytes(4)))]
            self._sock.sendmsg((self._call(number),), control, 0, self._listener)
        self._sent += count
        self._forget_answers()

    def _call(self, number: int) -> bytes:
        if self._protocol == "udpc":
            return udpc.encode(udpc.Syn(index=number + 1, session_id=number + 1))
        return mrp.encode(mrp.Connect(ver=0, cl_conid=number % 0xFFFFFF + 1))

    def _forget_answers(self) -> None:
        for _ in self._answers():
            pass

    def _answers(self) -> Iterator[bytes]:
        while True:
            try:
                yield self._sock.recv(2_048, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return

    def close(self) -> None:
        self._sock.close()


def made_up(number: int) -> bytes:
    """Return an address from 127.2.0.0 on."""
    return (0x7F020000 + number).to_bytes(4, "big")
