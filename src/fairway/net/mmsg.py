"""`recvmmsg` through ctypes: up to 64 datagrams in one system call.

Each datagram has a slot of `stride` bytes, and the slots lie one after another; what is longer goes on in an overflow
area of its own. So a run of datagrams that fill their slots is one contiguous super-buffer without a copy, and
no size is ever cut off. The stride follows the sizes that arrive.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
from collections.abc import Callable
from functools import cache
from mmap import mmap
from typing import Any

from fairway.core.events import Address
from fairway.core.machine import Buffer
from fairway.net.kernel import CONTROL_BYTES, DATAGRAM_BYTES_MAX, LINUX, SO_RXQ_OVFL, SOL_UDP, UDP_GRO
from fairway.net.layers import Receive

MESSAGES_MAX = 64
"""Takes one datagram or a super-buffer, as a machine's `receive` does. The buffer is used again afterwards."""

ADDRESSES_MAX = 65_536
"""Socket addresses remembered in decoded form; at the bound all are forgotten."""

_HEADER = struct.Struct("@PI4xPNPNi4xI4x")
"""struct mmsghdr of 64-bit Linux: name, its length, vector, its length, control, its length, flags; then the size."""
_RESULT = struct.Struct("@8xI4x8x8x8xNi4xI4x")
_VECTOR = struct.Struct("@PNPN")
_CONTROL = struct.Struct("@Nii")
_NAME_BYTES = 28
_MSG_DONTWAIT = 0x40


def available() -> bool:
    """Return whether this C library has `recvmmsg` with the layout that we know."""
    return _recvmmsg() is not None


@cache
def _recvmmsg() -> Callable[..., int] | None:
    """Find the call. Looked for when first asked, because ctypes takes long to load and is often not needed."""
    import ctypes

    if not LINUX or _HEADER.size != 64:
        return None
    try:
        found: Any = ctypes.CDLL(None, use_errno=True).recvmmsg
    except (OSError, AttributeError):
        return None
    found.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_uint, ctypes.c_int, ctypes.c_void_p)
    found.restype = ctypes.c_int
    return found  # type: ignore[no-any-return]


