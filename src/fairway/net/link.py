"""A UDP socket on an event loop: drained when readable, flushed once per turn, in the fastest way that works here.

path       send                             receive
gso        segments cut by the kernel       merged by the kernel, `recvmmsg` while it merges nothing
mmsg       segments cut by the kernel       `recvmmsg`
           where it can
portable   one call a datagram              one call a datagram
transport  asyncio's datagram transport, for loops without `add_reader`
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections import deque
from typing import Any, Literal

from fairway.core.errors import BadOption
from fairway.core.events import Address
from fairway.core.machine import Transmit
from fairway.dtls import DtlsCounters
from fairway.net import kernel, mmsg
from fairway.net.counters import SocketCounters
from fairway.net.inlet import Inlet, ManyInlet, MergedInlet
from fairway.net.layers import Link, LinkEvents, Receive, Screen
from fairway.net.outlet import QUEUE_BYTES_MAX, Outlet

Io = Literal["auto", "gso", "mmsg", "portable"]
IO_CHOICES: tuple[Io, ...] = ("auto", "gso", "mmsg", "portable")

ARRIVED_MAX = 4_096
"""Datagrams that a transport pushed and that wait for the turn's drain; beyond it they are dropped and counted."""

LINK_BYTES = (65_535, 17_914, 9_000, 4_352, 1_500, 1_492, 1_400, 1_280, 1_006, 576, 296)
"""What links commonly take, headers included: guesses for a path of which nothing is known (RFC 1191, section 7.1)."""

IP_AND_UDP_HEADER_BYTES = {socket.AF_INET: 28, socket.AF_INET6: 48}

_log = logging.getLogger("fairway.net")


async def open_link(sock: socket.socket, *, io: Io, remote: Address | None) -> Link:
    """Put a bound, non-blocking socket on the running loop. Nothing is read before `start`."""
    loop = asyncio.get_running_loop()
    try:
        loop.remove_reader(sock.fileno())  # the cheapest way to ask whether the loop can watch sockets at all
    except NotImplementedError:
        if io not in {"auto", "portable"}:
            raise BadOption(f"io is {io!r}, but this event loop has no add_reader; use io=portable") from None
        return await TransportLink.open(sock, remote=remote)
    return SocketLink(sock, io=io, remote=remote)


