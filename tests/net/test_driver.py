"""The turn of the loop: one timer that is moved as little as possible, and waiting readers that are woken fairly."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fairway.core.events import Event
from fairway.core.machine import Transmit
from fairway.core.statistics import Statistics
from fairway.net.driver import Driver
from fairway.net.inbox import Inbox
from fairway.net.messages import Message


class ClockedMachine:
    """A machine with one deadline, which notes when it was woken."""

    def __init__(self) -> None:
        self.due_us: int | None = None
        self.woken_us: list[int] = []
        self.received: list[tuple[bytes, int]] = []
        """Each datagram, with how often the machine had been woken before."""

    def transmits(self) -> list[Transmit]:
        return []

    def events(self) -> list[Event]:
        return []

    def next_deadline_us(self) -> int | None:
        return self.due_us

    def wake(self, now_us: int) -> None:
        self.woken_us.append(now_us)
        self.due_us = None

    def receive(self, data: bytes, *arguments: object) -> None:
        self.received.append((data, len(self.woken_us)))


class Nobody:
    """Nobody sends, nobody waits."""

    def gather(self, now_us: int) -> bool:
        return False

    def report(self, event: Event) -> None: ...

    def oversized(self) -> None: ...

    def failed(self, error: Exception) -> None: ...


class Waiting:
    """A link with so many datagrams in its socket, and perhaps something due."""

    def __init__(self, *datagrams: bytes) -> None:
        self.datagrams = list(datagrams)
        self.deadline_us: int | None = None
        self.woken_us: list[int] = []

    def start(self, above: object, screen: object = None) -> None: ...

    def drain(self, receive: Any) -> int:
        for datagram in self.datagrams:
            receive(datagram, ("127.0.0.1", 1), None)
        count = len(self.datagrams)
        self.datagrams.clear()
        return count

    def wake(self, now_us: int) -> None:
        self.woken_us.append(now_us)
        self.deadline_us = None

    def send(self, transmits: list[Transmit]) -> None: ...

    def close(self) -> None: ...


def clocked(link: Waiting | None = None) -> tuple[Any, Driver]:
    machine: Any = ClockedMachine()
    below: Any = link or Waiting()
    driver = Driver(machine, below)
    driver.start(Nobody())
    return machine, driver


async def woken(machine: ClockedMachine) -> int:
    while not machine.woken_us:
        await asyncio.sleep(0.001)
    return machine.woken_us[0]


async def test_what_arrives_while_a_drain_goes_on_has_its_own_time(monkeypatch: pytest.MonkeyPatch) -> None:
    machine, driver = clocked(Waiting(b"first", b"second", b"third"))
    times_us: list[int] = []

    def receive(data: bytes, address: object, now_us: int, segment_bytes: object) -> None:
        times_us.append(now_us)
        while driver.now_us() == now_us:  # a machine that takes its time
            pass

    monkeypatch.setattr(machine, "receive", receive)
    machine.statistics = Statistics()
    driver.readable()
    assert times_us == sorted(set(times_us)), times_us
    assert len(times_us) == 3
    driver.close()


@pytest.mark.parametrize(
    ("first_us", "then_us", "before_us"), [(10_000, 40_000, 1 << 60), (60_000_000, 10_000, 60_000_000)]
)
async def test_a_deadline_that_moves_is_kept(first_us: int, then_us: int, before_us: int) -> None:
    """Later, although the timer rings early, and earlier."""
    machine, driver = clocked()
    start_us = driver.now_us()
    for due_us in (first_us, then_us):
        machine.due_us = start_us + due_us
        driver.flush()
    assert start_us + then_us <= await woken(machine) < start_us + before_us
    driver.close()


async def test_an_answer_that_waits_in_the_socket_is_taken_in_before_anything_counts_as_late() -> None:
    machine, driver = clocked(Waiting(b"answer"))
    machine.due_us = driver.now_us() + 1_000
    driver.settle()
    await woken(machine)
    assert machine.received == [(b"answer", 0)]


async def test_what_wraps_a_socket_is_woken_at_its_own_deadline_and_the_machine_at_its_own() -> None:
    link = Waiting()
    machine, driver = clocked(link)
    start_us = driver.now_us()
    link.deadline_us = start_us + 5_000
    machine.due_us = start_us + 60_000_000
    driver.flush()
    while not link.woken_us:
        await asyncio.sleep(0.001)
    assert start_us + 5_000 <= link.woken_us[0] < start_us + 60_000_000
    driver.close()


async def test_a_deadline_that_is_gone_wakes_nobody() -> None:
    machine, driver = clocked()
    machine.due_us = driver.now_us() + 5_000
    driver.flush()
    machine.due_us = None
    driver.flush()
    await asyncio.sleep(0.02)
    assert machine.woken_us == []
    driver.close()


async def test_a_reader_that_is_woken_and_cancelled_at_once_passes_the_message_on() -> None:
    class Untold:
        def took(self, messages: int, size: int, receipt: object) -> None: ...

    class Somebody:
        identity: Any = None
        _conversations = Untold()

    inbox = Inbox()
    peer: Any = Somebody()
    readers = [asyncio.ensure_future(inbox.receive()) for _ in range(2)]
    await asyncio.sleep(0)
    inbox.put(Message(peer, 1, b"only one"))
    readers[0].cancel()
    assert (await readers[1]).body == b"only one"
    assert readers[0].cancelled()
