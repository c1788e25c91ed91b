"""A link for whole IP packets: it delays, loses, limits the rate and queues, both ways, from a seed.

    namespace a ── TUN device ── this process ── TUN device ── namespace b

Each direction is a `Pipe` of the simulator, so that a link means the same here and there; only the clock is real. What
the kernel of one namespace sends comes out of its device as packets of at most the MTU, super-buffers already cut. A
packet is written to the other device when it is due. The kernel's queue in front of a device is not part of the link:
it fills only when this process falls behind, and what it drops then is counted and told.

python -m benchmarks.links.emulator '{"namespaces": ["a", "b"], "faults": {"delay_us": 10000}, "seed": 1}'
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import select
import struct
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from functools import partial

from benchmarks.links.peers import Link
from benchmarks.namespaces import RECEIVER_HOST, SENDER_HOST, NotPermitted, command, inside, two_namespaces
from benchmarks.transport.environments import Environment
from fairway.demo.relay import Way, now_us
from fairway.demo.services import ServiceFailed, answer, process
from fairway.sim.pipe import Faults

TUN = "/dev/net/tun"
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
PACKET_BYTES_MAX = 65_536
BATCH_MAX = 64
"""Packets read from one device before those that are due leave."""
PR_SET_TIMERSLACK, SLACK_NS = 29, 1
REAL_TIME_PRIORITY = 10
MTU = 1_500
START_S = 60.0
DEVICE_QUEUE = 4_096
"""Packets that may wait for the emulator; a link's own queue is much shorter."""


def open_device(name: str) -> int:
    """Make a TUN device, and return the descriptor that its packets are read from."""
    descriptor = os.open(TUN, os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(descriptor, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TUN | IFF_NO_PI))
    return descriptor


def place_device(device: str, namespace: str, own: str, other: str) -> None:
    command("ip", "link", "set", device, "netns", namespace)
    command(*inside(namespace), "ip", "address", "add", own, "peer", other, "dev", device)
    command(*inside(namespace), "ip", "link", "set", device, "mtu", str(MTU), "txqueuelen", str(DEVICE_QUEUE), "up")


class Device(Way):
    """One direction: packets read from one device are written to the other when they are due."""

    def __init__(self, faults: Faults, seed: int, source: int, target: int) -> None:
        super().__init__(faults, seed)
        self.source = source
        self._write = partial(os.write, target)

    def take(self) -> None:
        """Read what has come and schedule what the pipe lets through."""
        with suppress(BlockingIOError):
            for _ in range(BATCH_MAX):
                self.send(os.read(self.source, PACKET_BYTES_MAX), self._write)


def ways(faults: Sequence[Faults], seed: int, devices: Sequence[int]) -> list[Device]:
    """Return both directions of a link; each draws from a random source of its own."""
    return [Device(faults[one], 2 * seed + one, devices[one], devices[1 - one]) for one in (0, 1)]


def run(both: Sequence[Device]) -> None:
    """Carry packets until standard input ends."""
    poll = select.poll()
    poll.register(sys.stdin.fileno(), select.POLLIN | select.POLLHUP)
    waiting = [way.source for way in both]
    while True:
        at_us = now_us()
        next_us = min(way.deliver(at_us) for way in both)
        # `select` waits to the microsecond; `poll` to the millisecond.
        ready, _, _ = select.select(waiting, (), (), max(0, next_us - now_us()) / 1e6)
        for way in both:
            if way.source in ready:
                way.take()
        if not ready and poll.poll(0):
            return


def be_punctual() -> None:
    """Ask the kernel to wake this process in time, and before others where that is permitted."""
    ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, SLACK_NS, 0, 0, 0)
    with suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(REAL_TIME_PRIORITY))


def main(argument: str) -> None:
    """Say that the link is up, carry until standard input ends, and print what happened to packets."""
    job = json.loads(argument)
    names = [f"{name}-tun"[-15:] for name in job["namespaces"]]
    devices = [open_device(name) for name in names]
    place_device(names[0], job["namespaces"][0], SENDER_HOST, RECEIVER_HOST)
    place_device(names[1], job["namespaces"][1], RECEIVER_HOST, SENDER_HOST)
    both = ways([Faults(**one) for one in job["faults"]], job["seed"], devices)
    be_punctual()
    print(json.dumps("up"), flush=True)
    run(both)
    counts = [dict(way.happened) for way in both]
    for count, name, namespace in zip(counts, names, job["namespaces"], strict=True):
        dropped = f"/sys/class/net/{name}/statistics/tx_dropped"
        count["device_dropped"] = int(command(*inside(namespace), "cat", dropped))
    print(json.dumps(counts), flush=True)


@contextmanager
def link(row: Link, seed: int, counts: list[dict[str, int]]) -> Iterator[Environment]:
    """Make a link for the time of the block, then add what happened to packets in each direction to `counts`; raise
    `NotPermitted`."""
    with two_namespaces() as names:
        job = json.dumps({"namespaces": names, "faults": [asdict(row.faults())] * 2, "seed": seed})
        with process([sys.executable, "-m", "benchmarks.links.emulator", job]) as child:
            assert child.stdin is not None
            try:
                answer(child, START_S)
            except ServiceFailed as reason:
                raise NotPermitted(f"the emulator did not start: {reason}") from reason
            sender, receiver = map(inside, names)
            yield Environment(row.title, receiver_host=RECEIVER_HOST, sender_prefix=sender, receiver_prefix=receiver)
            child.stdin.close()
            counts += answer(child, START_S)


if __name__ == "__main__":
    main(sys.argv[1])
