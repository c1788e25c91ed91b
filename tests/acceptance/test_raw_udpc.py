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
    """Opens a session as a client and gives its sessionID."""
    peer.send(packet(index, call, 0, SYN))
    _, session, acknowledged, _, body = fields(peer.expect(has_flag(SYN | ACK)))
    assert session != 0
    assert acknowledged == index
    assert body == b""
    peer.send(packet(index + 1, session, 1, ACK))
    return session


def be_called(peer: RawPeer, session: int = 0x0A0B0C0D) -> bytes:
    """Accepts a call as a server and gives the SYN."""
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
        assert (message["size"], message["body"], message["encoding"]) == (2, "/wA=", "base64")


def test_bad_datagrams_get_no_answer_and_change_nothing() -> None:
    with listening("udpc") as (command, peer):
        session = shake_hands(peer)
        for bad in (
            packet(0, session, 0, IMP, b"x"),
            packet(9, 0, 0, IMP, b"x"),
            packet(9, session ^ 1, 0, IMP, b"x"),
            packet(9, session, 0, REQ | IMP, b"x"),
            packet(9, session, 0, 0x80, b"x"),
            packet(9, session, 0, ASY, b"x"),
            packet(9, session, 0, SYN | IMP),
            packet(9, session, 0, HBT, b"x"),
            packet(9, session, 1, HBT | ACK, b"x"),
            packet(9, session, 0, FIN, b"x"),
            packet(9, session, 7, IMP | ACK, b"x"),
            b"",
            b"\x00" * 12,
        ):
            peer.send(bad)
        peer.send(packet(10, session, 0, IMP, b"good"))
        assert fields(peer.receive())[2:4] == (10, IMP | ACK)
        assert command.message()["body"] == "good"
        command.no_more_lines()


def test_a_heartbeat_is_answered_and_a_silent_peer_gets_one() -> None:
    with listening("udpc") as (_, peer):
        session = shake_hands(peer)
        peer.send(packet(3, session, 0, HBT))
        assert fields(peer.expect(has_flag(HBT | ACK)))[1:3] == (session, 3)
        assert fields(peer.expect(has_flag(HBT)))[1] == session


def test_a_request_is_handed_over_once_and_every_copy_gets_the_same_response() -> None:
    with listening("udpc", "--echo") as (command, peer):
        session = shake_hands(peer)
        answers = []
        for _ in range(2):
            peer.send(packet(3, session, 0, REQ, b"what"))
            answers.append(peer.expect(lambda datagram: datagram[12] == ACK and datagram[8:12] == u32(3)))
        assert answers[0] == answers[1]
        assert fields(answers[0])[4] == b"what"
        assert command.message()["body"] == "what"
        command.no_more_lines()


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
