"""Frames decoded by columns, as plain values: what tests compare."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address

import numpy as np

from fairway.capture.columns.datagrams import REASONS, Datagrams, decode_frames
from fairway.capture.packets import Endpoint
from tests.capture.reading import Frame


@dataclass(frozen=True, slots=True)
class Datagram:
    """One UDP datagram as it was captured."""

    source: Endpoint
    destination: Endpoint
    payload: bytes
    payload_bytes: int
    """The length that the UDP header announces; more than there is in `payload` when the frame was cut."""
    first_fragment: bool
    """The rest of the payload travels in other frames."""


@dataclass(frozen=True, slots=True)
class NoDatagram:
    """The frame holds no datagram that can be read; `reason` is a stable short name."""

    reason: str


def decoded(frames: Sequence[tuple[int, bytes]]) -> list[Datagram | NoDatagram]:
    """Decode frames, each with its link type, in one call."""
    buffer = b"".join(data for _, data in frames)
    lengths = np.array([len(data) for _, data in frames], dtype=np.int64)
    links = np.array([link for link, _ in frames], dtype=np.int64)
    found = decode_frames(np.frombuffer(buffer, dtype=np.uint8), np.cumsum(lengths) - lengths, lengths, links)
    return [_row(found, number, buffer) for number in range(len(frames))]


def decode_frame(frame: Frame) -> Datagram | NoDatagram:
    """Find the UDP datagram in a frame, or the reason why there is none."""
    return decoded([(frame.link_type, frame.data)])[0]


def _row(found: Datagrams, number: int, buffer: bytes) -> Datagram | NoDatagram:
    if found.reason[number]:
        return NoDatagram(REASONS[found.reason[number]])

    def endpoint(end: str) -> Endpoint:
        high, low, port = (int(getattr(found, f"{end}_{part}")[number]) for part in ("high", "low", "port"))
        return str(IPv6Address(high << 64 | low) if found.is_ipv6[number] else IPv4Address(low)), port

    start, payload_bytes = int(found.payload_offset[number]), int(found.payload_captured[number])
    return Datagram(
        source=endpoint("source"),
        destination=endpoint("destination"),
        payload=buffer[start : start + payload_bytes],
        payload_bytes=int(found.payload_bytes[number]),
        first_fragment=bool(found.first_fragment[number]),
    )
