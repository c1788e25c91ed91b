"""What else reads captures: tshark's field dump, and dpkt from Ethernet to UDP and one header."""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path
from time import perf_counter

FIELDS = (
    *("frame.number", "frame.time_epoch", "frame.len", "ip.src", "udp.srcport", "ip.dst", "udp.dstport"),
    *("udp.length", "data.data"),
)


def tshark_seconds(path: Path, datagrams: int) -> float | None:
    """Return how long tshark takes to print a few fields of so many frames as text; None where it is not installed."""
    program = shutil.which("tshark")
    if program is None:
        return None
    command = [program, "-n", "-r", str(path), "-c", str(datagrams), "-T", "fields"]
    for field in FIELDS:
        command += ["-e", field]
    started = perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return perf_counter() - started


def dpkt_seconds(path: Path, datagrams: int) -> float | None:
    """Return how long dpkt takes for so many frames, with one header unpacked; None where it is not installed."""
    try:
        import dpkt
    except ImportError:
        return None
    header = struct.Struct("!IIIB")
    sizes: dict[tuple[int, int], int] = {}
    started = perf_counter()
    with open(path, "rb") as file:
        for number, (_, frame) in enumerate(dpkt.pcap.Reader(file)):
            if number == datagrams:
                break
            udp = dpkt.ethernet.Ethernet(frame).data.data
            flag = header.unpack_from(udp.data)[3] if len(udp.data) >= header.size else -1
            key = (udp.dport, flag)
            sizes[key] = sizes.get(key, 0) + len(udp.data)
    return perf_counter() - started


PEERS = {"tshark": tshark_seconds, "dpkt": dpkt_seconds}