class SocketLink(Outlet):
    """A socket that the loop watches and that is drained by hand."""

    deadline_us: int | None = None
    dtls: DtlsCounters | None = None

    def __init__(self, sock: socket.socket, *, io: Io, remote: Address | None) -> None:
        segmented = io != "portable" and kernel.has_gso(sock)
        super().__init__(sock, SocketCounters(), segmented=segmented, connected=remote is not None)
        self._loop = asyncio.get_running_loop()
        self._above: LinkEvents | None = None
        self._remote = remote
        self.local: Address = sock.getsockname()
        self.counters.receive_buffer_bytes = sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
        self._headers_bytes = IP_AND_UDP_HEADER_BYTES.get(socket.AddressFamily(sock.family), 0)
        self._errors_queued = kernel.queue_errors(sock, remote is not None)
        self._inlet = self._choose_inlet(io, segmented)
        self._paused = False

    def start(self, above: LinkEvents, screen: Screen | None = None) -> None:
        self._above = above
        self._loop.add_reader(self._sock.fileno(), above.readable)

    def _choose_inlet(self, io: Io, segmented: bool) -> Inlet | ManyInlet | MergedInlet:
        sock, counters = self._sock, self.counters
        if io in {"auto", "gso"}:
            if segmented and kernel.enable_gro(sock):
                kernel.try_option(sock, socket.SOL_SOCKET, kernel.SO_RXQ_OVFL)
                counters.path = "gso"
                return MergedInlet(sock, counters, remote=self._remote)
            if io == "gso":
                raise BadOption("io is 'gso', but this kernel has no UDP GSO and GRO; use io=auto")
        if io in {"auto", "mmsg"}:
            if mmsg.available():
                kernel.try_option(sock, socket.SOL_SOCKET, kernel.SO_RXQ_OVFL)
                counters.path = "mmsg"
                return ManyInlet(sock, counters)
            if io == "mmsg":
                raise BadOption("io is 'mmsg', but this system has no recvmmsg; use io=auto")
        counters.path = "portable"
        return Inlet(sock, counters, remote=self._remote)

    def drain(self, receive: Receive) -> int:
        """Pass on what has arrived and return the number of receives; errors that came back are reported."""
        if self._paused:
            return 0
        try:
            received = self._inlet.drain(receive)
        except OSError as error:
            self._take_errors(error)
            return 1
        if received == 0 and self._errors_queued:
            self._take_errors(None)
        return received

    def _take_errors(self, error: OSError | None) -> None:
        queued = kernel.path_errors(self._sock) if self._errors_queued else []
        for address, number, path_bytes in queued:
            if number == errno.EMSGSIZE:
                self._limit(path_bytes - self._headers_bytes, fragments=True)
            else:
                self._unreachable(address or self._remote, number)
        if error is not None and not queued and self._remote is not None:
            self._unreachable(self._remote, error.errno or 0)

    def _unreachable(self, address: Address | None, number: int) -> None:
        self.counters.unreachable += 1
        if self._above is not None:
            self._above.unreachable(address, number)

    def _blocked(self) -> None:
        self._loop.add_writer(self._sock.fileno(), self._writable)

    def _writable(self) -> None:
        self.send_waiting()
        if not self.waiting:
            self._loop.remove_writer(self._sock.fileno())

    def _send_failed(self, address: Address, size: int, error: OSError, segmented: bool) -> None:
        if error.errno == errno.EMSGSIZE:
            self._limit(self._path_bytes(size), fragments=segmented)
        elif error.errno in {errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ENETUNREACH}:
            # An unconnected socket reports here what an earlier datagram met, whoever that was for: the queue knows.
            if self._remote is None and error.errno == errno.ECONNREFUSED and self._errors_queued:
                self._take_errors(None)
            else:
                self._unreachable(address, error.errno)

    def _path_bytes(self, refused_bytes: int) -> int:
        """Return what the path takes instead of a datagram that was too large: what the kernel knows, or a guess."""
        known_bytes = kernel.path_bytes(self._sock) - self._headers_bytes
        if 0 < known_bytes < refused_bytes:
            return known_bytes
        smaller = (link_bytes - self._headers_bytes for link_bytes in LINK_BYTES)
        return next((size for size in smaller if size < refused_bytes), refused_bytes - 1)

    def _limit(self, datagram_bytes: int, *, fragments: bool) -> None:
        known = self.counters.datagram_bytes_max
        if datagram_bytes > 0 and (known == 0 or datagram_bytes < known):
            self.counters.datagram_bytes_max = datagram_bytes
            _log.warning("the path takes datagrams of at most %d bytes; the budget is lowered", datagram_bytes)
            if self._above is not None:
                self._above.path_limited(datagram_bytes, fragments=fragments)

    def expect_errors(self, wanted: bool) -> None:
        """Ask for the ICMP errors of a socket for many, or no longer.

        Only while a connect is under way: a flood from made-up addresses draws an error for every answer, and each
        would be paid for with a failed call.
        """
        if self._remote is None:
            self._errors_queued = kernel.queue_errors(self._sock, wanted)

    def pause(self) -> None:
        if not self._paused:
            self._paused = True
            self._loop.remove_reader(self._sock.fileno())

    def resume(self) -> None:
        if self._paused:
            self._paused = False
            if self._above is not None:
                self._loop.add_reader(self._sock.fileno(), self._above.readable)

    def wake(self, now_us: int) -> None:
        """Do nothing: a socket has no deadline."""

    def close(self) -> None:
        if self._sock.fileno() < 0:
            return
        self.refresh()
        self._loop.remove_reader(self._sock.fileno())
        self._loop.remove_writer(self._sock.fileno())
        self._sock.close()

    def refresh(self) -> None:
        if self._sock.fileno() >= 0:
            self.counters.kernel_dropped = max(self.counters.kernel_dropped, kernel.dropped(self._sock))


