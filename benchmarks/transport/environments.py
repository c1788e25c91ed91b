"""Where a cell runs: on the loopback device, between two network namespaces, or through a lossy relay."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

from benchmarks.namespaces import RECEIVER_HOST, Namespaces
from fairway.demo.relay import relaying
from fairway.sim.pipe import Faults

LOOPBACK_HOST = "127.0.0.1"


@dataclass(frozen=True)
class Environment:
    """The way between the two sides, with so much loss in each direction."""

    name: str
    loss_percent: float = 0.0
    receiver_host: str = LOOPBACK_HOST
    sender_prefix: tuple[str, ...] = ()
    """What puts the sender's command into its environment."""
    receiver_prefix: tuple[str, ...] = ()
    datagrams_only: bool = False
    """TCP cannot go this way."""
    prepare: Callable[[], None] = lambda: None
    """Makes the way ready for the next cell."""

    @property
    def title(self) -> str:
        return f"{self.name}, {self.loss_percent:g} % loss" if self.name != "loopback" else self.name

    @contextmanager
    def between(self, address: tuple[str, int], seed: int) -> Iterator[tuple[str, int]]:
        yield address


@dataclass(frozen=True)
class RelayEnvironment(Environment):
    """A relay process between the two sides, on the loopback device."""

    also: float = 0.0
    """The percentage that is duplicated, and that is reordered."""
    done: list[dict[str, dict[str, int]]] = field(default_factory=list)
    """What the relay did to each cell."""

    @contextmanager
    def between(self, address: tuple[str, int], seed: int) -> Iterator[tuple[str, int]]:
        loss, also = (int(percent * 10_000) for percent in (self.loss_percent, self.also))
        faults = Faults(loss=loss, duplicate=also, reorder=also, reorder_us=5_000, delay_us=0)
        with relaying(address, faults, seed) as (relayed, stop):
            yield relayed
            self.done.append(stop())


LOOPBACK = Environment("loopback")


def lossy_environments(losses: list[float], namespaces: Namespaces | None) -> list[Environment]:
    """Return one environment for each loss, and one without, to compare with."""
    wanted = [0.0, *(loss for loss in losses if loss)] if losses else []
    if namespaces is None:
        return [RelayEnvironment("relay", loss, datagrams_only=True) for loss in wanted]
    return [
        Environment(
            "veth",
            loss,
            receiver_host=RECEIVER_HOST,
            sender_prefix=namespaces.sender_prefix,
            receiver_prefix=namespaces.receiver_prefix,
            prepare=partial(namespaces.set_loss, loss),
        )
        for loss in wanted
    ]
