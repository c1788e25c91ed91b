"""Legal receivers that are unlike our own, on real sockets: few messages at a time, one packet at a time, or mute."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.loopback import closed_port

from . import test_raw_mrp as mrp
from . import test_raw_rup as rup
from .raw import PATIENCE_S, RawPeer, answering, url_of

SERVER = 7


@contextmanager
def serving(receive: Callable[[RawPeer, bytes], None]) -> Iterator[RawPeer]:
    """A raw peer that answers every datagram in a thread of its own."""
    done = threading.Event()

    def serve(peer: RawPeer) -> None:
        while not done.is_set():
            try:
                datagram = peer.receive(0.2)
            except TimeoutError:
                continue
            receive(peer, datagram)

    with answering() as peer:
        thread = threading.Thread(target=serve, args=(peer,))
        thread.start()
        try:
            yield peer
        finally:
            done.set()
            thread.join()


def send_lines(url: str, lines: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run `fairway send --lines` with these lines to its end."""
    path = folder / "lines"
    path.write_text("".join(f"{line}\n" for line in lines))
    command = [sys.executable, "-m", "fairway", "send", url_of(url), "--lines"]
    with path.open() as source:
        return subprocess.run(command, stdin=source, capture_output=True, text=True, check=False, timeout=PATIENCE_S)


def numbered(count: int, size: int = 10) -> list[str]:
    return [f"{number:08}".ljust(size, ".") for number in range(count)]


class BoundedRup:
    """Takes so many messages at a time and ignores the others in silence; confirms each part at once."""

    def __init__(self, unfinished_max: int) -> None:
        self.unfinished_max = unfinished_max
        self.ignored = 0
        self.bodies: list[bytes] = []
        self._unfinished: dict[bytes, dict[int, bytes]] = {}
        self._done: dict[bytes, int] = {}

    def __call__(self, peer: RawPeer, datagram: bytes) -> None:
        identity, position, total = datagram[2:34], rup.number(datagram[34:38]), rup.number(datagram[38:42])
        if identity in self._done:
            peer.send(rup.confirm(total, identity))
            return
        if identity not in self._unfinished and len(self._unfinished) >= self.unfinished_max:
            self.ignored += 1
            return
        held = self._unfinished.setdefault(identity, {})
        held[position] = datagram[42:]
        upto = 0
        while upto in held:
            upto += len(held[upto])
        if upto == total:
            self.bodies.append(b"".join(held[at] for at in sorted(held)))
            self._done[identity] = total
            del self._unfinished[identity]
        peer.send(rup.confirm(upto, identity))


@pytest.mark.parametrize(("unfinished_max", "count"), [(8, 300), (1, 100)])
def test_a_rup_receiver_that_takes_few_messages_at_a_time_gets_them_all(
    tmp_path: Path, unfinished_max: int, count: int
) -> None:
    lines, receiver = numbered(count, 20_000), BoundedRup(unfinished_max)
    with serving(receiver) as peer:
        sent = send_lines(f"rup://127.0.0.1:{peer.port}", lines, tmp_path)
    assert (sent.returncode, sent.stderr) == (0, "")
    assert sorted(receiver.bodies) == [line.encode() for line in lines]
    assert receiver.ignored > 0


class PingPong:
    """The strict receiver of the original mrp: takes only the next packet and drops what is ahead without a word.

    The first transmission of every `loses`-th packet is lost.
    """

    def __init__(self, layout: str, loses: int) -> None:
        self.layout = layout
        self.loses = loses
        self.bodies: list[bytes] = []
        self._lost: set[int] = set()
        self._client = 0

    def __call__(self, peer: RawPeer, datagram: bytes) -> None:
        if mrp.of_type(mrp.CONNECT)(datagram):
            self._client = int.from_bytes(datagram[5:8], "big")
            peer.send(mrp.reply(self._client, SERVER))
        elif mrp.of_type(mrp.DATA)(datagram):
            stamped = self.layout == "stamped"
            body = datagram[14 if stamped else 12 :]
            sequence = int.from_bytes(datagram[10:12] if stamped else datagram[8:10], "big")
            following = len(self.bodies) + 1
            if not body or sequence > following:
                return
            if sequence % self.loses == 0 and sequence not in self._lost:
                self._lost.add(sequence)
                return
            if sequence == following:
                self.bodies.append(body)
            if stamped:
                stamp = int.from_bytes(datagram[12:14], "big")
                peer.send(mrp.stamped(self._client, SERVER, sequence, stamp, kind=mrp.ACKNOWLEDGEMENT))
            else:
                peer.send(mrp.piggyback(SERVER, self._client, 0, len(self.bodies)))


@pytest.mark.parametrize("layout", ["stamped", "piggyback"])
def test_a_strict_ping_pong_receiver_of_mrp_gets_every_line_in_order_although_some_packets_are_lost(
    tmp_path: Path, layout: str
) -> None:
    lines, receiver = numbered(1_000), PingPong(layout, loses=100)
    with serving(receiver) as peer:
        sent = send_lines(f"mrp://127.0.0.1:{peer.port}?layout={layout}", lines, tmp_path)
    assert (sent.returncode, sent.stderr) == (0, "")
    assert receiver.bodies == [line.encode() for line in lines]


@pytest.mark.parametrize("url", ["rup://{}?silence=2s", "pydevts://{}?repeat_after=0.2s"])
def test_a_peer_that_reads_nothing_ends_every_line_with_exit_3(tmp_path: Path, url: str) -> None:
    """The port is bound, so no ICMP answers. What never left is not unknown: it cannot have arrived."""
    with answering() as peer:
        sent = send_lines(url.format(f"127.0.0.1:{peer.port}"), numbered(1_000), tmp_path)
    assert sent.returncode == 3
    counts = re.match(r"0 acknowledged, (\d+) not sent, (\d+) unknown", sent.stdout)
    assert counts is not None, sent.stdout
    assert int(counts[1]) + int(counts[2]) == 1_000


@pytest.mark.parametrize("scheme", ["udpc", "mrp", "rup", "pydevts"])
def test_a_closed_port_ends_every_line_at_once_with_exit_3(tmp_path: Path, scheme: str) -> None:
    sent = send_lines(f"{scheme}://{closed_port()}", numbered(1_000), tmp_path)
    assert sent.returncode == 3
    assert "ICMP" in sent.stderr
