"""Receiving: a socket is drained until it would block, within a bound, and equal neighbours become one super-buffer.

Three ways: `recvmsg` with datagrams that the kernel merged (GRO), `recvmmsg` where it merges nothing, and plain
`recvfrom`. Whatever the way, datagrams of one size from one address that arrive one after another are passed on
together, because a machine handles a batch for little more than a single one.

The buffers are used again for the next drain: who takes a datagram copies what it keeps.
"""

from __future__ import annotations

import socket
import threading
from functools import cache

from fairway.core.events import Address
from fairway.net import kernel, mmsg
from fairway.net.counters import SocketCounters
from fairway.net.layers import Receive

DRAIN_CALLS_MAX = 256
DRAIN_BYTES_MAX = 1 << 18
"""One drain ends here, so that acknowledgements leave and timers run while a fast sender keeps the socket full. A
quarter of rup's window: with a drain as long as the window the two sides would work in turns, never at once."""

DRAIN_DATAGRAMS_MAX = 256
"""And here, once so many were passed on: small messages come a whole window at a time, and a sender that waits for
all of it to be acknowledged stands still while the receiver works, and the other way round."""

RUN_BYTES = 32_768
"""A run this long is passed on: longer ones gain nothing and leave the processor's cache."""
LARGE_DATAGRAM_BYTES = 1_024
RUN_LARGE_BYTES = 131_072
"""Of large datagrams it is longer: merged by the kernel, a run of the other length is only one of its buffers."""

_BUFFER_BYTES = 4 * kernel.DATAGRAM_BYTES_MAX
STRIDE_FIRST = 1_200
LONE_READS_MAX = 8
"""After a drain that found one datagram, so many drains read one and do not ask for a second: the loop calls again if
there is one, and to learn that there is none costs as much as a datagram."""
_UNMERGED_CALLS = 16
"""After so many receives in a drain without one merged, the next drain goes through `recvmmsg`."""


class _Shared(threading.local):
    """What the sockets of a thread receive into: a drain passes on all that it read before the next one starts."""

    def __init__(self) -> None:
        self.view = memoryview(bytearray(_BUFFER_BYTES))
        self._batch: mmsg.Batch | None = None

    def batch(self) -> mmsg.Batch:
        if self._batch is None:
            self._batch = mmsg.Batch(STRIDE_FIRST)
        return self._batch


@cache
def shared() -> _Shared:
    """Return the receive buffers of this thread."""
    return _Shared()


