"""One port, several sockets: the kernel gives every peer's datagrams to the same one.

The sockets are bound in a fixed order, and a small program in the kernel chooses among them by the peer's address and
port alone. Without it the kernel would choose by a hash that is another one after a reboot, and a peer would meet a
process that does not know it.
"""

from __future__ import annotations

import ctypes
import logging
import socket
import struct
from collections.abc import Sequence

from fairway.net import sockets
from fairway.net.opening import ANY_HOST
from fairway.net.outcomes import AddressUnavailable
from fairway.net.urls import Target, format_url, parse

SO_ATTACH_REUSEPORT_CBPF = 51
_NETWORK_HEADER = -0x100000 & 0xFFFFFFFF
"""Loads at or above this offset count from the IP header."""
_MIX = 0x9E3779B1
_LOAD_WORD, _LOAD_HALF, _TO_X, _ADD_X, _MULTIPLY, _SHIFT, _MODULO, _RETURN = (
    0x20, 0x28, 0x07, 0x0C, 0x24, 0x74, 0x94, 0x16,
)  # fmt: skip

_log = logging.getLogger("fairway.net")


class SharedPort:
    """The sockets of one URL, in the order in which they were bound. `url` has the real port, and its options."""

    def __init__(self, url: str, sockets_: list[socket.socket]) -> None:
        _, mark, query = url.partition("?")
        self.url = format_url(parse(url).scheme, sockets_[0].getsockname()) + mark + query
        self._sockets = sockets_

    @property
    def descriptors(self) -> list[int]:
        """What another process takes the sockets over by."""
        return [sock.fileno() for sock in self._sockets]

    def close(self) -> None:
        for sock in self._sockets:
            sock.close()


async def bind_shared(urls: Sequence[str], count: int) -> list[SharedPort]:
    """Bind so many sockets to the port of each URL; raises `BadAddress` if one is taken."""
    bound: list[SharedPort] = []
    try:
        for url in urls:
            port = SharedPort(url, await _bind_one(parse(url), count))
            bound.append(port)
    except BaseException:
        for port in bound:
            port.close()
        raise
    return bound


async def _bind_one(target: Target, count: int) -> list[socket.socket]:
    host = target.host or ANY_HOST
    family, address = (await sockets.resolve(Target(target.protocol, host, target.port, {})))[0]
    # Sharing a port lets others of the same user in silently: the first socket takes it alone, and shares it then.
    group = [sockets.open_bound(family, address, 0, 0)]
    address = group[0].getsockname()
    try:
        group[0].setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        while len(group) < count:
            sock = socket.socket(family, socket.SOCK_DGRAM)
            group.append(sock)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            sock.bind(address)
        _choose_by_peer(group[0], count)
    except OSError as error:
        for sock in group:
            sock.close()
        shown = format_url(target.scheme, address)
        raise AddressUnavailable(f"cannot listen {count} times on {shown}: {error.strerror}", error) from error
    return group


def _choose_by_peer(sock: socket.socket, count: int) -> None:
    """Have the kernel choose by the peer's address and port; log where it cannot."""
    instructions = b"".join(struct.pack("HBBI", *one) for one in _program(sock.family == socket.AF_INET6, count))
    buffer = ctypes.create_string_buffer(instructions, len(instructions))
    program = struct.pack("HP", len(instructions) // 8, ctypes.addressof(buffer))
    try:
        sock.setsockopt(socket.SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, program)
    except OSError as error:
        _log.warning("peers keep their worker only until the next reboot: %s", error.strerror)


def _program(ipv6: bool, count: int) -> list[tuple[int, int, int, int]]:
    """Return the program: the sum of the words of address and port, mixed, modulo the number of sockets."""
    words = [8, 12, 16, 20] if ipv6 else [12]
    program = [(_LOAD_HALF, 0, 0, _NETWORK_HEADER + (40 if ipv6 else 20))]
    for offset in words:
        program += [(_TO_X, 0, 0, 0), (_LOAD_WORD, 0, 0, _NETWORK_HEADER + offset), (_ADD_X, 0, 0, 0)]
    return [*program, (_MULTIPLY, 0, 0, _MIX), (_SHIFT, 0, 0, 16), (_MODULO, 0, 0, count), (_RETURN, 0, 0, 0)]
