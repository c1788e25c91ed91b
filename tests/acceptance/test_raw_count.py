"""`listen --count N` by bytes: what is printed is acknowledged, its duplicates too, and nothing else."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

import pytest

from . import test_raw_mrp as mrp
from . import test_raw_pydevts as pydevts
from . import test_raw_rup as rup
from . import test_raw_udpc as udpc
from .raw import RawPeer, listening, u16, u32


class Talk(NamedTuple):
    """Two different messages, and how to know which of them a datagram acknowledges."""

    messages: Sequence[bytes]
    acknowledgements: Sequence[Callable[[bytes], bool]]


def holds(offset: int, wanted: bytes, kind: Callable[[bytes], bool] = bool) -> Callable[[bytes], bool]:
    """Return whether a datagram of a kind has these bytes at an offset."""
    return lambda data: kind(data) and data[offset:].startswith(wanted)


def talk_udpc(peer: RawPeer) -> Talk:
    session = udpc.shake_hands(peer)
    messages = [udpc.packet(index, session, 0, udpc.IMP, b"%d" % index) for index in (7, 8)]
    return Talk(messages, [holds(8, u32(index) + bytes([udpc.IMP | udpc.ACK])) for index in (7, 8)])


def talk_stamped(peer: RawPeer) -> Talk:
    server, kind = mrp.open_connection(peer), mrp.of_type(mrp.ACKNOWLEDGEMENT)
    messages = [mrp.stamped(server, 1, sequence, 9, b"%d" % sequence) for sequence in (1, 2)]
    return Talk(messages, [holds(10, u16(sequence), kind) for sequence in (1, 2)])


def talk_piggyback(peer: RawPeer) -> Talk:
    server, kind = mrp.open_connection(peer, client=9, version=1), mrp.of_type(mrp.DATA)
    messages = [mrp.piggyback(9, server, sequence, 0, b"%d" % sequence) for sequence in (1, 2)]
    return Talk(messages, [holds(10, u16(sequence), kind) for sequence in (1, 2)])


def talk_rup(peer: RawPeer) -> Talk:
    identities = (rup.ID, rup.OTHER)
    return Talk([rup.part(0, 2, b"hi", one) for one in identities], [rup.is_confirm(2, one) for one in identities])


def talk_pydevts(peer: RawPeer) -> Talk:
    acks = [pydevts.header(pydevts.ACK, 0, 5, zlib.crc32(body)) for body in (b"one", b"two")]
    return Talk([pydevts.packet(5, body) for body in (b"one", b"two")], [ack.__eq__ for ack in acks])


TALKS = {
    "udpc": ("udpc", talk_udpc),
    "stamped": ("mrp", talk_stamped),
    "piggyback": ("mrp", talk_piggyback),
    "rup": ("rup", talk_rup),
    "pydevts": ("pydevts", talk_pydevts),
}


@pytest.mark.parametrize("name", TALKS)
def test_after_the_last_message_and_together_with_it_only_copies_are_answered_and_then_it_exits_0(name: str) -> None:
    scheme, begin = TALKS[name]
    with listening(scheme, "--count", "1") as (command, peer):
        (first, second), (first_acknowledged, second_acknowledged) = begin(peer)
        peer.send(first)
        peer.send(second)
        peer.expect(first_acknowledged)
        assert command.message()["size"] > 0
        peer.send(second)
        peer.send(first)
        seen = [peer.receive()]
        while not first_acknowledged(seen[-1]):
            seen.append(peer.receive())
        assert not any(second_acknowledged(datagram) for datagram in seen)
        assert command.exit_code() == 0
        command.no_more_lines()


def test_an_mrp_packet_ahead_of_the_count_is_neither_printed_nor_acknowledged() -> None:
    with listening("mrp", "--count", "2") as (command, peer):
        server = mrp.open_connection(peer)
        for sequence in (3, 2, 1):
            peer.send(mrp.stamped(server, 1, sequence, sequence, b"m%d" % sequence))
        answers = [peer.expect(mrp.of_type(mrp.ACKNOWLEDGEMENT))[10:12] for _ in range(2)]
        assert answers == [u16(1), u16(2)]
        peer.expect_silence(mrp.of_type(mrp.ACKNOWLEDGEMENT), 0.5)
        assert [command.message()["body"] for _ in range(2)] == ["m1", "m2"]
        assert command.exit_code() == 0


def test_a_session_that_its_peer_has_closed_is_not_waited_for() -> None:
    with listening("udpc", "--count", "1", "--echo") as (command, peer):
        session = udpc.shake_hands(peer)
        peer.send(udpc.packet(3, session, 0, udpc.REQ, b"ask"))
        assert udpc.fields(peer.expect(udpc.has_flag(udpc.ACK)))[4] == b"ask"
        peer.send(udpc.packet(4, session, 0, udpc.FIN))
        assert command.message()["kind"] == "request"
        assert command.exit_code() == 0
