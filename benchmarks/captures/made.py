"""A capture of datagrams of the four protocols in equal parts, many conversations of each, about 250 bytes a record."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from zlib import crc32

from fairway.capture.frames import LinkType
from fairway.capture.packets import encode_ip
from fairway.capture.pcap import PcapWriter
from fairway.protocols import NAMES
from fairway.protocols.mrp import wire as mrp
from fairway.protocols.pydevts import wire as pydevts
from fairway.protocols.rup import wire as rup
from fairway.protocols.udpc import wire as udpc

CONVERSATIONS = 100
"""Of each protocol."""
BODY_BYTES = 240
PARTS = 500
"""Of a rup message."""
START_NS = 1_700_000_000_000_000_000
STEP_NS = 20_000
SERVER = "10.9.0.1"
ETHERNET = bytes(12) + b"\x08\x00"


def _body(number: int) -> bytes:
    """Text, as devices report; zeros could be read as headers of several protocols at once."""
    return b'{"reading":%010d,"unit":"C","site":"north"}' % number * 5


def _udpc(conversation: int, number: int, answer: bool) -> bytes:
    session, index = (conversation + 1) * 40_503_003, (conversation + 16) * 15_485_863 + number
    if answer:
        return udpc.datagram(number + 1, session, index, udpc.IMP | udpc.ACK)
    return udpc.datagram(index, session, 0, udpc.IMP, _body(number))


def _mrp(conversation: int, number: int, answer: bool) -> bytes:
    client, server, sequence, stamp = conversation + 1, conversation + 70_000, number + 1 & 0xFFFF, number & 0xFFFF
    if answer:
        return mrp.ack_bytes(client, server, sequence, stamp)
    return mrp.stamped_prefix(mrp.TYPE_DATA, server, client) + mrp.pair(sequence, stamp) + _body(number)


def _rup(conversation: int, number: int, answer: bool) -> bytes:
    identity = f"{conversation << 40 | number // PARTS:032x}"
    position, total = number % PARTS * BODY_BYTES, PARTS * BODY_BYTES
    if answer:
        return rup.encode(rup.Confirm(id=identity, position=position + BODY_BYTES))
    return rup.encode(rup.Data(start=position == 0, id=identity, position=position, total=total, body=_body(number)))


def _pydevts(conversation: int, number: int, answer: bool) -> bytes:
    body = _body(number)
    if answer:
        return pydevts.encode(pydevts.Ack(success=0, message_id=number & 0xFFFF, crc=crc32(body)))
    return pydevts.encode(pydevts.Packet(success=0, message_id=number & 0xFFFF, crc=crc32(body), body=body))


MAKERS: dict[str, Callable[[int, int, bool], bytes]] = {"udpc": _udpc, "mrp": _mrp, "rup": _rup, "pydevts": _pydevts}


def make_capture(path: Path, datagrams: int) -> None:
    """Write a pcap file of so many datagrams: of every four three are data and one an answer."""
    with open(path, "wb", buffering=1 << 20) as file:
        writer = PcapWriter(file.write, LinkType.ETHERNET)
        for number in range(datagrams):
            writer.frame(START_NS + number * STEP_NS, _frame(number))


def _frame(number: int) -> bytes:
    turn, which = divmod(number, len(NAMES))
    turn, conversation = divmod(turn, CONVERSATIONS)
    round_, step = divmod(turn, 4)
    answer = step == 3
    client, server = (f"10.0.{which}.{conversation + 1}", 40_000), (SERVER, 9_000 + which)
    payload = MAKERS[NAMES[which]](conversation, round_ * 3 + min(step, 2), answer)
    source, destination = (server, client) if answer else (client, server)
    return ETHERNET + encode_ip(source, destination, payload)
