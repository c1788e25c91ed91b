"""What the kernel offers beyond Python's `socket` module: numbers, feature tests, and the error queue.

Everything here is asked for at run time and has a way around it where the answer is no.
"""

from __future__ import annotations

import errno
import socket
import struct
import sys
from typing import NamedTuple

LINUX = sys.platform == "linux"
BYTE_ORDER = sys.byteorder

SOL_UDP = 17
UDP_SEGMENT = 103
UDP_GRO = 104
SO_RCVBUFFORCE = 33
SO_RXQ_OVFL = 40
SO_MEMINFO = 55
IP_RECVERR = 11
IPV6_RECVERR = 25
IP_MTU = 14
IPV6_MTU = 24
MSG_ERRQUEUE = 0x2000

DATAGRAM_BYTES_MAX = 65_535
"""What a receive must have room for: a datagram, or as many as the kernel merges into one buffer."""
SEGMENTED_BYTES_MAX = 65_507
SEGMENTS_MAX = 128
SEGMENTS_MAX_OLDER = 64
"""Kernels before 6.9 take 64 segments in one call."""

CONTROL_BYTES = 64
"""Room for two control messages: the segment size of a merged receive, and the count of drops."""

_MEMINFO = struct.Struct("=9I")
_MEMINFO_DROPS = 8
_EXTENDED_ERROR = struct.Struct("=IBBBBII")
_ERROR_QUEUE_READS_MAX = 64


def has_gso(sock: socket.socket) -> bool:
    """Return whether the kernel cuts one buffer into datagrams (Linux 4.18)."""
    if not LINUX:
        return False
    try:
        sock.getsockopt(SOL_UDP, UDP_SEGMENT)
    except OSError:
        return False
    return True


def enable_gro(sock: socket.socket) -> bool:
    """Ask the kernel to merge datagrams (Linux 5.0); return whether it will."""
    return LINUX and try_option(sock, SOL_UDP, UDP_GRO)


def try_option(sock: socket.socket, level: int, option: int, value: int = 1) -> bool:
    """Set a socket option; return whether the kernel knows and permits it."""
    try:
        sock.setsockopt(level, option, value)
    except OSError:
        return False
    return True


def size_receive_buffer(sock: socket.socket, size: int) -> None:
    """Ask for a receive buffer, beyond the limit for everybody where that is permitted."""
    if not (LINUX and try_option(sock, socket.SOL_SOCKET, SO_RCVBUFFORCE, size)):
        try_option(sock, socket.SOL_SOCKET, socket.SO_RCVBUF, size)


def queue_errors(sock: socket.socket, wanted: bool) -> bool:
    """Have ICMP errors queued, or no longer, with the address that they speak of; return whether they are."""
    if not LINUX:
        return False
    if sock.family == socket.AF_INET6:
        return try_option(sock, socket.IPPROTO_IPV6, IPV6_RECVERR, int(wanted)) and wanted
    return try_option(sock, socket.IPPROTO_IP, IP_RECVERR, int(wanted)) and wanted


def path_bytes(sock: socket.socket) -> int:
    """Return what the path of a connected socket takes, headers included, or 0 where the kernel does not say."""
    if not LINUX:
        return 0
    version_6 = sock.family == socket.AF_INET6
    try:
        return sock.getsockopt(*((socket.IPPROTO_IPV6, IPV6_MTU) if version_6 else (socket.IPPROTO_IP, IP_MTU)))
    except OSError:
        return 0


def dropped(sock: socket.socket) -> int:
    if not LINUX:
        return 0
    try:
        words = sock.getsockopt(socket.SOL_SOCKET, SO_MEMINFO, _MEMINFO.size)
    except OSError:
        return 0
    return int(_MEMINFO.unpack(words)[_MEMINFO_DROPS]) if len(words) == _MEMINFO.size else 0


class PathError(NamedTuple):
    """An ICMP error, or the kernel's own word that a datagram is too large for the path."""

    address: tuple[str, int] | tuple[str, int, int, int] | None
    number: int
    path_bytes: int
    """What the path takes, headers included, when the number is EMSGSIZE."""


def path_errors(sock: socket.socket) -> list[PathError]:
    """Empty the error queue. A queue that is not emptied keeps the socket readable for ever."""
    found: list[PathError] = []
    for _ in range(_ERROR_QUEUE_READS_MAX):
        try:
            _, control, _, address = sock.recvmsg(0, 512, MSG_ERRQUEUE)
        except OSError:
            break
        for level, kind, data in control:
            recverr = (level, kind) in {(socket.IPPROTO_IP, IP_RECVERR), (socket.IPPROTO_IPV6, IPV6_RECVERR)}
            if recverr and len(data) >= _EXTENDED_ERROR.size:
                number, _, _, _, _, info, _ = _EXTENDED_ERROR.unpack_from(data)
                found.append(PathError(address or None, number, info if number == errno.EMSGSIZE else 0))
    return found
