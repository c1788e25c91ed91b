"""Two network namespaces joined by a pair of virtual devices, whose kernel drops a share of what arrives.

A super-buffer is cut before it reaches a device: otherwise a loss would take all of it instead of one datagram.
Needs `ip` and `nft` and the permission to use them; nothing outside the two namespaces changes.
"""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

SENDER_HOST, RECEIVER_HOST = "192.0.2.1", "192.0.2.2"
"""Reserved for documentation; inside a namespace of our own nobody else has them."""
COMMAND_S = 20.0

_numbers = itertools.count()


class NotPermitted(Exception):
    """This machine or this user cannot make network namespaces; the text says what is missing."""


class Namespaces:
    """Two namespaces, the sender's and the receiver's."""

    def __init__(self, sender: str, receiver: str) -> None:
        self.names = (sender, receiver)
        self.sender_prefix, self.receiver_prefix = inside(sender), inside(receiver)

    def set_loss(self, percent: float) -> None:
        """Drop this share of all datagrams and segments, at random, in each direction."""
        per_million = int(percent * 10_000)
        drop = f"meta l4proto {{ tcp, udp }} numgen random mod 1000000 < {per_million} drop" if per_million else ""
        rules = f"""
            table inet fairway
            delete table inet fairway
            table inet fairway {{
                chain input {{
                    type filter hook input priority 0; policy accept;
                    {drop}
                }}
            }}
        """
        for name in self.names:
            command(*inside(name), "nft", "-f", "-", given=rules)


def inside(name: str) -> tuple[str, ...]:
    """Return what a command begins with to run in a namespace."""
    return ("ip", "netns", "exec", name)


@contextmanager
def two_namespaces() -> Iterator[tuple[str, str]]:
    """Make two namespaces, and remove them with all that is in them; raise `NotPermitted`."""
    need("ip")
    stem = f"fw{os.getpid()}-{next(_numbers)}"
    made: list[str] = []
    try:
        for name in (f"{stem}s", f"{stem}r"):
            command("ip", "netns", "add", name)
            made.append(name)
            command(*inside(name), "ip", "link", "set", "lo", "up")
        yield made[0], made[1]
    finally:
        for name in made:
            command("ip", "netns", "del", name)


@contextmanager
def namespaces() -> Iterator[Namespaces]:
    """Join two namespaces for the time of the block; raise `NotPermitted`."""
    with two_namespaces() as names:
        need("nft")
        both = Namespaces(*names)
        _join(both)
        both.set_loss(0)
        yield both


def _join(both: Namespaces) -> None:
    sender, receiver = both.names
    command(*inside(sender), "ip", "link", "add", "wire", "type", "veth", "peer", "name", "wire", "netns", receiver)
    for name, host in zip(both.names, (SENDER_HOST, RECEIVER_HOST), strict=True):
        command(*inside(name), "ip", "address", "add", f"{host}/24", "dev", "wire")
        command(*inside(name), "ip", "link", "set", "wire", "gso_max_segs", "1", "up")


def need(program: str) -> None:
    """Raise `NotPermitted` where a program is missing."""
    if shutil.which(program) is None:
        raise NotPermitted(f"the program {program} is not there")


def command(*words: str, given: str | None = None) -> str:
    """Run a command and return what it printed; raise `NotPermitted` with what it complained of."""
    try:
        done = subprocess.run(words, input=given, capture_output=True, text=True, timeout=COMMAND_S, check=True)
    except subprocess.CalledProcessError as error:
        said = (error.stderr or "").strip().splitlines()
        raise NotPermitted(f"{' '.join(words[:3])} failed: {said[-1] if said else error.returncode}") from error
    return done.stdout
