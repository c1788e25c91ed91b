"""A capture for each rule of mrp, in which it is broken."""

from __future__ import annotations

from fairway.capture.pcapng import PcapngWriter
from fairway.protocols.mrp.wire import ACCEPT, REJECT, Ack, Connect, ConReply, PiggybackData, StampedData, encode
from tests.lake.violations.cases import EPOCH_NS, Case, Step

CLIENT, SERVER = 1, 7


def _connect(ver: int = 0, client: int = CLIENT) -> bytes:
    return encode(Connect(ver=ver, cl_conid=client))


def _reply(server: int = SERVER, client: int = CLIENT, stat: int = ACCEPT) -> bytes:
    return encode(ConReply(stat=stat, cl_conid=client, sv_conid=server))


def _data(sequence: int, stamp: int = 10, body: bytes = b"hi", *, to: int = SERVER, origin: int = CLIENT) -> bytes:
    return encode(StampedData(dest_conid=to, from_conid=origin, sequence=sequence, stamp=stamp, body=body))


def _ack(sequence: int, stamp: int = 10, *, to: int = CLIENT, origin: int = SERVER) -> bytes:
    return encode(Ack(dest_conid=to, from_conid=origin, sequence=sequence, stamp=stamp))


def _piggyback(sequence: int, body: bytes = b"hi") -> bytes:
    return encode(PiggybackData(from_conid=CLIENT, dest_conid=SERVER, sequence=sequence, from_seq=0, body=body))


def _bare(from_seq: int) -> bytes:
    return encode(PiggybackData(from_conid=SERVER, dest_conid=CLIENT, sequence=0, from_seq=from_seq, body=b""))


CALL: Step = (0.0, ">", _connect())
REPLY: Step = (0.01, "<", _reply())
OPENING = (CALL, REPLY, (0.02, ">", _data(1)), (0.03, "<", _ack(1)))
PIGGYBACK = ((0.0, ">", _connect(1)), REPLY, (0.02, ">", _piggyback(1)), (0.03, "<", _bare(1)))

SAME_IDS = (
    CALL,
    (0.01, "<", _reply(server=CLIENT)),
    (0.02, ">", _data(1, to=CLIENT)),
    (0.03, "<", _ack(1, origin=CLIENT)),
    (0.04, "<", _data(1, to=CLIENT)),
    (0.05, ">", _ack(1, origin=CLIENT)),
)
"""Both ends chose the same number, as two that count from 1 do; nothing is wrong with that."""

PROGRESS = (
    *OPENING,
    (1.0, ">", _data(2, 11)),
    (60.0, ">", _data(3, 12)),
    (60.1, "<", _ack(3, 12)),
    (125.0, ">", _data(2, 13)),
)
"""One packet stays unacknowledged while others are: the connection goes on."""

Sent = tuple[float, str, str, bytes]
"""When, from which client (or server), to which, the datagram."""


def _opened(at_s: float, caller: str, callee: str, client: int, server: int, *, ends_s: float) -> tuple[Sent, ...]:
    return (
        (at_s, caller, callee, _connect(client=client)),
        (at_s + 0.01, callee, caller, _reply(server, client)),
        (at_s + 0.02, caller, callee, _data(1, to=server, origin=client)),
        (ends_s, callee, caller, _ack(1, to=client, origin=server)),
    )


TWO_CLIENTS = (*_opened(0, "A", "S", 1, 7, ends_s=20), *_opened(10, "B", "S", 2, 7, ends_s=20))
"""One sv_conid for connections of two flows at the same time."""
TWO_SERVERS = (*_opened(0, "A", "S", 1, 7, ends_s=20), *_opened(10, "A", "T", 1, 8, ends_s=20))
"""One cl_conid for two calls at the same time."""
BOTH_ROLES = (*_opened(0, "A", "S", 1, 7, ends_s=20), *_opened(10, "S", "T", 7, 8, ends_s=20))
"""A node uses an id that it gave to a caller for a call of its own."""
ONE_AFTER_THE_OTHER = (*_opened(0, "A", "S", 1, 7, ends_s=20), *_opened(40, "B", "S", 2, 7, ends_s=50))
"""An id is given again when its connection is over, which breaks nothing."""
OF_OTHERS = (*_opened(0, "A", "S", 1, 7, ends_s=20), *_opened(10, "B", "T", 1, 7, ends_s=20))
"""The same ids at other nodes."""


def nodes_capture(sent: tuple[Sent, ...], number: int, port: int) -> bytes:
    """Return the capture of what several nodes send; `number` makes addresses of its own."""
    file = bytearray()
    trace = PcapngWriter(file.extend, ("middle",))
    for at_s, source, destination, data in sorted(sent, key=lambda row: row[0]):
        origin, target = ((f"172.16.{number}.{ord(name)}", port) for name in (source, destination))
        trace.datagram(EPOCH_NS + round(at_s * 1_000_000_000), origin, target, data)
    return bytes(file)


