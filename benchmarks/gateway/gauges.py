"""What a soak looks at while it runs: memory of the services, what waits in the gateway, and what is in the table."""

from __future__ import annotations

import os
import re
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from benchmarks.transport.clocks import resident_bytes
from fairway.core.tables import MESSAGES
from fairway.store.delta import Delta
from fairway.store.lakes import Lake

ANSWER_S = 10.0
_UNSEALED = re.compile(r"^fairway_gateway_backlog_messages\{[^}]*\} (\S+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Sample:
    gateway_bytes: int
    stream_bytes: int
    """With the JVM and its workers."""
    unsealed: int
    on_the_way: int
    """Acknowledged, as the senders know it, and not in the table."""
    files: int
    """Of the table."""


class Gauges:
    """Reads everything without touching what it reads."""

    def __init__(self, lake: Path, metrics: str, gateway: int, stream: int) -> None:
        self._table = Lake(lake, create=False).delta(MESSAGES.name)
        self._metrics = metrics
        self._gateway = gateway
        self._stream = stream

    def read(self, acknowledged: int) -> Sample:
        """Takes one sample; so many messages were acknowledged before."""
        rows = rows_by_file(self._table)
        return Sample(
            gateway_bytes=resident_bytes(self._gateway),
            stream_bytes=sum(map(resident_bytes, members(self._stream))),
            unsealed=self._unsealed(),
            on_the_way=max(0, acknowledged - sum(rows)),
            files=len(rows),
        )

    def _unsealed(self) -> int:
        with urllib.request.urlopen(self._metrics, timeout=ANSWER_S) as answer:
            found = _UNSEALED.search(answer.read().decode())
        return int(float(found[1])) if found else 0


def rows_by_file(table: Delta) -> list[int]:
    return [file.rows for file, _ in table.files(table.open())] if table.exists() else []


def members(group: int) -> Iterator[int]:
    for name in os.listdir("/proc"):
        if name.isdigit():
            with suppress(ProcessLookupError):
                if os.getpgid(int(name)) == group:
                    yield int(name)
