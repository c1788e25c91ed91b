"""A capture for each rule of pydevts, in which it is broken."""

from __future__ import annotations

from zlib import crc32

from fairway.protocols.pydevts.wire import Ack, Close, Packet, encode
from tests.lake.violations.cases import Case, Step

BODY = b"hello" * 20
CRC = crc32(BODY)


def _packet(number: int, body: bytes = BODY, *, crc: int | None = None, success: int = 0) -> bytes:
    return encode(Packet(success=success, message_id=number, crc=crc32(body) if crc is None else crc, body=body))


def _ack(number: int, crc: int = CRC, success: int = 0) -> bytes:
    return encode(Ack(success=success, message_id=number, crc=crc))


def _close(number: int, crc: int = CRC, success: int = 0) -> bytes:
    return encode(Close(success=success, message_id=number, crc=crc))


EXCHANGE: tuple[Step, ...] = ((0.0, ">", _packet(1)), (0.01, "<", _ack(1)), (0.02, ">", _close(1)))
LATER: Step = (6.0, ">", _packet(2))

CASES = (
    Case("PYDEVTS-1.1", "three bytes", (*EXCHANGE, (0.1, ">", bytes(3)))),
    Case("PYDEVTS-1.2", "type 2", (*EXCHANGE, (0.1, ">", b"\2" + bytes(7)))),
    Case("PYDEVTS-1.3", "success 2", (*EXCHANGE, (0.1, "<", _ack(1, success=2)))),
    Case("PYDEVTS-1.4", "an ack of nine bytes", (*EXCHANGE, (0.1, "<", _ack(1) + b"x"))),
    Case("PYDEVTS-1.5", "a wrong CRC", (*EXCHANGE, (0.1, ">", _packet(2, crc=7)), (0.2, "<", _ack(2, 7, success=1)))),
    Case(
        "PYDEVTS-1.6",
        "an ack with another crc",
        (*EXCHANGE, LATER, (6.1, "<", _ack(2, 7, success=1))),
        "an ack repeats the packet's crc; it may have been damaged on the way",
    ),
    Case(
        "PYDEVTS-1.6",
        "a close with another crc",
        (*EXCHANGE, LATER, (6.1, "<", _ack(2)), (6.2, ">", _close(2, 7))),
        "a close repeats the packet's crc; it may have been damaged on the way",
    ),
    Case(
        "PYDEVTS-1.7",
        "a body of 65,500 bytes",
        (*EXCHANGE, (0.1, ">", _packet(2, bytes(65_500)))),
        ipv6=True,
    ),
    Case("PYDEVTS-1.8", "a close with success 1", (*EXCHANGE, (0.1, ">", _close(1, success=1)))),
    Case(
        "PYDEVTS-3.3",
        "a wrong CRC acknowledged with success",
        (*EXCHANGE, (6.0, ">", _packet(2, crc=7)), (6.1, "<", _ack(2, 7))),
        also=("PYDEVTS-1.5",),
    ),
    Case("PYDEVTS-4.2", "a close without an ack", (*EXCHANGE, LATER, (6.1, ">", _close(2)))),
    Case("PYDEVTS-4.3", "success 1 without a failure", (*EXCHANGE, (6.0, ">", _packet(2, success=1)))),
    Case(
        "PYDEVTS-6.1",
        "a packet 23 times",
        tuple((number * 1.0, ">", _packet(1)) for number in range(23)),
        "a packet is repeated ten times at the most",
    ),
    Case(
        "PYDEVTS-6.1",
        "a copy after 50 s",
        (*EXCHANGE, (50.0, ">", _packet(1))),
        "a packet is repeated for 30 s at the most, and its id not used again for the same body for 120 s",
    ),
    Case("PYDEVTS-6.2", "an ack 25 times", (EXCHANGE[0], *((0.01 + number, "<", _ack(1)) for number in range(25)))),
    Case(
        "PYDEVTS-6.2",
        "an ack 35 times, minutes after ten copies",
        (
            *((3.0 * number, ">", _packet(1)) for number in range(11)),
            *((330.0 + number, "<", _ack(1)) for number in range(35)),
        ),
    ),
    Case(
        "PYDEVTS-7.2", "an id used while open", (*EXCHANGE, (1.0, ">", _packet(2)), (2.0, ">", _packet(2, b"another")))
    ),
    Case(
        "PYDEVTS-7.2",
        "an id used while open, and long after",
        (
            *EXCHANGE,
            (1.0, ">", _packet(2)),
            (2.0, ">", _packet(2, b"another")),
            (1_000.0, ">", _packet(2, b"a third")),
        ),
    ),
    Case("PYDEVTS-10.1", "an ack of what was never sent", (*EXCHANGE, (6.0, "<", _ack(77, 5, success=1)))),
    Case(
        "ALL-6.1",
        "thirteen acks for an empty packet",
        ((0.0, ">", _packet(1, b"")), *((0.01 + number, "<", _ack(1, 0)) for number in range(13))),
    ),
)