CASES = (
    Case("MRP-1.1", "another magic", (*OPENING, (0.1, ">", b"MRX" + _data(2)[3:]))),
    Case("MRP-1.1", "type 9", (*OPENING, (0.1, ">", b"MRP\x09" + bytes(10)))),
    Case("MRP-1.1", "two bytes", (*OPENING, (0.1, ">", b"MR"))),
    Case("MRP-1.2", "a connect of nine bytes", (*OPENING, (0.1, ">", _connect() + b"\0"))),
    Case("MRP-1.3", "nine bytes of data", (*OPENING, (0.1, ">", b"MRP\x03" + bytes(5)))),
    Case("MRP-1.4", "an ack from 0", (*OPENING, (0.1, "<", _ack(1, origin=0)))),
    Case("MRP-1.4", "sv_conid 0 in an acceptance", (*OPENING, (0.1, "<", _reply(server=0)))),
    Case("MRP-1.5", "stat 3", (*OPENING, (0.1, "<", _reply(stat=3)))),
    Case("MRP-1.6", "an ack in a piggyback connection", (*PIGGYBACK, (0.1, "<", _ack(0, 0)))),
    Case("MRP-1.6", "an ack of a message in a piggyback connection", (*PIGGYBACK, (0.1, "<", _ack(1, 5)))),
    Case("MRP-1.7", "an ack with exchanged ids", (*OPENING[:3], (0.03, "<", _ack(1, to=SERVER, origin=CLIENT)))),
    Case(
        "MRP-2.1",
        "one sv_conid for two clients",
        (CALL, REPLY, (0.02, ">", _connect(client=2)), (0.03, "<", _reply(client=2))),
    ),
    Case("MRP-2.3", "a connect with another version", (*OPENING, (0.1, ">", _connect(1)))),
    Case("MRP-2.4", "a reply to nobody", (CALL, (0.01, "<", _reply(client=9)))),
    Case("MRP-2.5", "version 2.0 accepted", ((0.0, ">", _connect(0x20)), REPLY)),
    Case(
        "MRP-2.6",
        "a second sv_conid for one call",
        (
            *OPENING,
            (0.1, ">", _connect()),
            (0.11, "<", _reply(server=8)),
            (5.0, "<", _data(1, to=CLIENT, origin=SERVER)),
            (5.1, ">", _ack(1, to=SERVER, origin=CLIENT)),
        ),
    ),
    Case(
        "MRP-2.7", "data after a rejection", (CALL, (0.01, "<", _reply(server=0, stat=REJECT)), (0.02, ">", _data(1)))
    ),
    Case("MRP-2.8", "data before the con reply", (CALL, (0.005, ">", _data(1)), REPLY)),
    Case("MRP-2.9", "data to an id that nobody gave", (*OPENING, (0.1, ">", _data(1, to=99)))),
    Case(
        "MRP-2.10",
        "the server speaks first",
        (
            CALL,
            REPLY,
            (0.015, "<", _data(1, to=CLIENT, origin=SERVER)),
            (0.02, ">", _ack(1, to=SERVER, origin=CLIENT)),
        ),
    ),
    Case(
        "MRP-2.11",
        "a large sv_conid for the piggyback layout",
        ((0.0, ">", _connect(1)), (0.01, "<", _reply(server=70_000))),
    ),
    Case(
        "MRP-3.1",
        "a first message with sequence 40,000",
        (CALL, REPLY, (0.02, ">", _data(40_000)), (0.03, "<", _ack(40_000))),
    ),
    Case("MRP-3.8", "a sequence used twice, stamped", (*OPENING, (0.1, ">", _data(1, 20, b"ho")))),
    Case("MRP-3.8", "a sequence used twice, piggyback", (*PIGGYBACK, (0.1, ">", _piggyback(1, b"ho")))),
    Case("MRP-4.2", "an ack of what was never sent", (*OPENING, (0.1, "<", _ack(5)))),
    Case("MRP-4.3", "an ack with another stamp", (*OPENING, (0.1, "<", _ack(1, 99)))),
    Case("MRP-5.1", "a gap acknowledged", (*PIGGYBACK, (0.1, ">", _piggyback(3)), (0.2, "<", _bare(3)))),
    Case(
        "MRP-5.1",
        "a gap acknowledged, and filled later",
        (*PIGGYBACK, (0.1, ">", _piggyback(3)), (0.2, "<", _bare(3)), (1.0, ">", _piggyback(2)), (1.1, "<", _bare(3))),
    ),
    Case("MRP-5.6", "from_seq of what was never sent", (*PIGGYBACK, (0.1, "<", _bare(9)))),
    Case(
        "MRP-5.9",
        "from_seq goes back",
        (*PIGGYBACK, (0.1, ">", _piggyback(2)), (0.2, "<", _bare(2)), (5.0, "<", _bare(1))),
    ),
    Case(
        "MRP-7.3",
        "a copy after two minutes without an ack",
        (*OPENING, (1.0, ">", _data(2, 11)), (125.0, ">", _data(2, 12))),
    ),
    Case(
        "MRP-7.3",
        "a copy after two minutes, and then an ack",
        (*OPENING, (1.0, ">", _data(2, 11)), (125.0, ">", _data(2, 12)), (126.0, "<", _ack(2, 12))),
    ),
    Case(
        "MRP-7.3",
        "a copy after two minutes with an old ack repeated",
        (*OPENING, (1.0, ">", _data(2, 11)), (60.0, "<", _ack(1)), (125.0, ">", _data(2, 12))),
    ),
    Case(
        "MRP-3.1",
        "a first message of 40,000 in a batch with others",
        (CALL, REPLY, (0.02, ">", _data(40_000)), (0.02, ">", _data(40_001, 11)), (0.03, "<", _ack(40_000))),
    ),
    Case(
        "ALL-6.1",
        "nine con replies for one connect",
        (CALL, *((0.01 + number * 0.2, "<", REPLY[2]) for number in range(9))),
    ),
)
