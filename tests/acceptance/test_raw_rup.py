"""rup by bytes: raw peers against `fairway listen` and `send`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from .raw import RawPeer, answering, fairway, listening

ID = b"0123456789abcdef0123456789abcdef"
OTHER = b"fedcba9876543210fedcba9876543210"


def uint(number: int) -> bytes:
    return bytes([number % 255, number // 255 % 255, number // 255**2 % 255, number // 255**3 % 255])


def number(digits: bytes) -> int:
    return sum(digit * 255**index for index, digit in enumerate(digits))


def part(position: int, total: int, body: bytes, message: bytes = ID, start: int | None = None) -> bytes:
    first = (position == 0) if start is None else start
    return b"d" + bytes([first]) + message + uint(position) + uint(total) + body


def request(position: int, message: bytes = ID) -> bytes:
    return b"r" + message + b"\x00" + uint(position)


def confirm(to: int, message: bytes = ID) -> bytes:
    return b"c" + message + b"\x00" + uint(to)


def is_confirm(of: int, message: bytes = ID) -> Callable[[bytes], bool]:
    return lambda datagram: datagram == confirm(of, message)


BODY = bytes(range(256)) * 10


def parts(size: int, body: bytes = BODY) -> list[bytes]:
    return [part(at, len(body), body[at : at + size]) for at in range(0, len(body), size)]


def test_parts_in_any_order_make_the_message_and_are_confirmed() -> None:
    with listening("rup") as (command, peer):
        datagrams = parts(1_000)
        for datagram in datagrams[-1:] + datagrams[:-1]:
            peer.send(datagram)
        peer.expect(is_confirm(len(BODY)))
        message = command.message()
        assert (message["session"], message["id"], message["size"]) == (None, ID.decode(), len(BODY))
        assert message["protocol"] == "rup"
        peer.send(datagrams[0])
        peer.expect(is_confirm(len(BODY)))
        command.no_more_lines()


def collect(peer: RawPeer, total: int) -> tuple[bytes, dict[int, bytes]]:
    """Receive parts, confirming them on the way, until all but the last byte are known; return id and parts."""
    held: dict[int, bytes] = {}
    message = b""
    while sum(map(len, held.values())) < total:
        datagram = peer.expect(lambda datagram: datagram[:1] == b"d")
        message, position = datagram[2:34], number(datagram[34:38])
        assert datagram[1] == (position == 0)
        assert number(datagram[38:42]) == total
        assert int(message, 16) >= 0
        assert message == message.lower()
        held[position] = datagram[42:]
        upto = 0
        while upto in held:
            upto += len(held[upto])
        if upto < total:
            peer.send(confirm(upto, message))
    return message, held


def test_send_cuts_a_file_answers_requests_and_exits_0_at_confirm_total(tmp_path: Path) -> None:
    body = bytes(range(251)) * 40
    path = tmp_path / "body"
    path.write_bytes(body)
    with answering() as peer, fairway("send", f"rup://127.0.0.1:{peer.port}", "--file", str(path)) as command:
        message, held = collect(peer, len(body))
        sizes = [len(held[position]) for position in sorted(held)]
        assert b"".join(held[position] for position in sorted(held)) == body
        assert len({*sizes[:-1]}) == 1
        assert max(sizes) + 42 <= 1_200
        peer.send(request(sizes[0], message))
        repaired = peer.expect(lambda datagram: datagram[:1] == b"d" and datagram[34:38] == uint(sizes[0]))
        assert repaired[42:] == held[sizes[0]]
        peer.send(request(7, message))
        peer.send(confirm(len(body), message))
        assert command.exit_code() == 0