class Batch:
    """Receives up to 64 datagrams at a time into memory that is used again and again, for any socket."""

    def __init__(self, stride: int) -> None:
        import ctypes

        call = _recvmmsg()
        assert call is not None
        self._call, self._errno = call, ctypes.get_errno
        self._overflow = mmap(-1, MESSAGES_MAX * DATAGRAM_BYTES_MAX)
        """Mapped, not cleared: it is hardly ever touched."""
        self._names = bytearray(MESSAGES_MAX * _NAME_BYTES)
        self._control = bytearray(MESSAGES_MAX * CONTROL_BYTES)
        self._vectors = bytearray(MESSAGES_MAX * _VECTOR.size)
        self._headers = bytearray(MESSAGES_MAX * _HEADER.size)
        self._headers_at = _address_of(self._headers)
        self._addresses: dict[bytes, Address] = {}
        self.kernel_dropped = 0
        """What the kernel said it dropped at the socket of the latest call; 0 when it said nothing."""
        self.stride = 0
        self.slots = memoryview(b"")
        self._lay_out(stride)

    def _lay_out(self, stride: int) -> None:
        """Point every header at its slot."""
        self.stride = stride
        slots = bytearray(MESSAGES_MAX * stride)
        self.slots = memoryview(slots)
        at = [_address_of(area) for area in (slots, self._overflow, self._names, self._control, self._vectors)]
        slots_at, overflow_at, names_at, control_at, vectors_at = at
        for position in range(MESSAGES_MAX):
            overflow = overflow_at + position * DATAGRAM_BYTES_MAX
            vector = (slots_at + position * stride, stride, overflow, DATAGRAM_BYTES_MAX - stride)
            _VECTOR.pack_into(self._vectors, position * _VECTOR.size, *vector)
            name = names_at + position * _NAME_BYTES
            control = control_at + position * CONTROL_BYTES
            vector_at = vectors_at + position * _VECTOR.size
            header = (name, _NAME_BYTES, vector_at, 2, control, CONTROL_BYTES, 0, 0)
            _HEADER.pack_into(self._headers, position * _HEADER.size, *header)
        self._fresh = bytes(self._headers)
        self._view = memoryview(self._headers)

    def receive(self, sock: socket.socket, pass_on: Receive) -> tuple[int, int, int]:
        """Pass on what has arrived, up to 64 datagrams, runs of equal ones as one super-buffer.

        Return the number of receives, of bytes, and of receives that the kernel had merged. Raises `OSError` for what
        an earlier send met.
        """
        self.kernel_dropped = 0
        self._headers[:] = self._fresh
        count = self._call(sock.fileno(), self._headers_at, MESSAGES_MAX, _MSG_DONTWAIT, None)
        if count < 0:
            number = self._errno()
            raise OSError(number, os.strerror(number))
        names, stride, merged = self._names, self.stride, 0
        run_name, run_address, run_start, run_end = bytearray(), None, 0, 0
        sizes: list[int] = []
        results = _RESULT.iter_unpack(self._view[: count * _HEADER.size])
        for position, (name_bytes, control_bytes, _, size) in enumerate(results):
            sizes.append(size)
            start, name_at = position * stride, position * _NAME_BYTES
            name = names[name_at : name_at + name_bytes]
            segment_bytes = self._read_control(position, control_bytes) if control_bytes else 0
            plain = 0 < size <= stride and not segment_bytes
            if plain and start == run_end and name == run_name:
                run_end += size
                continue
            if run_end > run_start:
                self._pass_on_run(pass_on, run_address, run_start, run_end)
            address = run_address if name == run_name else self._address(bytes(name))
            run_name, run_address, run_start, run_end = name, address, start, start
            if plain:
                run_end += size
            else:
                merged += segment_bytes > 0
                pass_on(self._gather(position, size), address, segment_bytes or None)
        if run_end > run_start:
            self._pass_on_run(pass_on, run_address, run_start, run_end)
        self._follow(sizes)
        return count, sum(sizes), merged

    def _pass_on_run(self, pass_on: Receive, address: Address, start: int, end: int) -> None:
        several = end - start > self.stride
        pass_on(self.slots[start:end], address, self.stride if several else None)

    def _gather(self, position: int, size: int) -> Buffer:
        """Return one datagram that does not fit the run: empty, merged, or longer than its slot."""
        start, rest_at = position * self.stride, position * DATAGRAM_BYTES_MAX
        if size <= self.stride:
            return self.slots[start : start + size]
        rest = self._overflow[rest_at : rest_at + size - self.stride]
        return bytes(self.slots[start : start + self.stride]) + rest

    def _follow(self, sizes: list[int]) -> None:
        """Make slots of the size that fills a batch, so that such datagrams lie one after another from now on."""
        size = sizes[0]
        if len(sizes) < 4 or size == self.stride or not 0 < size <= DATAGRAM_BYTES_MAX // 2:
            return
        if sizes.count(size) >= len(sizes) - 1:
            self._lay_out(size)

    def _address(self, name: bytes) -> Address:
        address = self._addresses.get(name)
        return self._decode(name) if address is None else address

    def _decode(self, name: bytes) -> Address:
        """Return the address as Python's sockets do, without the flow label: it is not part of who a peer is."""
        if len(name) == _NAME_BYTES:
            port, packed, scope = struct.unpack("!2xH4x16s", name[:24])[:2] + struct.unpack("@I", name[24:28])
            host = socket.inet_ntop(socket.AF_INET6, packed)
            address: Address = (host, port, 0, scope)
        else:
            port, packed = struct.unpack_from("!2xH4s", name)
            address = (socket.inet_ntop(socket.AF_INET, packed), port)
        if len(self._addresses) >= ADDRESSES_MAX:
            self._addresses.clear()
        self._addresses[name] = address
        return address

    def _read_control(self, position: int, control_bytes: int) -> int:
        """Walk the control messages: return the segment size of a merged receive, and note the count of drops."""
        at = position * CONTROL_BYTES
        end = at + control_bytes
        segment_bytes = 0
        while at + _CONTROL.size <= end:
            length, level, kind = _CONTROL.unpack_from(self._control, at)
            value = int.from_bytes(self._control[at + _CONTROL.size : at + _CONTROL.size + 4], sys.byteorder)
            if level == SOL_UDP and kind == UDP_GRO:
                segment_bytes = value
            elif level == socket.SOL_SOCKET and kind == SO_RXQ_OVFL:
                self.kernel_dropped = value
            at += max(_CONTROL.size, (length + 7) & ~7)
        return segment_bytes


def _address_of(area: bytearray | mmap) -> int:
    import ctypes

    return ctypes.addressof((ctypes.c_char * len(area)).from_buffer(area))
