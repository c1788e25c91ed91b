"""What a rup machine sends and reports, as flat lists: so two machines that were fed differently can be compared."""

from __future__ import annotations

from fairway.core.events import Event
from fairway.core.machine import split
from fairway.protocols.rup.machine import RupMachine


class Outputs:
    """Drains one machine; what it sends is kept datagram by datagram, with the time."""

    def __init__(self, machine: RupMachine) -> None:
        self.machine = machine
        self.sent: list[tuple[int, bytes]] = []
        self.events: list[Event] = []

    def drain(self, now_us: int) -> None:
        for transmit in self.machine.transmits():
            for datagram in split(transmit.data, transmit.segment_bytes or len(transmit.data)):
                self.sent.append((now_us, bytes(datagram)))
        self.events += self.machine.events()

    def wake_until(self, now_us: int) -> None:
        for _ in range(1_000):
            due_us = self.machine.next_deadline_us()
            if due_us is None or due_us > now_us:
                return
            self.machine.wake(due_us)
            self.drain(due_us)
        raise AssertionError("the machine keeps itself busy")
