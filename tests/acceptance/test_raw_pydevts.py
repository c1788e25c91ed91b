"""pydevts by bytes: raw peers against `fairway listen` and `send`."""

from __future__ import annotations

import zlib

from .raw import answering, fairway, listening, u16, u32

PACKET, ACK, CLOSE = 0, 1, 3


def header(kind: int, success: int, message: int, crc: int) -> bytes:
    return bytes([kind, success]) + u16(message) + u32(crc)


def packet(message: int, body: bytes, success: int = 0) -> bytes:
    return header(PACKET, success, message, zlib.crc32(body)) + body


def test_the_vectors_of_the_standard() -> None:
    with listening("pydevts") as (command, peer):
        peer.send("00 00 1234 3610a686 68656c6c6f")
        assert peer.receive() == bytes.fromhex("01 00 1234 3610a686")
        peer.send("03 00 1234 3610a686")
        message = command.message()
        assert (message["protocol"], message["session"], message["id"], message["body"]) == (
            "pydevts",
            None,
            0x1234,
            "hello",
        )


def test_send_closes_after_the_ack_and_exits_0() -> None:
    with answering() as peer, fairway("send", f"pydevts://127.0.0.1:{peer.port}", "hello") as command:
        datagram = peer.receive()
        assert datagram[:2] == bytes([PACKET, 0])
        assert datagram[4:] == u32(zlib.crc32(b"hello")) + b"hello"
        message = int.from_bytes(datagram[2:4], "big")
        peer.send(header(ACK, 0, message, 1))
        assert peer.receive() == header(CLOSE, 0, message, 1)
        peer.send(header(ACK, 1, message, zlib.crc32(b"hello")))
        assert peer.receive() == datagram[:1] + b"\x01" + datagram[2:]
        peer.send(header(ACK, 0, message, zlib.crc32(b"hello")))
        assert peer.receive() == header(CLOSE, 0, message, zlib.crc32(b"hello"))
        assert command.exit_code() == 0
