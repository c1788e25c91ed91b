"""Traffic of other protocols stays unknown, and ours is recognised though a capture holds only some of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random

import pytest

from fairway.capture.packets import Endpoint
from fairway.capture.pcapng import PcapngWriter
from fairway.lake.analysis.decoded import Decoded
from fairway.lake.arrays import Rows
from fairway.lake.captures.recognition import RECOGNISED
from fairway.protocols import NAMES
from fairway.protocols.udpc import wire as udpc
from tests.capture.datagrams import Datagram, decode_frame
from tests.capture.reading import read_capture
from tests.lake.captures.foreign import MAKERS, Datagrams
from tests.lake.captures.test_recognition import datagrams_of, important
from tests.lake.captures.traces import AT_NS, SERVER, simulated

SEEDS = 150
Seen = tuple[int, Endpoint, Endpoint, bytes]


def flows_of(folder: Path, flows: Iterable[tuple[Endpoint, Datagrams]]) -> list[str]:
    """Return the protocol of each flow; all are in one capture, each from a port of its own."""
    pieces: list[bytes] = []
    trace = PcapngWriter(pieces.append, ("wire",))
    count = 0
    for count, (server, datagrams) in enumerate(flows, 1):
        client = ("10.0.1.1", 10_000 + count)
        for number, (from_client, payload) in enumerate(datagrams):
            source, destination = (client, server) if from_client else (server, client)
            trace.datagram(AT_NS + number * 1_000_000, source, destination, payload)
    return verdicts(folder, b"".join(pieces), count)


def verdicts(folder: Path, capture: bytes, flows: int) -> list[str]:
    table = datagrams_of(folder, [capture])
    rows = Rows(table)
    found = Decoded(rows, {}).recognised.protocol
    ports = [
        max(pair)
        for pair in zip(rows.numbers("source_port").tolist(), rows.numbers("destination_port").tolist(), strict=True)
    ]
    by_port = dict(zip(ports, (RECOGNISED[code] for code in found.tolist()), strict=True))
    assert len(by_port) == flows
    return [by_port[port] for port in sorted(by_port)]


@pytest.mark.parametrize("name", MAKERS)
def test_no_flow_of_another_protocol_is_taken_for_one_of_ours(name: str, tmp_path: Path) -> None:
    made = [MAKERS[name](Random(f"{name} {seed}")) for seed in range(SEEDS)]
    found = flows_of(tmp_path, ((SERVER, datagrams) for datagrams in made))
    assert [seed for seed, protocol in enumerate(found) if protocol != "unknown"] == []


@pytest.mark.parametrize("destination", ["10.0.255.255", "255.255.255.255", "239.1.2.3", "224.0.0.251"])
def test_what_goes_to_many_hosts_is_no_session(destination: str, tmp_path: Path) -> None:
    datagrams = [(True, important(number + 1)) for number in range(20)]
    assert flows_of(tmp_path, [((destination, 9_000), datagrams), (SERVER, datagrams)]) == ["unknown", "udpc"]


def test_a_session_whose_index_wraps_is_recognised(tmp_path: Path) -> None:
    last = (1 << 32) - 1
    datagrams = [(True, important(index)) for index in (*range(last - 9, last + 1), *range(1, 11))]
    acks = [
        (False, udpc.encode(udpc.Control(index=5 + number, session_id=9, ack_index=index, flag=udpc.IMP | udpc.ACK)))
        for number, index in enumerate((*range(last - 9, last + 1), *range(1, 11)))
    ]
    both = [one for pair in zip(datagrams, acks, strict=True) for one in pair]
    assert flows_of(tmp_path, [(SERVER, datagrams), (SERVER, acks), (SERVER, both)]) == ["udpc"] * 3


def joined_late(seen: list[Seen], _: Random) -> list[Seen]:
    return seen[len(seen) // 2 :]


def one_way(seen: list[Seen], chance: Random) -> list[Seen]:
    way = chance.choice(sorted({one[1] for one in seen}))
    return [one for one in seen if one[1] == way]


def lossy(seen: list[Seen], chance: Random) -> list[Seen]:
    return [one for one in seen if chance.random() < 0.7]


def late_one_way(seen: list[Seen], chance: Random) -> list[Seen]:
    return one_way(joined_late(seen, chance), chance)


def late_lossy(seen: list[Seen], chance: Random) -> list[Seen]:
    return lossy(joined_late(seen, chance), chance)


VIEWS: tuple[Callable[[list[Seen], Random], list[Seen]], ...] = (joined_late, one_way, lossy, late_one_way, late_lossy)


def views_of(protocol: str, seeds: Iterable[int]) -> bytes:
    """One capture with a flow for each seed and view; each has a server's port of its own."""
    pieces: list[bytes] = []
    trace = PcapngWriter(pieces.append, ("wire",))
    port = 50_000
    for seed in seeds:
        for view in VIEWS:
            seen = []
            for frame in read_capture(simulated(protocol, seed)):
                datagram = decode_frame(frame)
                if isinstance(datagram, Datagram) and frame.point == "client":
                    seen.append((frame.at_ns, datagram.source, datagram.destination, datagram.payload))
            port += 1
            moved = {
                end: (end[0], port if index else 1_000) for index, end in enumerate(sorted({one[1] for one in seen}))
            }
            for at_ns, source, destination, payload in view(seen, Random(f"{protocol} {seed}")):
                trace.datagram(at_ns, moved[source], moved[destination], payload)
    return b"".join(pieces)


@pytest.mark.parametrize("protocol", NAMES)
def test_our_own_traffic_is_recognised_though_little_of_it_was_captured(protocol: str, tmp_path: Path) -> None:
    """All that is unknown is one side's SYN, whose sessionID is another, and acknowledgements of pydevts alone."""
    seeds = range(1, 5)
    found = verdicts(tmp_path, views_of(protocol, seeds), len(seeds) * len(VIEWS))
    unknown = {VIEWS[index % len(VIEWS)] for index, name in enumerate(found) if name == "unknown"}
    assert set(found) <= {protocol, "unknown"}
    assert unknown <= {"udpc": {one_way}, "pydevts": {one_way, late_one_way}}.get(protocol, set())
