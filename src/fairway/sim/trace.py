"""The trace of a run: what every station of it would have captured, as one pcapng file."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fairway.capture.packets import Endpoint
from fairway.capture.pcapng import PcapngWriter
from fairway.core.events import Address
from fairway.sim.network import Sighting

EPOCH_NS = 1_700_000_000_000_000_000
"""Virtual time 0 in the trace: readers dislike 1970, and a run has no date."""


def tracer(write: Callable[[bytes], object], points: Sequence[str]) -> Callable[[int, Sighting], None]:
    """Return the function that writes a datagram as a station saw it: with what it sent and what reached it."""
    trace = PcapngWriter(write, points)

    def seen(station: int, sighting: Sighting) -> None:
        at_ns = EPOCH_NS + sighting.time_us * 1_000
        point = min(station, len(points) - 1)
        trace.datagram(at_ns, _endpoint(sighting.source), _endpoint(sighting.destination), sighting.data, point)

    return seen


def _endpoint(address: Address) -> Endpoint:
    assert isinstance(address, tuple)
    host, port = address
    return host, port
