"""The trace of an endpoint: every datagram that it sends or receives, in a pcapng file that Wireshark opens."""

from __future__ import annotations

import os
import time
from typing import BinaryIO

from fairway.core.events import Address
from fairway.core.machine import Buffer

Trace = str | os.PathLike[str] | BinaryIO
LISTENER, CALLER = "listener", "caller"
"""What the point of capture is called: traces of both ends of a conversation are told apart by it."""


class Recorder:
    """Writes datagrams with synthetic IP and UDP headers. A file that it opened itself it also closes."""

    def __init__(self, trace: Trace, point: str) -> None:
        self._opened = isinstance(trace, str | os.PathLike)
        self._file: BinaryIO = open(trace, "wb", buffering=1 << 18) if isinstance(trace, str | os.PathLike) else trace  # noqa: SIM115
        from fairway.capture.pcapng import PcapngWriter  # most endpoints are not traced

        self._writer = PcapngWriter(self._file.write, (point,))
        self._users = 0

    def share(self) -> Recorder:
        """Note one more endpoint that writes here; the last one to close closes the file."""
        self._users += 1
        return self

    def record(self, source: Address, destination: Address, data: Buffer, segment_bytes: int | None) -> None:
        at_ns = time.time_ns()
        from_, to = _host_and_port(source), _host_and_port(destination)
        view, step = memoryview(data), segment_bytes or len(data) or 1
        for start in range(0, len(data) or 1, step):
            self._writer.datagram(at_ns, from_, to, view[start : start + step])

    def close(self) -> None:
        self._users -= 1
        if self._users > 0:
            return
        if self._opened:
            self._file.close()
        else:
            self._file.flush()


def _host_and_port(address: Address) -> tuple[str, int]:
    assert isinstance(address, tuple)
    return str(address[0]).partition("%")[0], int(address[1])
