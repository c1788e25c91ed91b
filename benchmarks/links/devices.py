"""The TUN devices of a link, each in a namespace of its own."""

from __future__ import annotations

from benchmarks.namespaces import RECEIVER_HOST, SENDER_HOST, command, inside

HOSTS = ((SENDER_HOST, RECEIVER_HOST), (RECEIVER_HOST, SENDER_HOST))
"""Own address and the other's, in each namespace."""
MTU = 1_500
DEVICE_QUEUE = 4_096
"""Packets that may wait for the emulator; a link's own queue is much shorter."""


def place_device(device: str, namespace: str, own: str, other: str) -> None:
    """Move a device into a namespace and give it its addresses."""
    command("ip", "link", "set", device, "netns", namespace)
    command(*inside(namespace), "ip", "address", "add", own, "peer", other, "dev", device)
    command(*inside(namespace), "ip", "link", "set", device, "mtu", str(MTU), "txqueuelen", str(DEVICE_QUEUE), "up")


def dropped(device: str, namespace: str) -> int:
    """Return how many packets the kernel dropped in front of a device."""
    return int(command(*inside(namespace), "cat", f"/sys/class/net/{device}/statistics/tx_dropped"))
