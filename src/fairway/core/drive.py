"""The loop that drives a machine, shared by the simulator and the sockets.

Shared because a test world with a kinder order of steps hides bugs: what is sent leaves before what happened is
reported, reporting may cause more, and one timer is armed last.
"""

from __future__ import annotations

from collections.abc import Callable

from fairway.core.events import Event
from fairway.core.machine import Machine, Transmit


def settle(
    machine: Machine,
    transmit: Callable[[list[Transmit]], None],
    report: Callable[[Event], None],
    arm: Callable[[int | None], None],
) -> None:
    """Send and report until reporting causes nothing more, then arm the timer.

    Call it after each input. An input given from inside `report` must not settle again: its effects are taken up here.
    """
    while True:
        transmits = machine.transmits()
        if transmits:
            transmit(transmits)
        events = machine.events()
        if not events:
            break
        for event in events:
            report(event)
    arm(machine.next_deadline_us())
