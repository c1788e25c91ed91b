"""Namespaces and the addresses in them, by the `ip` command; nothing outside the namespaces changes."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HOSTS = (("192.0.2.1", "192.0.2.2"), ("192.0.2.2", "192.0.2.1"))
"""Own address and the other's, in each namespace; reserved for documentation, so that nobody else has them."""
MTU = 1_500
DEVICE_QUEUE = 4_096
"""Packets that may wait for the emulator; a link's own queue is much shorter."""
COMMAND_S = 20.0

_numbers = itertools.count()


class NotPermitted(Exception):
    """This machine or this user cannot make network namespaces or TUN devices; the text says what is missing."""


def inside(namespace: str) -> tuple[str, ...]:
    """Return what a command begins with to run in a namespace."""
    return ("ip", "netns", "exec", namespace)


@contextmanager
def two_namespaces() -> Iterator[tuple[str, str]]:
    """Make two namespaces, and remove them with all that is in them; raise `NotPermitted`."""
    if shutil.which("ip") is None:
        raise NotPermitted("the program `ip` is missing (Debian: iproute2)")
    if not Path("/dev/net/tun").exists():
        raise NotPermitted("there is no /dev/net/tun")
    stem = f"fw{os.getpid()}-{next(_numbers)}"
    made: list[str] = []
    try:
        for name in (f"{stem}a", f"{stem}b"):
            command("ip", "netns", "add", name)
            made.append(name)
            command(*inside(name), "ip", "link", "set", "lo", "up")
        yield made[0], made[1]
    finally:
        for name in made:
            command("ip", "netns", "del", name)


def place_device(device: str, namespace: str, own: str, other: str) -> None:
    """Move a device into a namespace and give it its addresses."""
    command("ip", "link", "set", device, "netns", namespace)
    command(*inside(namespace), "ip", "address", "add", own, "peer", other, "dev", device)
    command(*inside(namespace), "ip", "link", "set", device, "mtu", str(MTU), "txqueuelen", str(DEVICE_QUEUE), "up")


def dropped(device: str, namespace: str) -> int:
    """Return how many packets the kernel dropped in front of a device."""
    shown = command(*inside(namespace), "cat", f"/sys/class/net/{device}/statistics/tx_dropped")
    return int(shown)


def command(*words: str) -> str:
    """Run a command and return what it printed; raise `NotPermitted` with what it complained of."""
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=COMMAND_S, check=True)
    except subprocess.CalledProcessError as error:
        said = (error.stderr or "").strip().splitlines()
        raise NotPermitted(f"`{' '.join(words)}` failed: {said[-1] if said else error.returncode}") from error
    return done.stdout
