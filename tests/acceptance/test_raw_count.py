"""`listen --count N` by bytes: what is printed is acknowledged, its copies too, and nothing else."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from . import test_raw_mrp as mrp
from . import test_raw_pydevts as pydevts
from . import test_raw_rup as rup
from . import test_raw_udpc as udpc
from .raw import RawPeer, listening, u16, u32

Wanted = Callable[[bytes], bool]


@dataclass
class Talk:
    """How to say two different messages, and how to know their acknowledgements."""

    first: bytes
    first_acknowledged: Wanted
    second: bytes
    second_acknowledged: Wanted


def talk_udpc(peer: RawPeer) -> Talk:
    session = udpc.shake_hands(peer)

    def acknowledges(index: int) -> Wanted:
        return lambda datagram: datagram[12] == udpc.IMP | udpc.ACK and datagram[8:12] == u32(index)

    first, second = (udpc.packet(index, session, 0, udpc.IMP, b"%d" % index) for index in (7, 8))
    return Talk(first, acknowledges(7), second, acknowledges(8))


def talk_stamped(peer: RawPeer) -> Talk:
    server = mrp.open_connection(peer)

    def acknowledges(sequence: int) -> Wanted:
        return lambda datagram: mrp.of_type(mrp.ACKNOWLEDGEMENT)(datagram) and datagram[10:12] == u16(sequence)

    first, second = (mrp.stamped(server, 1, sequence, 9, b"%d" % sequence) for sequence in (1, 2))
    return Talk(first, acknowledges(1), second, acknowledges(2))


def talk_piggyback(peer: RawPeer) -> Talk:
    server = mrp.open_connection(peer, client=9, version=1)

    def acknowledges(sequence: int) -> Wanted:
        return lambda datagram: mrp.of_type(mrp.DATA)(datagram) and datagram[10:12] == u16(sequence)

    first, second = (mrp.piggyback(9, server, sequence, 0, b"%d" % sequence) for sequence in (1, 2))
    return Talk(first, acknowledges(1), second, acknowledges(2))


def talk_rup(peer: RawPeer) -> Talk:
    first, second = (rup.part(0, 2, b"hi", identity) for identity in (rup.ID, rup.OTHER))
    return Talk(first, rup.is_confirm(2), second, rup.is_confirm(2, rup.OTHER))


def talk_pydevts(peer: RawPeer) -> Talk:
    def acknowledges(body: bytes) -> Wanted:
        return lambda datagram: datagram == pydevts.header(pydevts.ACK, 0, 5, zlib.crc32(body))

    return Talk(
        pydevts.packet(5, b"one"), acknowledges(b"one"), pydevts.packet(5, b"two"), acknowledges(b"two")
    )  # fmt: skip


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
        talk = begin(peer)
        peer.send(talk.first)
        peer.send(talk.second)
        peer.expect(talk.first_acknowledged)
        assert command.message()["size"] > 0
        peer.send(talk.second)
        peer.send(talk.first)
        seen = [peer.receive()]
        while not talk.first_acknowledged(seen[-1]):
            seen.append(peer.receive())
        assert not any(talk.second_acknowledged(datagram) for datagram in seen)
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
