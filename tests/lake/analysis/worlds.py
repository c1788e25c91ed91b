"""Simulated runs with a trace at every node, each run with addresses of its own, so that many fit one capture."""

from __future__ import annotations

import io
from dataclasses import dataclass

from fairway.capture.pcapng import PcapngWriter
from fairway.sim.configuration import Configuration
from fairway.sim.network import Sighting
from fairway.sim.result import Result
from fairway.sim.run import run
from fairway.sim.trace import EPOCH_NS


@dataclass(frozen=True, slots=True)
class World:
    """A run that is over: what it was, what came out, what its nodes saw."""

    number: int
    configuration: Configuration
    result: Result
    capture: bytes
    sent: int
    """Datagrams that left a node."""

    @property
    def hosts(self) -> tuple[str, str]:
        """The addresses of the server and of the first client."""
        return host(self.number, "10.0.0.1"), host(self.number, "10.0.1.1")


def host(number: int, original: str) -> str:
    """Return an address of the simulation as the capture has it: in a network of its own for each run."""
    _, _, third, fourth = original.split(".")
    return f"10.{1 + number // 64}.{4 * (number % 64) + int(third)}.{fourth}"


def simulated(number: int, configuration: Configuration, seed: int, *, delay_s: int = 0) -> World:
    """Run a configuration and return it with its trace, which begins `delay_s` after the usual date."""
    file = io.BytesIO()
    points = ["server", *(f"client {index}" for index in range(1, configuration.clients + 1)), "hostile"]
    writer = PcapngWriter(file.write, points)

    def seen(station: int, sighting: Sighting) -> None:
        source, destination = (
            (host(number, address[0]), address[1])
            for address in (sighting.source, sighting.destination)
            if isinstance(address, tuple)
        )
        at_ns = EPOCH_NS + delay_s * 1_000_000_000 + sighting.time_us * 1_000
        writer.datagram(at_ns, source, destination, sighting.data, min(station, len(points) - 1))

    result = run(configuration, seed, trace=seen)
    return World(number, configuration, result, file.getvalue(), result.datagrams)
