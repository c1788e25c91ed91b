"""Opening a UDP socket: the name resolved, buffers sized, bound or connected."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from fairway.core.addresses import format_address
from fairway.core.errors import BadAddress
from fairway.core.events import Address
from fairway.net import kernel
from fairway.net.outcomes import AddressUnavailable
from fairway.net.urls import Target

RECEIVE_BUFFER_BYTES = 4 << 20
SEND_BUFFER_BYTES = 2 << 20
"""Asked for; the kernel gives what its limits allow."""

_KERNEL_BYTES_PER_DATAGRAM = 1_024
"""What the kernel charges for a queued datagram beyond its bytes, roughly."""

PORT_TRIES_MAX = 16
"""A free port of one address family may be taken in the other."""

_log = logging.getLogger("fairway.net")


Found = tuple[socket.AddressFamily, Address]

LOCALHOST = "localhost"
"""Stands for both loopback addresses, whatever a table of hosts says: a program may listen on either."""


async def resolve_peer(target: Target) -> list[Found]:
    """Find the addresses to call: that of a listener on all addresses is this machine's own, which its answers bear."""
    return await resolve(replace(target, host=_OWN.get(target.host, target.host)))


_OWN = {"0.0.0.0": "127.0.0.1", "::": "::1"}


async def resolve(target: Target) -> list[Found]:
    """Find the addresses of the host, the best first; a numeric one, and `localhost`, cost no look-up.

    Of `localhost` that of IPv4 is first: older servers listen there alone, and a protocol without a handshake has no
    way to try.
    """
    if target.host == LOCALHOST:
        return [(socket.AF_INET, ("127.0.0.1", target.port)), (socket.AF_INET6, ("::1", target.port, 0, 0))]
    family = numeric_family(target.host)
    if family is socket.AF_INET:
        return [(family, (target.host, target.port))]
    loop = asyncio.get_running_loop()
    try:
        if family is socket.AF_INET6:
            found = socket.getaddrinfo(target.host, target.port, family, socket.SOCK_DGRAM, flags=socket.AI_NUMERICHOST)
        else:
            found = await loop.getaddrinfo(target.host, target.port, type=socket.SOCK_DGRAM)
    except (OSError, UnicodeError) as error:
        raise BadAddress(f"the host {target.host!r} has no address: {error}") from error
    return list(dict.fromkeys((socket.AddressFamily(one[0]), one[4]) for one in found))


def numeric_family(host: str) -> socket.AddressFamily | None:
    """Return the family of a numeric address, or None for a name."""
    if ":" in host:
        return socket.AF_INET6
    try:
        socket.inet_pton(socket.AF_INET, host)
    except OSError:
        return None
    return socket.AF_INET


def open_bound(family: socket.AddressFamily, address: Address, window_bytes: int, window: int) -> socket.socket:
    """Open a non-blocking socket bound to the address."""
    return _open(family, address, window_bytes, window, socket.socket.bind, "cannot listen on")


def open_both(found: list[Found], window_bytes: int, window: int) -> list[socket.socket]:
    """Open a socket on the loopback address of each family that this machine has, with one port for both."""
    for attempt in range(PORT_TRIES_MAX):
        opened = [open_bound(*found[0], window_bytes, window)]
        port = opened[0].getsockname()[1]
        try:
            for family, address in found[1:]:
                assert isinstance(address, tuple)
                opened.append(open_bound(family, (address[0], port, *address[2:]), window_bytes, window))
        except AddressUnavailable as error:
            if error.errno != errno.EADDRINUSE:
                return opened  # this machine has no such address
            for sock in opened:
                sock.close()
            if found[0][1][1] or attempt == PORT_TRIES_MAX - 1:  # type: ignore[index]  # the port that was asked for
                raise
        else:
            return opened
    raise AssertionError


def take_over(descriptor: int, window_bytes: int, window: int) -> socket.socket:
    """Take a bound socket by its descriptor, as passed on by another process."""
    sock = socket.socket(fileno=descriptor)
    sock.setblocking(False)
    size_buffers(sock, window_bytes, window)
    return sock


def open_connected(family: socket.AddressFamily, address: Address, window_bytes: int, window: int) -> socket.socket:
    """Open a non-blocking socket that speaks with one address only."""
    return _open(family, address, window_bytes, window, socket.socket.connect, "there is no way to")


def _open(
    family: socket.AddressFamily,
    address: Address,
    window_bytes: int,
    window: int,
    attach: Callable[[socket.socket, Any], None],
    failure: str,
) -> socket.socket:
    sock: socket.socket | None = None
    try:
        sock = socket.socket(family, socket.SOCK_DGRAM)
        sock.setblocking(False)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        size_buffers(sock, window_bytes, window)
        attach(sock, address)
    except OSError as error:
        if sock is not None:
            sock.close()
        raise AddressUnavailable(f"{failure} {format_address(address)}: {error.strerror}", error) from error
    return sock


def size_buffers(sock: socket.socket, window_bytes: int, window: int) -> None:
    """Ask for large buffers, and log it when the kernel gives less than the window needs."""
    needed = window_bytes + window * _KERNEL_BYTES_PER_DATAGRAM
    wanted = max(RECEIVE_BUFFER_BYTES, needed)
    kernel.size_receive_buffer(sock, wanted)
    kernel.try_option(sock, socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
    given = sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
    if given < needed:
        _log.warning(
            "the receive buffer of %d bytes is too small for a window of %d datagrams (%d bytes): "
            "datagrams will be dropped; run: sysctl -w net.core.rmem_max=%d",
            given, window, needed, wanted,
        )  # fmt: skip
