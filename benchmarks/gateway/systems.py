"""Who is measured, and what each promises with its acknowledgement."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from benchmarks.transport.loads import IN_FLIGHT, Load

MESSAGE_BYTES = 200
BATCH_MESSAGES = 1_024
BATCHES_IN_FLIGHT = 2
LOADS = {
    load.name: load
    for load in (
        Load("batches", "batches", MESSAGE_BYTES, "in batches", "messages/s"),
        Load("awaited", "awaited", MESSAGE_BYTES, f"each awaited, {IN_FLIGHT} in flight", "messages/s"),
        Load("single", "ping", MESSAGE_BYTES, "one at a time, p50", "µs"),
    )
}
INSTALL_CLIENTS = "pip install --require-hashes -r requirements/bench.txt"

_PROMISE = "written to the SQLite journal, synced in one transaction with what recognises its copies; in the table once"


@dataclass(frozen=True, slots=True)
class System:
    """One row of the table."""

    name: str
    title: str
    server: str
    """`gateway`, `redis` or `rabbitmq`."""
    protocol: str = ""
    promise: str = _PROMISE
    how: str = ""
    """How its client is used."""
    programs: tuple[str, ...] = ()
    package: str = ""
    """The Debian package of the server."""
    client: str = ""
    """The Python package of the client."""

    @property
    def missing(self) -> str:
        """Says what must be installed, or gives an empty text."""
        wanted = []
        if self.package and any(find_program(program) is None for program in self.programs):
            wanted.append(f"apt-get install {self.package}")
        if self.client and find_spec(self.client) is None:
            wanted.append(INSTALL_CLIENTS)
        return " and ".join(wanted)

    @property
    def client_version(self) -> str:
        """The version of the Python client."""
        return metadata.version(self.client) if self.client else ""


def find_program(name: str) -> str | None:
    """Finds a program, also where Debian keeps what only the system starts."""
    places = ("/usr/lib/rabbitmq/bin", "/usr/local/sbin", "/usr/sbin")
    # The wrapper in /usr/sbin changes the user and the folder; what it wraps is wanted.
    for place in places[:1]:
        if Path(place, name).exists():
            return str(Path(place, name))
    return shutil.which(name) or next((str(Path(one, name)) for one in places if Path(one, name).exists()), None)


def _fairway(protocol: str, connections: str) -> System:
    how = f"send_many in batches, or each message awaited; controller=eager; {connections}"
    return System(protocol, f"gateway, {protocol}", "gateway", protocol, how=how)


SYSTEMS = {
    system.name: system
    for system in (
        _fairway("udpc", "one session"),
        _fairway("mrp", "eight connections"),
        _fairway("rup", "one conversation"),
        _fairway("pydevts", "one conversation"),
        System(
            "redis",
            "Redis streams",
            "redis",
            promise="appended to the AOF and synced before the reply (appendfsync always)",
            how="XADD; batches as pipelines without MULTI, awaited messages over 256 connections of its asyncio client",
            programs=("redis-server",),
            package="redis-server",
            client="redis",
        ),
        System(
            "rabbitmq",
            "RabbitMQ",
            "rabbitmq",
            promise="persistent message in a durable classic queue, written and synced (gathered) before its confirm",
            how="publisher confirms on the asyncio connection of pika, counted, or a future for each message",
            programs=("rabbitmq-server", "epmd"),
            package="rabbitmq-server",
            client="pika",
        ),
    )
}
