"""Addresses with the name of an authenticated device, and as text.

A socket's address is (host, port), or (host, port, flow, scope) with IPv6. Behind DTLS the device's name is one more
element: to a machine two devices at one address are two peers, so that no session ever passes from one to the other.
"""

from __future__ import annotations

from fairway.core.events import Address


def with_device(address: Address, device: str) -> Address:
    """Return the address of a device at a socket's address."""
    assert isinstance(address, tuple)
    return (*address, device)


def device_of(address: Address) -> str | None:
    """Return the device whose address this is, or None for a socket's address."""
    if isinstance(address, tuple) and len(address) in {3, 5} and isinstance(address[-1], str):
        return address[-1]
    return None


def format_address(address: Address) -> str:
    """Return host:port, IPv6 in brackets."""
    if isinstance(address, tuple) and len(address) >= 2:
        host, port = address[0], address[1]
        return f"[{host}]:{port}" if ":" in str(host) else f"{host}:{port}"
    return str(address)
