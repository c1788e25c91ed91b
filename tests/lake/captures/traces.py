"""Captures for tests: simulated runs of the four protocols, and single datagrams of our choice."""

from __future__ import annotations

from pathlib import Path

from fairway.capture.packets import Endpoint
from fairway.capture.pcapng import PcapngWriter
from fairway.protocols import NAMES, make_options
from fairway.sim.configuration import Configuration
from fairway.sim.load import Load
from fairway.sim.pipe import Faults
from fairway.sim.run import run
from fairway.sim.trace import tracer

FAULTS = Faults(loss=50_000, duplicate=50_000, corrupt=20_000)
SERVER: Endpoint = ("10.0.0.9", 9_000)
AT_NS = 1_700_000_000_000_000_000


def simulated(protocol: str, seed: int = 1, *, layout: str | None = None) -> bytes:
    """The trace of one run over a bad link, seen at both ends."""
    options = make_options(protocol, **({} if layout is None else {"layout": layout}))
    pieces: list[bytes] = []
    configuration = Configuration(protocol=protocol, options=options, faults=FAULTS, load=Load(messages=30))
    run(configuration, seed, trace=tracer(pieces.append, ("server", "client")))
    return b"".join(pieces)


def all_four(folder: Path) -> dict[str, Path]:
    """A capture of each protocol, by its name."""
    found: dict[str, Path] = {}
    for protocol in NAMES:
        found[protocol] = folder / f"{protocol}.pcapng"
        found[protocol].write_bytes(simulated(protocol))
    return found


def conversation(*datagrams: tuple[bool, bytes], client: Endpoint = ("10.0.0.1", 40_000)) -> bytes:
    """A capture of these datagrams, each from the client or from the server, a millisecond apart."""
    pieces: list[bytes] = []
    trace = PcapngWriter(pieces.append, ("wire",))
    for number, (from_client, payload) in enumerate(datagrams):
        source, destination = (client, SERVER) if from_client else (SERVER, client)
        trace.datagram(AT_NS + number * 1_000_000, source, destination, payload)
    return b"".join(pieces)
