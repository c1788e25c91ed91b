"""Captures to be judged: simulated runs of our own endpoints, and the way from a capture to its violations."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from fairway.capture.pcapng import PcapngWriter
from fairway.core.events import Address
from fairway.core.tables import DATAGRAMS, PROTOCOLS
from fairway.lake.schemas import arrow_schema
from fairway.sim.network import Sighting
from fairway.sim.swarm import draw, run_seed
from fairway.sim.trace import EPOCH_NS
from tests.lake.analysis.tables import frame_of, packets_table
from tests.lake.captures.reading import datagrams

PORTS = {9_000 + number: protocol for number, protocol in enumerate(PROTOCOLS)}
"""Where the servers of simulated runs listen."""
POINTS = ("server", "client", "server, later", "client, later")
LATE_FROM = 3
"""The later points miss the first third."""
Capture = tuple[str, bytes]


def keeps_to_the_standard(protocol: str, seed: int) -> bool:
    """Return whether nobody lies in a run of the swarm, and no counter is made to begin near its end."""
    configuration = draw(protocol, seed)
    beginnings = {"first_index": 0, "first_sequence": 1, "first_id": None}
    moved = any(getattr(configuration.options, name, usual) != usual for name, usual in beginnings.items())
    return not configuration.hostile_actions and not moved


def simulated(protocol: str, seed: int) -> Capture:
    """Runs a seed of the swarm and gives what its server and its clients captured, from the start and from later on.

    Every run has addresses of its own, so that many of them fit into one job.
    """
    sightings: list[tuple[int, Sighting]] = []
    run_seed(protocol, seed, trace=lambda station, sighting: sightings.append((min(station, 1), sighting)))
    file = bytearray()
    trace = PcapngWriter(file.extend, POINTS)
    number = PROTOCOLS.index(protocol)

    def place(address: Address) -> tuple[str, int]:
        assert isinstance(address, tuple)
        _, _, third, fourth = address[0].split(".")
        return f"{20 + number + 4 * (seed // 256)}.{seed % 256}.{third}.{fourth}", address[1] + number

    for count, (point, sighting) in enumerate(sightings):
        at_ns = EPOCH_NS + sighting.time_us * 1_000
        ends = place(sighting.source), place(sighting.destination)
        trace.datagram(at_ns, *ends, sighting.data, point)
        if count > len(sightings) // LATE_FROM:
            trace.datagram(at_ns, *ends, sighting.data, point + 2)
    return f"{protocol}-{seed}", bytes(file)


def packets(
    spark: SparkSession, captures: Iterable[Capture], ports: dict[int, str], damaged: Iterable[str] = ()
) -> DataFrame:
    """Return the table `packets` of captures; of some the file is damaged behind the first record."""
    rows = pa.concat_tables([datagrams(captures), _undecoded()])
    behind = pc.and_(pc.is_in(rows["file"], pa.array(list(damaged), pa.string())), pc.greater(rows["frame"], 1))
    rows = rows.set_column(rows.column_names.index("damages_before"), "damages_before", behind.cast(pa.int64()))
    return frame_of(spark, packets_table(rows, ports)).coalesce(1).localCheckpoint()


def _undecoded() -> pa.Table:
    """Return a record that is no datagram: nearly all of its columns are null."""
    record = {"file_id": "id of arp", "file": "arp", "offset": 24, "frame": 1, "piece": 0, "point": "middle"}
    record |= {"frame_bytes": 42, "truncated": False, "undecoded": "not_ip"}
    return pa.table({name: [record.get(name)] for name in DATAGRAMS.names}, schema=arrow_schema(DATAGRAMS))