class Inlet:
    """Drains a socket with one `recvfrom` a datagram, or one `recvmsg` a merged run of them."""

    def __init__(
        self, sock: socket.socket, counters: SocketCounters, *, remote: Address | None, merged: bool = False
    ) -> None:
        self._sock = sock
        self._counters = counters
        self._remote = remote
        self._merged = merged
        self._short = sock.family == socket.AF_INET
        self._view = shared().view
        self._buffers = (self._view,)
        self._lone_reads = 0

    def drain(self, receive: Receive) -> int:
        """Pass on what has arrived, within the bounds, and return the number of receives.

        Raises `OSError` for what an earlier send met; the next call goes on.
        """
        if not self._lone_reads:
            return self._drain_all(receive)
        # Reads once and hands that over: the shortest way for a datagram that comes alone.
        self._lone_reads -= 1
        try:
            if self._merged:
                size, control, _, source = self._sock.recvmsg_into(self._buffers, kernel.CONTROL_BYTES)
                segment = self._read_control(control, size) if control else size
            elif self._remote is not None:
                size = segment = self._sock.recv_into(self._view)
                source = self._remote
            else:
                size, source = self._sock.recvfrom_into(self._view)
                segment = size
        except BlockingIOError:
            return 0
        self._counters.receive_calls += 1
        address = source if self._short else _canonical(source)
        if segment == size:
            receive(self._view[:size], address, None)
        else:
            self._lone_reads = 0
            receive(self._view[:size], address, segment)
        return 1

    def _drain_all(self, receive: Receive) -> int:
        view, remote, merged, short = self._view, self._remote, self._merged, self._short
        sock = self._sock
        start = end = segment = total = calls = datagrams = 0
        address: Address = None
        whole = False
        try:
            while calls < DRAIN_CALLS_MAX and total < DRAIN_BYTES_MAX:
                if merged:
                    size, control, _, source = sock.recvmsg_into((view[end:],), kernel.CONTROL_BYTES)
                    piece = self._read_control(control, size) if control else size
                elif remote is not None:
                    size = piece = sock.recv_into(view[end:])
                    source = remote
                else:
                    size, source = sock.recvfrom_into(view[end:])
                    piece = size
                calls += 1
                total += size
                if whole and source == address and size and (piece == segment or (size == piece and size < segment)):
                    end += size
                else:
                    if end > start:
                        receive(view[start:end], address, segment if end - start > segment else None)
                    start, segment = end, piece
                    end += size
                    address = source if short else _canonical(source)
                    if not size:
                        receive(view[start:end], address, None)
                whole = piece == segment and size > 0 and size % segment == 0
                enough = RUN_BYTES if segment < LARGE_DATAGRAM_BYTES else RUN_LARGE_BYTES
                if end - start >= enough or end > _BUFFER_BYTES - kernel.DATAGRAM_BYTES_MAX:
                    receive(view[start:end], address, segment if end - start > segment else None)
                    datagrams += -(-(end - start) // segment)
                    start = end = 0
                    whole = False
                    if datagrams >= DRAIN_DATAGRAMS_MAX:
                        break
        except BlockingIOError:
            if calls == 1 and total == segment:
                self._lone_reads = LONE_READS_MAX
        finally:
            self._counters.receive_calls += calls
            if end > start:
                receive(view[start:end], address, segment if end - start > segment else None)
        return calls

    def _read_control(self, control: list[tuple[int, int, bytes]], size: int) -> int:
        """Return the segment size of a merged receive, and note the count of drops."""
        segment_bytes = size
        for level, kind, data in control:
            if level == kernel.SOL_UDP and kind == kernel.UDP_GRO:
                segment_bytes = int.from_bytes(data[:4], kernel.BYTE_ORDER)
                self._counters.merged_receives += segment_bytes < size
            elif level == socket.SOL_SOCKET and kind == kernel.SO_RXQ_OVFL:
                self._counters.kernel_dropped = int.from_bytes(data[:4], kernel.BYTE_ORDER)
        return segment_bytes or size


def _canonical(address: Address) -> Address:
    """Leave out the flow label of an IPv6 address: it is not part of who a peer is."""
    if isinstance(address, tuple) and len(address) == 4 and address[2]:
        return (address[0], address[1], 0, address[3])
    return address


class ManyInlet:
    """Drains a socket with `recvmmsg`."""

    def __init__(self, sock: socket.socket, counters: SocketCounters) -> None:
        self._sock = sock
        self._counters = counters
        self._batch = shared().batch()
        self.merged = 0
        """Merged receives in the latest drain."""

    def drain(self, receive: Receive) -> int:
        """Pass on what has arrived, within the bounds, and return the number of datagrams."""
        datagrams = total = self.merged = 0
        try:
            while datagrams < DRAIN_CALLS_MAX * 4 and total < DRAIN_BYTES_MAX:
                count, size, merged = self._batch.receive(self._sock, receive)
                if self._batch.kernel_dropped:
                    self._counters.kernel_dropped = self._batch.kernel_dropped
                self._counters.receive_calls += 1
                self._counters.merged_receives += merged
                datagrams += count
                total += size
                self.merged += merged
                if count < mmsg.MESSAGES_MAX:
                    break
        except BlockingIOError:
            pass
        return datagrams


class MergedInlet(Inlet):
    """Drains a socket whose datagrams the kernel may merge; turns to `recvmmsg` while it merges nothing of many."""

    def __init__(self, sock: socket.socket, counters: SocketCounters, *, remote: Address | None) -> None:
        super().__init__(sock, counters, remote=remote, merged=True)
        self._many: ManyInlet | None = None
        self._unmerged = False

    def _drain_all(self, receive: Receive) -> int:
        if self._unmerged:
            return self._drain_many(receive)
        before = self._counters.merged_receives
        calls = super()._drain_all(receive)
        if calls >= _UNMERGED_CALLS and self._counters.merged_receives == before:
            self._unmerged = mmsg.available()
        return calls

    def _drain_many(self, receive: Receive) -> int:
        if self._many is None:
            self._many = ManyInlet(self._sock, self._counters)
        datagrams = self._many.drain(receive)
        # A handful of datagrams is read faster one by one than by a call through ctypes.
        self._unmerged = not self._many.merged and datagrams >= _UNMERGED_CALLS
        return datagrams
