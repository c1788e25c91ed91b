"""Who is measured, and what each promises with its acknowledgement."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from benchmarks.frame import INSTALL
from benchmarks.transport.loads import IN_FLIGHT, Load

MESSAGE_BYTES = 200
BATCH_MESSAGES = 1_024
BATCHES_IN_FLIGHT = 2
NAME = "messages"
"""Of the stream, and of the queue."""
LOADS = {
    load.name: load
    for load in (
        Load("batches", "batches", MESSAGE_BYTES, "in batches"),
        Load("awaited", "awaited", MESSAGE_BYTES, f"each awaited, {IN_FLIGHT} in flight"),
        Load("single", "ping", MESSAGE_BYTES, "one at a time, p50"),
    )
}

_PROMISE = "written to the SQLite journal, synced in one transaction with what recognises its duplicates"


@dataclass(frozen=True, slots=True)
class System:
    name: str
    title: str
    server: str
    """`gateway`, `redis` or `rabbitmq`."""
    protocol: str = ""
    promise: str = _PROMISE
    how: str = ""
    """How its client is used."""
    programs: tuple[str, ...] = ()
    """What the server needs; the first is also the name of its Debian package."""
    client: str = ""
    """The Python package of the client."""

    @property
    def missing(self) -> str:
        """What must be installed, or an empty text."""
        wanted = []
        if any(find_program(program) is None for program in self.programs):
            wanted.append(f"apt-get install {self.programs[0]}")
        if self.client and find_spec(self.client) is None:
            wanted.append(INSTALL)
        return " and ".join(wanted)

    @property
    def client_version(self) -> str:
        """The client and its version, after a comma."""
        return f", {self.client} {metadata.version(self.client)}" if self.client else ""


def find_program(name: str) -> str | None:
    """Return where a program is, also where Debian keeps what only the system starts."""
    # The wrapper in /usr/sbin changes the user and the folder; what it wraps is wanted.
    wrapped = Path("/usr/lib/rabbitmq/bin", name)
    found = shutil.which(name) or shutil.which(name, path="/usr/local/sbin:/usr/sbin")
    return str(wrapped) if wrapped.exists() else found


def _fairway(protocol: str, connections: str) -> System:
    how = f"send_many in batches, or each message awaited; controller=eager; {connections}"
    return System(protocol, f"gateway, {protocol}", "gateway", protocol, how=how)


SYSTEMS = {
    system.name: system
    for system in (
        _fairway("udpc", "one session"),
        _fairway("mrp", "eight connections on one socket"),
        _fairway("rup", "one conversation"),
        _fairway("pydevts", "one conversation"),
        System(
            "redis",
            "Redis streams",
            "redis",
            promise="appended to the AOF and synced before the reply (appendfsync always)",
            how="XADD; batches as pipelines without MULTI, awaited messages over 256 connections of its asyncio client",
            programs=("redis-server",),
            client="redis",
        ),
        System(
            "rabbitmq",
            "RabbitMQ",
            "rabbitmq",
            promise="persistent message in a durable classic queue, written and synced (gathered) before its confirm",
            how="publisher confirms on the asyncio connection of pika, counted, or a future for each message",
            programs=("rabbitmq-server", "epmd"),
            client="pika",
        ),
    )
}