class TransportLink(asyncio.DatagramProtocol):
    """A socket behind asyncio's own datagram transport, for event loops that cannot watch one."""

    deadline_us: int | None = None
    dtls: DtlsCounters | None = None

    def __init__(self, remote: Address | None) -> None:
        self._loop = asyncio.get_running_loop()
        self._above: LinkEvents | None = None
        self._remote = remote
        self._arrived: deque[tuple[bytes, Address]] = deque()
        self._scheduled = False
        self._paused = False
        self.counters = SocketCounters(path="transport")

    @classmethod
    async def open(cls, sock: socket.socket, *, remote: Address | None) -> TransportLink:
        """Give the socket to a transport of the running loop."""
        loop = asyncio.get_running_loop()
        link = cls(remote)
        link.local = sock.getsockname()
        link._sock = sock
        link.counters.receive_buffer_bytes = sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
        link._transport, _ = await loop.create_datagram_endpoint(lambda: link, sock=sock)
        return link

    local: Address
    _transport: Any
    _sock: socket.socket

    def start(self, above: LinkEvents, screen: Screen | None = None) -> None:
        self._above = above
        self._drain_soon()

    def datagram_received(self, data: bytes, addr: Address) -> None:
        if self._paused or len(self._arrived) >= ARRIVED_MAX:
            self.counters.kernel_dropped += 1
            return
        self.counters.receive_calls += 1
        self._arrived.append((data, addr))
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._drain_soon)

    def _drain_soon(self) -> None:
        self._scheduled = False
        if self._arrived and self._above is not None:
            self._above.readable()

    def error_received(self, exc: Exception) -> None:
        number = exc.errno if isinstance(exc, OSError) else 0
        if number == errno.EMSGSIZE:
            self.counters.send_failures["EMSGSIZE"] += 1
        elif self._remote is not None:
            self.counters.unreachable += 1
            if self._above is not None:
                self._above.unreachable(self._remote, number or errno.ECONNREFUSED)

    def drain(self, receive: Receive) -> int:
        arrived = self._arrived
        count = len(arrived)
        for _ in range(count):
            data, address = arrived.popleft()
            receive(data, address, None)
        return count

    def send(self, transmits: list[Transmit]) -> None:
        """Pass every datagram to the transport, which queues what the kernel has no room for."""
        for address, data, segment_bytes in transmits:
            target = None if self._remote is not None else address
            step = segment_bytes or len(data) or 1
            for start in range(0, len(data) or 1, step):
                if self._transport.get_write_buffer_size() > QUEUE_BYTES_MAX:
                    self.counters.send_queue_dropped += 1
                    continue
                self.counters.send_calls += 1
                if data:
                    self._transport.sendto(bytes(data[start : start + step]), target)
                else:
                    self._send_empty(target)

    def _send_empty(self, target: Any) -> None:
        """Send an empty datagram past the transport, which takes no such thing."""
        try:
            if target is None:
                self._sock.send(b"")
            else:
                self._sock.sendto(b"", target)
        except OSError as error:
            self.error_received(error)

    def pause(self) -> None:
        """Drop what arrives from now on; a transport cannot stop reading."""
        self._paused = True

    def resume(self) -> None:
        self._paused = False

    def close(self) -> None:
        self._transport.abort()

    def wake(self, now_us: int) -> None:
        """Do nothing: a socket has no deadline."""

    def expect_errors(self, wanted: bool) -> None:
        """Do nothing: a transport reports errors of a connected socket only."""

    def refresh(self) -> None:
        """Do nothing: what the kernel dropped is not known here."""
