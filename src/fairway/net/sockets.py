"""Opening a UDP socket: the name resolved, buffers sized, bound or connected."""

from __future__ import annotations

import asyncio
import logging
import socket
from dataclasses import replace

from fairway.core.addresses import format_address
from fairway.core.errors import BadAddress
from fairway.core.events import Address
from fairway.net import kernel
from fairway.net.urls import Target

RECEIVE_BUFFER_BYTES = 4 << 20
SEND_BUFFER_BYTES = 2 << 20
"""Asked for; the kernel gives what its limits allow."""

_KERNEL_BYTES_PER_DATAGRAM = 1_024
"""What the kernel charges for a queued datagram beyond its bytes, roughly."""

_log = logging.getLogger("fairway.net")


async def resolve_peer(target: Target) -> tuple[socket.AddressFamily, Address]:
    """Finds the address to call: that of a listener on all addresses is this machine's own, which its answers bear."""
    return await resolve(replace(target, host=_OWN.get(target.host, target.host)))


_OWN = {"0.0.0.0": "127.0.0.1", "::": "::1"}


async def resolve(target: Target) -> tuple[socket.AddressFamily, Address]:
    """Finds the first address of the host; a numeric one costs no look-up."""
    family = numeric_family(target.host)
    if family is socket.AF_INET:
        return family, (target.host, target.port)
    loop = asyncio.get_running_loop()
    try:
        if family is socket.AF_INET6:
            found = socket.getaddrinfo(target.host, target.port, family, socket.SOCK_DGRAM, flags=socket.AI_NUMERICHOST)
        else:
            found = await loop.getaddrinfo(target.host, target.port, type=socket.SOCK_DGRAM)
    except (OSError, UnicodeError) as error:
        raise BadAddress(f"the host {target.host!r} has no address: {error}") from error
    family_found, _, _, _, address = found[0]
    return socket.AddressFamily(family_found), address


def numeric_family(host: str) -> socket.AddressFamily | None:
    """Tells the family of a numeric address, or None for a name."""
    if ":" in host:
        return socket.AF_INET6
    try:
        socket.inet_pton(socket.AF_INET, host)
    except OSError:
        return None
    return socket.AF_INET


def open_bound(family: socket.AddressFamily, address: Address, window_bytes: int, window: int) -> socket.socket:
    """Opens a non-blocking socket bound to the address."""
    sock = _open(family, window_bytes, window)
    try:
        sock.bind(address)  # type: ignore[arg-type]
    except OSError as error:
        sock.close()
        raise BadAddress(f"cannot listen on {format_address(address)}: {error.strerror}") from error
    return sock


def take_over(descriptor: int, window_bytes: int, window: int) -> socket.socket:
    """Takes a bound socket by its descriptor, as handed over by another process."""
    sock = socket.socket(fileno=descriptor)
    sock.setblocking(False)
    size_buffers(sock, window_bytes, window)
    return sock


def open_connected(family: socket.AddressFamily, address: Address, window_bytes: int, window: int) -> socket.socket:
    """Opens a non-blocking socket that speaks with one address only."""
    sock = _open(family, window_bytes, window)
    try:
        sock.connect(address)  # type: ignore[arg-type]
    except OSError as error:
        sock.close()
        raise BadAddress(f"there is no way to {format_address(address)}: {error.strerror}") from error
    return sock


def _open(family: socket.AddressFamily, window_bytes: int, window: int) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_DGRAM)
    sock.setblocking(False)
    if family == socket.AF_INET6:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    size_buffers(sock, window_bytes, window)
    return sock


def size_buffers(sock: socket.socket, window_bytes: int, window: int) -> None:
    """Asks for large buffers, and says so once when the kernel gives less than the window needs."""
    needed = window_bytes + window * _KERNEL_BYTES_PER_DATAGRAM
    wanted = max(RECEIVE_BUFFER_BYTES, needed)
    if not (kernel.LINUX and kernel.try_option(sock, socket.SOL_SOCKET, kernel.SO_RCVBUFFORCE, wanted)):
        kernel.try_option(sock, socket.SOL_SOCKET, socket.SO_RCVBUF, wanted)
    kernel.try_option(sock, socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
    given = sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
    if given < needed:
        _log.warning(
            "the receive buffer of %d bytes is too small for a window of %d datagrams (%d bytes): "
            "datagrams will be dropped; run: sysctl -w net.core.rmem_max=%d",
            given, window, needed, wanted,
        )  # fmt: skip
