"""Every way of moving datagrams moves the same datagrams."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable
from typing import Any, cast

import pytest

from fairway.core.errors import BadOption
from fairway.core.events import Address
from fairway.core.machine import Buffer, Transmit
from fairway.net import kernel, mmsg, outlet
from fairway.net.counters import SocketCounters
from fairway.net.inlet import DRAIN_CALLS_MAX, LONE_READS_MAX, Inlet
from fairway.net.layers import Link
from fairway.net.link import SocketLink, open_link
from fairway.net.outlet import Outlet, join_neighbours
from tests.loopback import own_host
from tests.net.worlds import PATHS, io_of


class Ear:
    """Keeps what a link passes on, cut into datagrams again."""

    def __init__(self) -> None:
        self.link: Link | None = None
        self.datagrams: list[tuple[bytes, Address]] = []
        self.passed_on = 0
        self.errors: list[tuple[Address | None, int]] = []
        self.limits: list[int] = []
        self._enough: tuple[int, asyncio.Future[None]] | None = None

    def readable(self) -> None:
        assert self.link is not None
        self.link.drain(self.receive)
        if self._enough is not None and len(self.datagrams) >= self._enough[0] and not self._enough[1].done():
            self._enough[1].set_result(None)

    def receive(self, data: Buffer, address: Address, segment_bytes: int | None) -> None:
        self.passed_on += 1
        copied = bytes(data)
        assert segment_bytes is None or 0 < segment_bytes < len(copied)
        step = segment_bytes or len(copied) or 1
        for start in range(0, len(copied) or 1, step):
            self.datagrams.append((copied[start : start + step], address))

    def unreachable(self, address: Address | None, why: int | str) -> None:
        assert isinstance(why, int)
        self.errors.append((address, why))
        if self._enough is not None and not self._enough[1].done():
            self._enough[1].set_result(None)

    def path_limited(self, datagram_bytes: int, *, fragments: bool) -> None:
        self.limits.append(datagram_bytes)

    async def until(self, count: int) -> list[bytes]:
        if len(self.datagrams) < count and not self.errors:
            self._enough = (count, asyncio.get_running_loop().create_future())
            await self._enough[1]
        return [data for data, _ in self.datagrams]


async def open_ear(path: str, host: str = "", remote: Address | None = None) -> tuple[Ear, Link]:
    ear = Ear()
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM)
    sock.setblocking(False)
    if remote is not None:
        sock.connect(remote)  # type: ignore[arg-type]
    else:
        sock.bind((host or own_host(), 0))
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
    try:
        ear.link = await open_link(sock, io=io_of(path), remote=remote)
    except BaseException:
        sock.close()
        raise
    ear.link.start(ear)
    return ear, ear.link


LOADS: dict[str, list[tuple[bytes, int | None]]] = {
    "one": [(b"one", None)],
    "an empty one": [(b"a", None), (b"", None), (b"b", None)],
    "equal ones": [(b"x%03d" % number, None) for number in range(50)],
    "sizes up and down": [(bytes([number]) * (1 + number * 7 % 50), None) for number in range(100)],
    "a run with a short end": [(bytes(range(250)) * 3, 100)],
    "runs that follow one another": [(bytes([number]) * 500, 100) for number in range(20)],
    "a run of smaller ones that fit one larger": [(bytes(300), 100), (b"y" * 80, 40), (bytes(200), 100)],
    "more segments than one call takes": [(bytes(300 * 40), 40)],
    "more bytes than one call takes": [(bytes(200_000), 1_200)],
    "the largest datagram": [(bytes(65_507), None), (b"small", None)],
    "large segments": [(bytes(90_000), 30_000)],
}


def datagrams_of(load: list[tuple[bytes, int | None]]) -> list[bytes]:
    return [
        data[start : start + (segment or len(data) or 1)]
        for data, segment in load
        for start in range(0, len(data) or 1, segment or len(data) or 1)
    ]


@pytest.mark.parametrize("path", PATHS)
async def test_every_path_delivers_the_same_datagrams_in_order(path: str) -> None:
    ear, inbound = await open_ear(path)
    _, outbound = await open_ear(path, remote=inbound.local)
    expected: list[bytes] = []
    for name, load in LOADS.items():
        expected += datagrams_of(load)
        outbound.send([Transmit(inbound.local, data, segment) for data, segment in load])
        assert await ear.until(len(expected)) == expected, name
    assert {address for _, address in ear.datagrams} == {outbound.local}
    assert inbound.counters.path == outbound.counters.path == path
    inbound.close()
    outbound.close()


@pytest.mark.parametrize("sending", ["gso", "mmsg", "portable"])
@pytest.mark.parametrize("receiving", ["gso", "mmsg", "portable"])
async def test_any_path_understands_any_other(sending: str, receiving: str) -> None:
    ear, inbound = await open_ear(receiving)
    _, outbound = await open_ear(sending)
    load: list[tuple[bytes, int | None]] = [(bytes([number % 251]) * 900, 90) for number in range(100)]
    outbound.send([Transmit(inbound.local, data, segment) for data, segment in load])
    assert await ear.until(1_000) == datagrams_of(load)
    inbound.close()
    outbound.close()


@pytest.mark.parametrize("path", PATHS)
async def test_two_senders_are_told_apart_on_ipv6(path: str) -> None:
    ear, inbound = await open_ear(path, host="::1")
    senders = [(await open_ear(path, host="::1"))[1] for _ in range(2)]
    for number in range(20):
        senders[number % 2].send([Transmit(inbound.local, b"from %d" % (number % 2), None)])
    await ear.until(20)
    by_sender = {address: data for data, address in ear.datagrams}
    assert by_sender == {senders[0].local: b"from 0", senders[1].local: b"from 1"}
    for one in (inbound, *senders):
        one.close()


@pytest.mark.parametrize("path", ["gso", "mmsg", "portable"])
async def test_equal_datagrams_are_passed_on_together(path: str) -> None:
    ear, inbound = await open_ear(path)
    _, outbound = await open_ear("portable")
    for _ in range(3):
        before = len(ear.datagrams)
        ear.passed_on = 0
        outbound.send([Transmit(inbound.local, bytes(100), None)] * 40)
        await ear.until(before + 40)
    assert ear.passed_on <= 2
    inbound.close()
    outbound.close()


async def test_a_kernel_that_merges_nothing_is_read_with_recvmmsg() -> None:
    ear, inbound = await open_ear("gso")
    _, outbound = await open_ear("portable")
    for _ in range(2):
        before = len(ear.datagrams), inbound.counters.receive_calls
        outbound.send([Transmit(inbound.local, bytes(100), None)] * 64)
        await ear.until(before[0] + 64)
    assert inbound.counters.receive_calls - before[1] < 10
    # Merged ones are understood in between, and lead back.
    _, merging = await open_ear("gso")
    merging.send([Transmit(inbound.local, bytes(range(200)) * 50, 200)])
    await ear.until(128 + 50)
    assert inbound.counters.merged_receives == 1
    assert ear.datagrams[-1][0] == bytes(range(200))
    for one in (inbound, outbound, merging):
        one.close()


async def test_a_drain_is_bounded() -> None:
    ear, inbound = await open_ear("portable")
    _, outbound = await open_ear("portable")
    outbound.send([Transmit(inbound.local, b"x", None)] * (DRAIN_CALLS_MAX + 10))
    assert inbound.drain(ear.receive) == DRAIN_CALLS_MAX
    assert inbound.drain(ear.receive) == 10
    inbound.close()
    outbound.close()


@pytest.mark.parametrize("path", ["gso", "mmsg", "portable"])
async def test_what_the_kernel_drops_is_counted(path: str) -> None:
    ear, inbound = await open_ear(path)
    _, outbound = await open_ear("portable")
    inbound.pause()
    for _ in range(12):
        outbound.send([Transmit(inbound.local, bytes(60_000), None)] * 20)
    inbound.refresh()
    assert inbound.counters.kernel_dropped > 0
    inbound.resume()
    await ear.until(240 - inbound.counters.kernel_dropped)
    assert len(ear.datagrams) == 240 - inbound.counters.kernel_dropped
    inbound.close()
    outbound.close()


@pytest.mark.parametrize("path", PATHS)
async def test_icmp_from_a_closed_port_is_told_on_a_connected_socket(path: str) -> None:
    closed = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    closed.bind((own_host(), 0))
    address = closed.getsockname()
    closed.close()
    ear, outbound = await open_ear(path, remote=address)
    outbound.send([Transmit(address, b"anyone?", None)])
    await ear.until(1)
    assert ear.errors == [(address, errno.ECONNREFUSED)]
    assert outbound.counters.unreachable == 1
    outbound.close()


@pytest.mark.parametrize("host", ["", "::1"])
@pytest.mark.parametrize("path", ["gso", "mmsg", "portable"])
async def test_icmp_is_told_with_its_address_on_a_socket_for_many(path: str, host: str) -> None:
    ear, outbound = await open_ear(path, host=host)
    other, inbound = await open_ear(path, host=host)
    _, closed = await open_ear(path, host=host)
    address = closed.local
    closed.close()
    outbound.expect_errors(True)
    outbound.send([Transmit(address, b"anyone?", None)])
    await ear.until(1)
    assert ear.errors == [(address, errno.ECONNREFUSED)]
    outbound.send([Transmit(inbound.local, b"you", None)])
    assert await other.until(1) == [b"you"]
    outbound.close()
    inbound.close()


async def test_a_socket_for_many_hears_no_icmp_unless_it_asked() -> None:
    ear, outbound = await open_ear("gso")
    other, inbound = await open_ear("gso")
    _, closed = await open_ear("gso")
    address = closed.local
    closed.close()
    outbound.expect_errors(True)
    outbound.expect_errors(False)
    outbound.send([Transmit(address, b"anyone?", None)] * 20)
    outbound.send([Transmit(inbound.local, b"you", None)])
    assert await other.until(1) == [b"you"]
    assert (ear.errors, outbound.counters.unreachable) == ([], 0)
    outbound.close()
    inbound.close()


class StubbornSocket:
    """A socket that takes so many datagrams and then would block, and fails with what `refuses` says of one."""

    def __init__(self, room: int = 99, refuses: Callable[[Buffer, Any], int] = lambda data, control: 0) -> None:
        self.room = room
        self.refuses = refuses
        self.taken: list[bytes] = []

    def send(self, data: Buffer) -> int:
        return self.sendmsg((data,), ())

    def sendto(self, data: Buffer, address: Address) -> int:
        return self.sendmsg((data,), ())

    def sendmsg(self, buffers: tuple[Buffer], control: Any, flags: int = 0, address: Address = None) -> int:
        number = errno.EAGAIN if self.room <= 0 else self.refuses(buffers[0], control)
        if number:
            raise OSError(number, "it does not")
        self.room -= 1
        self.taken.append(bytes(buffers[0]))
        return len(buffers[0])


def open_outlet(stubborn: StubbornSocket, *, segmented: bool) -> tuple[Outlet, SocketCounters, list[tuple[int, int]]]:
    errors = list[tuple[int, int]]()

    class Noting(Outlet):
        def _send_failed(self, address: Address, size: int, error: OSError, segmented: bool) -> None:
            errors.append((size, error.errno or 0))

    sock: Any = stubborn
    opened = Noting(sock, SocketCounters(), segmented=segmented, connected=False)
    return opened, opened.counters, errors


def test_what_the_kernel_has_no_room_for_waits_and_leaves_in_order() -> None:
    stubborn = StubbornSocket(2)
    out, counters, _ = open_outlet(stubborn, segmented=False)
    out.send([Transmit("a", b"112233", 2), Transmit("b", b"4", None)])
    out.send([Transmit("a", b"5", None)])
    assert (stubborn.taken, out.waiting, counters.would_block) == ([b"11", b"22"], True, 1)
    stubborn.room = 1
    out.send_waiting()
    assert out.waiting
    stubborn.room = 9
    out.send_waiting()
    assert stubborn.taken == [b"11", b"22", b"33", b"4", b"5"]
    assert not out.waiting


def test_what_waits_for_the_kernel_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outlet, "QUEUE_BYTES_MAX", 100)
    stubborn = StubbornSocket(0)
    out, counters, _ = open_outlet(stubborn, segmented=False)
    out.send([Transmit("a", bytes(60), 20), Transmit("a", bytes(60), 20)])
    assert counters.send_queue_dropped == 3
    stubborn.room = 9
    out.send_waiting()
    assert len(stubborn.taken) == 3


def test_a_kernel_that_takes_fewer_segments_gets_fewer() -> None:
    older = StubbornSocket(refuses=lambda data, control: errno.EINVAL if len(data) > 640 else 0)
    out, _, _ = open_outlet(older, segmented=True)
    out.send([Transmit("a", bytes(1_500), 10)])
    assert [len(data) for data in older.taken] == [640, 640, 220]


def test_a_device_that_cannot_cut_gets_single_datagrams() -> None:
    device = StubbornSocket(refuses=lambda data, control: errno.EIO if control else 0)
    out, _, _ = open_outlet(device, segmented=True)
    out.send([Transmit("a", b"aabbc", 2)])
    assert device.taken == [b"aa", b"bb", b"c"]


def test_a_path_that_is_too_narrow_for_a_segment_is_reported_and_served_one_by_one() -> None:
    def refuses(data: Buffer, control: Any) -> int:
        return errno.EMSGSIZE if control and int.from_bytes(control[0][2], kernel.BYTE_ORDER) > 500 else 0

    path = StubbornSocket(refuses=refuses)
    out, _, errors = open_outlet(path, segmented=True)
    out.send([Transmit("a", bytes(1_200), 600), Transmit("a", bytes(1_000), 500)])
    assert errors == [(600, errno.EMSGSIZE)]
    assert [len(data) for data in path.taken] == [600, 600, 1_000]


async def test_a_datagram_too_long_for_the_path_lowers_the_budget_once() -> None:
    ear, outbound = await open_ear("portable")
    outbound.send([Transmit(outbound.local, bytes(65_508), None), Transmit(outbound.local, bytes(65_520), None)])
    assert ear.limits == [65_507]
    assert outbound.counters.datagram_bytes_max == 65_507
    assert outbound.counters.send_failures == {"EMSGSIZE": 2}
    outbound.close()


def test_neighbours_for_one_address_leave_in_one_call() -> None:
    single = [Transmit("a", b"11", None), Transmit("a", b"22", None), Transmit("a", b"333", None)]
    other = [Transmit("b", b"44", None), Transmit("b", b"", None), Transmit("b", b"", None), Transmit("b", b"5566", 2)]
    assert join_neighbours(single + other) == [Transmit("a", b"1122", 2), *single[2:], *other]


async def test_a_forced_path_that_is_not_there_is_an_error_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "has_gso", lambda sock: False)
    monkeypatch.setattr(mmsg, "available", lambda: False)
    for path in ("gso", "mmsg"):
        with pytest.raises(BadOption, match=f"io is '{path}'"):
            await open_ear(path)
    _, chosen = await open_ear("auto")
    assert chosen.counters.path == "portable"
    chosen.close()


async def test_recvmmsg_is_chosen_where_the_kernel_does_not_merge(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "enable_gro", lambda sock: False)
    _, chosen = await open_ear("auto")
    assert chosen.counters.path == "mmsg"
    assert isinstance(chosen, SocketLink)
    chosen.close()


@pytest.mark.parametrize("path", [path for path in PATHS if path not in {"transport", "mmsg"}])
async def test_a_burst_after_datagrams_that_came_alone_is_read_together(path: str) -> None:
    ear, link = await open_ear(path)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as voice:
        for number in range(1, 4 * LONE_READS_MAX):
            voice.sendto(b"%d" % number, cast(Any, link.local))
            assert await ear.until(number) == [b"%d" % one for one in range(1, number + 1)]
        for number in range(100):
            voice.sendto(b"burst %02d" % number, cast(Any, link.local))
        burst = (await ear.until(4 * LONE_READS_MAX - 1 + 100))[4 * LONE_READS_MAX - 1 :]
        assert burst == [b"burst %02d" % number for number in range(100)]
        assert ear.passed_on < 4 * LONE_READS_MAX - 1 + 2 * LONE_READS_MAX
    link.close()


class Counted:
    """A socket that counts how often it is read."""

    family = socket.AF_INET

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self.reads = 0

    def recvfrom_into(self, buffer: Any) -> tuple[int, Any]:
        self.reads += 1
        return self._sock.recvfrom_into(buffer)


def test_after_a_datagram_that_came_alone_the_next_ones_are_read_with_one_call_each() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.setblocking(False)
        sock.bind(("127.0.0.1", 0))
        counted, ear = Counted(sock), Ear()
        inlet = Inlet(cast(socket.socket, counted), SocketCounters(), remote=None)
        reads = []
        for _ in range(LONE_READS_MAX + 2):
            sock.sendto(b"alone", sock.getsockname())
            before = counted.reads
            assert inlet.drain(ear.receive) == 1
            reads.append(counted.reads - before)
        assert reads == [2, *[1] * LONE_READS_MAX, 2]
        assert len(ear.datagrams) == LONE_READS_MAX + 2
        assert inlet.drain(ear.receive) == 0


async def test_a_full_kernel_is_waited_for_and_nothing_is_lost_or_reordered() -> None:
    """A pair of local datagram sockets, which hold a few datagrams and then would block."""
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    near.setblocking(False)
    far.setblocking(False)
    outbound = await open_link(near, io="portable", remote="far")
    outbound.start(Ear())
    ear = Ear()
    ear.link = await open_link(far, io="portable", remote="near")
    ear.link.start(ear)
    expected = [b"%04d" % number for number in range(2_000)]
    outbound.send([Transmit("far", b"".join(expected), 4)])
    assert outbound.counters.would_block == 1
    assert await ear.until(2_000) == expected
    assert outbound.counters.send_calls == 2_000
    outbound.close()
    ear.link.close()
