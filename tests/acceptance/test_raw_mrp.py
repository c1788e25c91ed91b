"""mrp by bytes: raw peers of both layouts against `fairway listen` and `send`."""

from __future__ import annotations

from collections.abc import Callable

from .raw import RawPeer, answering, fairway, listening, u16, u24

MRP = b"MRP"
CONNECT, REPLY, DATA, ACKNOWLEDGEMENT = 1, 2, 3, 4


def connect(version: int, client: int) -> bytes:
    return MRP + bytes([CONNECT, version]) + u24(client)


def reply(client: int, server: int, status: int = 1) -> bytes:
    return MRP + bytes([REPLY, status, 0]) + u24(client) + u24(server)


def stamped(to: int, source: int, sequence: int, stamp: int, body: bytes = b"", kind: int = DATA) -> bytes:
    return MRP + bytes([kind]) + u24(to) + u24(source) + u16(sequence) + u16(stamp) + body


def piggyback(source: int, to: int, sequence: int, acknowledged: int, body: bytes = b"") -> bytes:
    return MRP + bytes([DATA]) + u16(source) + u16(to) + u16(sequence) + u16(acknowledged) + body


def of_type(kind: int) -> Callable[[bytes], bool]:
    return lambda datagram: datagram[:4] == MRP + bytes([kind])


def open_connection(peer: RawPeer, client: int = 1, version: int = 0) -> int:
    """Connect as a client and return the server's id."""
    peer.send(connect(version, client))
    answer = peer.expect(of_type(REPLY))
    assert len(answer) == 12
    assert answer[:9] == reply(client, 0)[:9]
    server = int.from_bytes(answer[9:12], "big")
    assert server != 0
    return server


def test_stamped_data_is_printed_in_order_and_each_packet_acknowledged_by_name() -> None:
    with listening("mrp") as (command, peer):
        server = open_connection(peer)
        for sequence, stamp in ((2, 20), (3, 30), (1, 10)):
            peer.send(stamped(server, 1, sequence, stamp, b"m%d" % sequence))
            answer = peer.expect(of_type(ACKNOWLEDGEMENT))
            assert answer == stamped(1, server, sequence, stamp, kind=ACKNOWLEDGEMENT)
        messages = [command.message() for _ in range(3)]
        assert [message["body"] for message in messages] == ["m1", "m2", "m3"]
        assert [message["id"] for message in messages] == [1, 2, 3]
        assert {message["session"] for message in messages} == {server}
        assert messages[0]["protocol"] == "mrp"


def answer_connect(peer: RawPeer, server: int, version: int) -> int:
    """Accept a connection as a server and return the client's id."""
    call = peer.expect(of_type(CONNECT))
    assert len(call) == 8
    assert call[4] == version
    client = int.from_bytes(call[5:8], "big")
    assert client != 0
    peer.send(reply(client, server))
    return client


def test_send_connects_repeats_and_exits_0_when_acknowledged() -> None:
    with answering() as peer, fairway("send", f"mrp://127.0.0.1:{peer.port}", "hello") as command:
        first = peer.receive()
        assert peer.receive() == first
        client = answer_connect(peer, 7, 0)
        datagram = peer.expect(lambda datagram: of_type(DATA)(datagram) and datagram[10:12] == u16(1))
        assert datagram[4:10] == u24(7) + u24(client)
        assert datagram[14:] == b"hello"
        copy = peer.expect(of_type(DATA))
        assert copy[:12] == datagram[:12]
        peer.send(stamped(client, 7, 1, int.from_bytes(copy[12:14], "big") ^ 0x4000, kind=ACKNOWLEDGEMENT))
        again = peer.expect(of_type(DATA))
        peer.send(stamped(client, 7, 1, int.from_bytes(again[12:14], "big"), kind=ACKNOWLEDGEMENT))
        assert command.exit_code() == 0


def test_send_in_the_piggyback_layout() -> None:
    with answering() as peer, fairway("send", f"mrp://127.0.0.1:{peer.port}?layout=piggyback", "hello") as command:
        client = answer_connect(peer, 7, 1)
        datagram = peer.expect(lambda datagram: of_type(DATA)(datagram) and len(datagram) > 12)
        assert datagram == piggyback(client, 7, 1, 0, b"hello")
        peer.send(piggyback(7, client, 0, 1))
        assert command.exit_code() == 0


def test_a_rejected_connect_exits_4() -> None:
    with answering() as peer, fairway("send", f"mrp://127.0.0.1:{peer.port}", "hello") as command:
        call = peer.expect(of_type(CONNECT))
        peer.send(reply(int.from_bytes(call[5:8], "big"), 0, status=2))
        assert command.exit_code() == 4
