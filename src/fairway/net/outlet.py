"""Sending: transmits leave in as few system calls as the kernel allows, and wait in a bounded queue when it is full.

Equal datagrams for one address go out in one call that the kernel cuts up (GSO). Where it cannot, or for a path that
refuses it, one call a datagram. `sendmmsg` is not used: it was measured to cost as much as single calls, because the
kernel's own work per datagram, not the system call, is what is paid for.
"""

from __future__ import annotations

import errno
import socket
import struct
from collections import deque
from typing import Any, cast

from fairway.core.events import Address
from fairway.core.machine import Buffer, Transmit
from fairway.net import kernel
from fairway.net.counters import SocketCounters

QUEUE_BYTES_MAX = 8 << 20
"""What waits here for the kernel at the most; beyond it datagrams are dropped, and the protocols repeat them."""

SocketAddress = tuple[Any, ...]

_UNREACHABLE = (errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ENETUNREACH)


class Outlet:
    """The sending half of a socket; `SocketLink` adds the receiving half and the event loop."""

    def __init__(self, sock: socket.socket, counters: SocketCounters, *, segmented: bool, connected: bool) -> None:
        self._sock = sock
        self.counters = counters
        self._segments_max = kernel.SEGMENTS_MAX if segmented else 1
        self._segment_bytes_max = kernel.SEGMENTED_BYTES_MAX
        """Larger segments leave one by one: the kernel does not cut a buffer into more than the path takes."""
        self._connected = connected
        self._controls: dict[int, list[tuple[int, int, bytes]]] = {}
        self._queue: deque[Transmit] = deque()
        self._queue_bytes = 0

    def _send_failed(self, address: Address, size: int, error: OSError, segmented: bool) -> None:
        """A send failed; `segmented` when it was the kernel's cutting, so that datagrams leave one by one instead."""

    def _blocked(self) -> None:
        """Something waits for the kernel: `send_waiting` is to be called when it has room."""

    @property
    def waiting(self) -> bool:
        return bool(self._queue)

    def send(self, transmits: list[Transmit]) -> None:
        """Send in order; what the kernel has no room for waits."""
        if len(transmits) == 1 and not self._queue:
            address, data, segment_bytes = transmits[0]
            if segment_bytes is None or len(data) <= segment_bytes:
                # A single datagram goes the shortest way; any error is left to the long one, which meets it again.
                try:
                    if self._connected:
                        self._sock.send(data)
                    else:
                        self._sock.sendto(data, address)  # type: ignore[call-overload]  # opaque but to the socket
                    self.counters.send_calls += 1
                    return
                except OSError as error:
                    if error.errno in _UNREACHABLE:
                        self._send_failed(address, len(data), error, False)
        self._send_all(transmits)

    def _send_all(self, transmits: list[Transmit]) -> None:
        if self._queue:
            for transmit in transmits:
                self._keep(transmit)
            return
        if len(transmits) > 1 and self._segments_max > 1:
            transmits = join_neighbours(transmits)
        for position, transmit in enumerate(transmits):
            rest = self._send_one(transmit)
            if rest is not None:
                self.counters.would_block += 1
                self._keep(rest)
                for later in transmits[position + 1 :]:
                    self._keep(later)
                self._blocked()
                return

    def send_waiting(self) -> None:
        """Send what waited, as far as the kernel has room now."""
        while self._queue:
            transmit = self._queue.popleft()
            self._queue_bytes -= len(transmit.data)
            rest = self._send_one(transmit)
            if rest is not None:
                self._queue.appendleft(rest)
                self._queue_bytes += len(rest.data)
                return

    def _keep(self, transmit: Transmit) -> None:
        size = len(transmit.data)
        if self._queue_bytes + size > QUEUE_BYTES_MAX:
            segment_bytes = transmit.segment_bytes or size or 1
            self.counters.send_queue_dropped += -(-size // segment_bytes) or 1
            return
        self._queue.append(transmit)
        self._queue_bytes += size

    def _send_one(self, transmit: Transmit) -> Transmit | None:
        """Send one transmit; return what is left of it when the kernel has no more room."""
        address, data, segment_bytes = transmit
        size = len(data)
        if segment_bytes is None or size <= segment_bytes:
            return transmit if self._send_piece(data, address, None) == 0 else None
        view = memoryview(data)
        start = self._send_singly(view, address, segment_bytes) if self._segments_max == 1 else 0
        while start < size:
            step = segment_bytes * self._segments_per_call(segment_bytes)
            piece = view[start : start + step]
            sent = self._send_piece(piece, address, segment_bytes if len(piece) > segment_bytes else None)
            if sent == 0:
                return Transmit(address, view[start:], segment_bytes)
            # -1: the kernel refused to cut this piece; the bound is lower now, and it is tried again.
            start += max(sent, 0)
        return None

    def _send_singly(self, view: memoryview, address: Address, segment_bytes: int) -> int:
        """Send one datagram after another by the shortest way; return where it met an error, which the long way meets
        again, or the end."""
        sock, start, size = self._sock, 0, len(view)
        try:
            if self._connected:
                send = sock.send
                for start in range(0, size, segment_bytes):
                    send(view[start : start + segment_bytes])
            else:
                sendto, target = sock.sendto, cast(SocketAddress, address)
                for start in range(0, size, segment_bytes):
                    sendto(view[start : start + segment_bytes], target)
        except OSError as error:
            if error.errno in _UNREACHABLE:
                self._send_failed(address, segment_bytes, error, False)
            self.counters.send_calls += start // segment_bytes
            return start
        self.counters.send_calls += -(-size // segment_bytes)
        return size

    def _segments_per_call(self, segment_bytes: int) -> int:
        if segment_bytes > self._segment_bytes_max:
            return 1
        return max(1, min(self._segments_max, kernel.SEGMENTED_BYTES_MAX // segment_bytes))

    def _send_piece(self, piece: Buffer, address: Address, segment_bytes: int | None) -> int:
        """Return the bytes that are dealt with, 0 when the kernel has no room, -1 when it cannot cut the piece."""
        target = None if self._connected else cast(SocketAddress, address)
        for attempt in (0, 1):
            try:
                if segment_bytes is not None:
                    self._sock.sendmsg((piece,), self._control(segment_bytes), 0, target)
                    self.counters.segmented_sends += 1
                elif target is None:
                    self._sock.send(piece)
                else:
                    self._sock.sendto(piece, target)
            except BlockingIOError:
                return 0
            except OSError as error:
                if segment_bytes is not None and error.errno in {errno.EINVAL, errno.EIO, errno.EMSGSIZE}:
                    self._trust_less(address, segment_bytes, error)
                    return -1
                self._send_failed(address, len(piece), error, False)
                # An ICMP error of an earlier datagram comes out here and says nothing about this one.
                if attempt == 0 and error.errno in _UNREACHABLE:
                    continue
                self.counters.send_failures[errno.errorcode.get(error.errno or 0, "unknown")] += 1
            else:
                self.counters.send_calls += 1
            break
        return len(piece) or 1

    def _trust_less(self, address: Address, segment_bytes: int, error: OSError) -> None:
        """Lower what the kernel is asked to cut: to what older kernels take, to smaller segments, or to nothing."""
        if error.errno == errno.EIO:
            self._segments_max = 1
        elif error.errno == errno.EINVAL and self._segments_max > kernel.SEGMENTS_MAX_OLDER:
            self._segments_max = kernel.SEGMENTS_MAX_OLDER
        else:
            self._segment_bytes_max = segment_bytes - 1
        if error.errno == errno.EMSGSIZE:
            self._send_failed(address, segment_bytes, error, True)

    def _control(self, segment_bytes: int) -> list[tuple[int, int, bytes]]:
        control = self._controls.get(segment_bytes)
        if control is None:
            control = [(kernel.SOL_UDP, kernel.UDP_SEGMENT, struct.pack("=H", segment_bytes))]
            self._controls[segment_bytes] = control
        return control


def join_neighbours(transmits: list[Transmit]) -> list[Transmit]:
    """Join neighbouring single datagrams of one size for one address, so that they leave in one call."""
    joined: list[Transmit] = []
    count, position = len(transmits), 0
    while position < count:
        transmit = transmits[position]
        address, data, segment_bytes = transmit
        end = position + 1
        if segment_bytes is None and data:
            size = len(data)
            while end < count:
                other = transmits[end]
                if other[2] is not None or len(other[1]) != size or other[0] != address:
                    break
                end += 1
            if end - position > 1:
                transmit = Transmit(address, b"".join(one[1] for one in transmits[position:end]), size)
        joined.append(transmit)
        position = end
    return joined
