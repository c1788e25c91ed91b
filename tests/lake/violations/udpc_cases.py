"""A capture for each rule of udpc, in which it is broken."""

from __future__ import annotations

from fairway.protocols.udpc.wire import ACK, FIN, HBT, IMP, REQ, SYN, datagram
from tests.lake.violations.cases import Case, Step

CALL = 5
SESSION = 0x0A0B0C0D
OTHER = 0x0A0B0C0E


def _packet(index: int, flag: int, body: bytes = b"", *, ack: int = 0, session: int = SESSION) -> bytes:
    return datagram(index, session, ack, flag, body)


def _opening(syn_index: int = 100, syn_ack_index: int = 1, ack_body: bytes = b"") -> tuple[Step, ...]:
    return (
        (0.0, ">", _packet(syn_index, SYN, session=CALL)),
        (0.01, "<", _packet(syn_ack_index, SYN | ACK, ack=syn_index)),
        (0.02, ">", _packet(syn_index + 1, ACK, ack_body, ack=syn_ack_index)),
    )


OPENING = _opening()
SYN_STEP, SYN_ACK_STEP, ACK_STEP = OPENING
IMPORTANT: Step = (0.1, ">", _packet(102, IMP, b"door open"))
REQUEST: Step = (0.1, ">", _packet(102, REQ, b"how?"))
RESPONSE: Step = (0.2, "<", _packet(2, ACK, b"well", ack=102))

CASES = (
    Case("UDPC-1.2", "an index of 0", (*OPENING, (0.1, ">", _packet(0, 0, b"x")))),
    Case("UDPC-1.3", "a sessionID of 0", (*OPENING, (0.1, ">", _packet(102, 0, b"x", session=0)))),
    Case("UDPC-1.5", "five bytes", (*OPENING, (0.1, ">", bytes(5)))),
    Case("UDPC-1.6", "a heartbeat with a body", (*OPENING, (0.1, ">", _packet(102, HBT, b"x")))),
    Case("UDPC-2.2", "REQ+IMP", (*OPENING, (0.1, ">", _packet(102, REQ | IMP, b"x")))),
    Case("UDPC-3.1", "a SYN above 2^31", _opening(syn_index=1 << 31), "the caller's first index is from 1 to 2^31 - 1"),
    Case("UDPC-3.1", "a SYN+ACK with index 7", _opening(syn_ack_index=7), "the called side's first index is 1"),
    Case(
        "UDPC-3.2",
        "an index used twice",
        (*OPENING, (0.1, ">", _packet(102, 0, b"one")), (0.2, ">", _packet(102, 0, b"two"))),
    ),
    Case(
        "UDPC-3.3",
        "FIN again with another index",
        (*OPENING, (0.1, ">", _packet(102, FIN)), (0.2, ">", _packet(103, FIN))),
    ),
    Case(
        "UDPC-3.4",
        "two acknowledgements under one index",
        (
            *OPENING,
            IMPORTANT,
            (0.15, ">", _packet(103, IMP, b"door closed")),
            (0.2, "<", _packet(2, IMP | ACK, ack=102)),
            (0.25, "<", _packet(2, IMP | ACK, ack=103)),
        ),
    ),
    Case("UDPC-4.2", "a SYN again with another index", (*OPENING, (0.3, ">", _packet(200, SYN, session=CALL)))),
    Case("UDPC-4.3", "a SYN+ACK for another index", (SYN_STEP, (0.01, "<", _packet(1, SYN | ACK, ack=999)))),
    Case(
        "UDPC-4.5",
        "a second session for one SYN",
        (
            *OPENING,
            (0.3, ">", _packet(100, SYN, session=CALL)),
            (0.31, "<", _packet(1, SYN | ACK, ack=100, session=OTHER)),
            (5.0, "<", _packet(2, HBT)),
            (5.1, ">", _packet(102, HBT | ACK, ack=2)),
        ),
    ),
    Case("UDPC-4.6", "a handshake's ACK with a body", _opening(ack_body=b"x")),
    Case(
        "UDPC-4.8",
        "the called side speaks first",
        (SYN_STEP, SYN_ACK_STEP, (0.015, "<", _packet(2, 0, b"early")), ACK_STEP),
    ),
    Case("UDPC-4.11", "data before the handshake", (SYN_STEP, (0.005, ">", _packet(101, 0, b"early")), SYN_ACK_STEP)),
    Case("UDPC-5.1", "a sessionID changed in flight", (*OPENING, (0.1, ">", _packet(102, 0, b"x", session=OTHER)))),
    Case(
        "UDPC-6.1",
        "a plain message repeated",
        (*OPENING, (0.1, ">", _packet(102, 0, b"x")), (4.0, ">", _packet(102, 0, b"x"))),
    ),
    Case("UDPC-7.2", "an important message after 45 s", (*OPENING, IMPORTANT, (45.0, *IMPORTANT[1:]))),
    Case("UDPC-7.3", "IMP+ACK of what was never sent", (*OPENING, (0.1, "<", _packet(2, IMP | ACK, ack=500)))),
    Case(
        "UDPC-7.3",
        "IMP+ACK of a plain message",
        (*OPENING, (0.1, ">", _packet(102, 0, b"x")), (0.2, "<", _packet(2, IMP | ACK, ack=102))),
    ),
    Case("UDPC-8.2", "a request after 20 s", (*OPENING, REQUEST, (20.0, *REQUEST[1:]))),
    Case(
        "UDPC-8.4",
        "a response again with another body",
        (*OPENING, REQUEST, RESPONSE, (0.3, *REQUEST[1:]), (0.4, "<", _packet(2, ACK, b"ill", ack=102))),
    ),
    Case("UDPC-8.7", "a response to no request", (*OPENING, (0.1, "<", _packet(2, ACK, b"well", ack=500)))),
    Case("UDPC-8.7", "an ACK of the SYN", (*_opening(syn_index=1), (0.1, "<", _packet(2, ACK, ack=1)))),
    Case(
        "UDPC-8.9",
        "two responses to one request",
        (*OPENING, REQUEST, RESPONSE, (0.3, "<", _packet(3, ACK, b"well", ack=102))),
    ),
    Case("UDPC-9.2", "HBT+ACK of what was never sent", (*OPENING, (0.1, "<", _packet(2, HBT | ACK, ack=500)))),
    Case(
        "UDPC-10.1", "a message after FIN", (*OPENING, (0.1, ">", _packet(102, FIN)), (0.2, ">", _packet(103, 0, b"x")))
    ),
    Case("UDPC-10.4", "FIN after 15 s", (*OPENING, (0.1, ">", _packet(102, FIN)), (15.0, ">", _packet(102, FIN)))),
    Case(
        "ALL-6.1",
        "thirteen SYN+ACK for one SYN",
        (SYN_STEP, *((0.01 + number * 0.2, "<", SYN_ACK_STEP[2]) for number in range(13))),
    ),
)
