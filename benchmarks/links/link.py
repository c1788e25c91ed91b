"""One link at a time: the emulator as a process between two namespaces."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from benchmarks.links.devices import HOSTS
from benchmarks.links.rows import Row
from benchmarks.namespaces import NotPermitted, inside, two_namespaces
from fairway.demo.processes import process

SENDER, RECEIVER = 0, 1


@dataclass(slots=True)
class Link:
    """A link that is up."""

    row: Row
    namespaces: tuple[str, str]
    counts: list[dict[str, int]] = field(default_factory=list)
    """What happened to packets in each direction; filled when the link goes down."""

    @property
    def sender_prefix(self) -> tuple[str, ...]:
        """What a command begins with to run on the sender's side."""
        return inside(self.namespaces[SENDER])

    @property
    def receiver_prefix(self) -> tuple[str, ...]:
        """What a command begins with to run on the receiver's side."""
        return inside(self.namespaces[RECEIVER])

    @property
    def receiver_host(self) -> str:
        """The receiver's address."""
        return HOSTS[RECEIVER][0]


@contextmanager
def link(row: Row, seed: int) -> Iterator[Link]:
    """Make a link for the time of the block; raise `NotPermitted`."""
    with two_namespaces() as names:
        job: dict[str, Any] = {"namespaces": names, "faults": [row.faults()] * 2, "seed": seed}
        with process([sys.executable, "-m", "benchmarks.links.emulator", json.dumps(job)]) as child:
            assert child.stdin is not None
            assert child.stdout is not None
            assert child.stderr is not None
            if child.stdout.readline() != b"up\n":
                said = child.stderr.read().decode().strip().splitlines()
                raise NotPermitted(said[-1] if said else "the emulator did not start")
            up = Link(row, names)
            yield up
            child.stdin.close()
            up.counts = json.loads(child.stdout.readline())
