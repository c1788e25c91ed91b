"""udpc by bytes: raw peers against `fairway listen`, `send` and `request`."""

from __future__ import annotations

from collections.abc import Callable

from .raw import RawPeer, answering, fairway, listening, u32

ACK, REQ, ASY, SYN, IMP, FIN, HBT = 0x01, 0x02, 0x04, 0x08, 0x10, 0x20, 0x40


def packet(index: int, session: int, acknowledged: int, flag: int, body: bytes = b"") -> bytes:
    return u32(index) + u32(session) + u32(acknowledged) + bytes([flag]) + body


def fields(datagram: bytes) -> tuple[int, int, int, int, bytes]:
    assert len(datagram) >= 13
    index, session, acknowledged = (int.from_bytes(datagram[at : at + 4], "big") for at in (0, 4, 8))
    return index, session, acknowledged, datagram[12], datagram[13:]


def has_flag(flag: int) -> Callable[[bytes], bool]:
    return lambda datagram: datagram[12] == flag


def shake_hands(peer: RawPeer, call: int = 5, index: int = 1) -> int:
    """Open a session as a client and return its sessionID."""
    peer.send(packet(index, call, 0, SYN))
    _, session, acknowledged, _, body = fields(peer.expect(has_flag(SYN | ACK)))
    assert session != 0
    assert acknowledged == index
    assert body == b""
    peer.send(packet(index + 1, session, 1, ACK))
    return session


def be_called(peer: RawPeer, session: int = 0x0A0B0C0D) -> bytes:
    """Accept a call as a server and return the SYN."""
    call = peer.expect(has_flag(SYN))
    assert len(call) == 13
    index, offered, acknowledged, _, _ = fields(call)
    assert 1 <= index < 2**31
    assert offered != 0
    assert acknowledged == 0
    peer.send(packet(1, session, index, SYN | ACK))
    _, adopted, acknowledged, _, body = fields(peer.expect(has_flag(ACK)))
    assert (adopted, acknowledged, body) == (session, 1, b"")
    return call


def answer(peer: RawPeer, flag: int, answers: int, body: bytes = b"") -> int:
    """Accept a call, answer its first packet with a flag, and return the session."""
    be_called(peer)
    index, session, _, _, _ = fields(peer.expect(has_flag(flag)))
    peer.send(packet(2, session, index, answers, body))
    return session


def test_an_important_packet_is_printed_once_and_every_copy_acknowledged() -> None:
    with listening("udpc") as (command, peer):
        session = shake_hands(peer)
        for _ in range(3):
            peer.send(packet(7, session, 0, IMP, b"hi"))
        indices = []
        for _ in range(3):
            index, acked_session, acknowledged, _, body = fields(peer.expect(has_flag(IMP | ACK)))
            assert (acked_session, acknowledged, body) == (session, 7, b"")
            indices.append(index)
        assert len({*indices}) == 3
        message = command.message()
        assert message["protocol"] == "udpc"
        assert message["peer"] == f"127.0.0.1:{peer.port}"
        assert (message["session"], message["id"]) == (session, 7)
        assert (message["size"], message["body"], message["encoding"]) == (2, "hi", "utf8")
        command.no_more_lines()


def test_a_body_that_is_not_text_is_printed_as_base64() -> None:
    with listening("udpc") as (command, peer):
        session = shake_hands(peer)
        peer.send(packet(3, session, 0, 0, b"\xff\x00"))
        message = command.message()
        assert (message["kind"], message["size"]) == ("plain", 2)
        assert (message["body"], message["encoding"]) == ("/wA=", "base64")


def test_send_calls_repeats_and_exits_0_when_acknowledged() -> None:
    with answering() as peer, fairway("send", f"udpc://127.0.0.1:{peer.port}", "hello") as command:
        first = peer.receive()
        assert peer.receive() == first
        call = be_called(peer)
        assert call == first
        datagram = peer.expect(has_flag(IMP))
        index, session, acknowledged, _, body = fields(datagram)
        assert (session, acknowledged, body) == (0x0A0B0C0D, 0, b"hello")
        assert peer.expect(has_flag(IMP)) == datagram
        peer.send(packet(2, session, index, IMP | ACK))
        assert peer.expect(has_flag(FIN))[4:8] == u32(session)
        assert command.exit_code() == 0


def test_a_plain_packet_is_sent_once() -> None:
    with answering() as peer, fairway("send", f"udpc://127.0.0.1:{peer.port}", "hello", "--plain") as command:
        be_called(peer)
        assert fields(peer.expect(has_flag(0)))[4] == b"hello"
        peer.expect_silence(has_flag(0), 0.5)
        assert command.exit_code() == 0
