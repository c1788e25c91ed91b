"""Captures whose truth anybody can make again: one simulated conversation of each protocol over a bad link."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fairway.capture.trace import TraceWriter
from fairway.sim.cases import RunOptions, case
from fairway.sim.run import run
from fairway.sim.trace import EPOCH_NS

if TYPE_CHECKING:
    from fairway.core.events import Address
    from fairway.sim.network import Sighting

SEED = 7
WISHES = {
    "udpc": RunOptions(protocol="udpc", loss=0.05, duplicate=0.02, messages=60),
    "mrp": RunOptions(protocol="mrp", loss=0.05, reorder=0.05, messages=60, two_way=True),
    "rup": RunOptions(protocol="rup", loss=0.1, messages=12, size=20_000),
    "pydevts": RunOptions(protocol="pydevts", loss=0.1, corrupt=0.05, messages=40),
}


def write_example(folder: Path) -> list[Path]:
    """Writes `PROTOCOL.pcapng` for each protocol, captured at both ends, and gives the paths."""
    paths = []
    for number, (protocol, wishes) in enumerate(WISHES.items()):
        paths.append(folder / f"{protocol}.pcapng")
        with paths[-1].open("wb") as file:
            trace = TraceWriter(file.write, ("server", "client 1"))

            def seen(station: int, sighting: Sighting, trace: TraceWriter = trace, number: int = number) -> None:
                source, destination = _endpoint(sighting.source, number), _endpoint(sighting.destination, number)
                trace.datagram(EPOCH_NS + sighting.time_us * 1_000, source, destination, sighting.data, station)

            run(case(wishes), SEED, trace=seen)
    return paths


def _endpoint(address: Address, number: int) -> tuple[str, int]:
    """Return an address of the simulation in a network of its own, so that each conversation is a flow of its own."""
    assert isinstance(address, tuple)
    _, _, third, fourth = str(address[0]).split(".")
    return f"10.{number + 1}.{third}.{fourth}", int(address[1])
