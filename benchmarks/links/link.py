"""One link at a time: the emulator as a process between two namespaces."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.links.rows import Link
from benchmarks.namespaces import RECEIVER_HOST, NotPermitted, inside, two_namespaces
from benchmarks.transport.environments import Environment
from fairway.demo.processes import process


@contextmanager
def link(row: Link, seed: int, counts: list[dict[str, int]]) -> Iterator[Environment]:
    """Make a link for the time of the block, then add what happened to packets in each direction to `counts`; raise
    `NotPermitted`."""
    with two_namespaces() as names:
        job = json.dumps({"namespaces": names, "faults": [row.faults()] * 2, "seed": seed})
        with process([sys.executable, "-m", "benchmarks.links.emulator", job]) as child:
            assert child.stdin is not None
            assert child.stdout is not None
            assert child.stderr is not None
            if child.stdout.readline() != b"up\n":
                said = child.stderr.read().decode().strip().splitlines()
                raise NotPermitted(said[-1] if said else "the emulator did not start")
            sender, receiver = map(inside, names)
            yield Environment(row.title, receiver_host=RECEIVER_HOST, sender_prefix=sender, receiver_prefix=receiver)
            child.stdin.close()
            counts += json.loads(child.stdout.readline())
