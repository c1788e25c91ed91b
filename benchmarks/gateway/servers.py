"""The servers as processes, their data in a folder that the caller gives, and what each holds in the end.

Everything listens on free ports of the loopback device, and ends by its process id. RabbitMQ has its own home, cookie,
node name and `epmd`, so that a broker of the system is neither seen nor disturbed.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.gateway.landed import Held, held
from benchmarks.gateway.systems import NAME, System, find_program
from fairway.core.errors import FairwayError
from fairway.demo.services import GatewayService, process

HOST = "127.0.0.1"
START_S = 90.0
END_S = 10.0
LOOK_S = 0.05


class ServerFailed(FairwayError):
    """A server did not start; the message holds what it said last."""


@dataclass(frozen=True, slots=True)
class Server:
    port: int
    pid: int
    """The process whose processor time counts."""
    version: str
    close: Callable[[], Held]
    """Ends it properly where that changes what it holds, and tells what it holds."""


def start(system: System, folder: Path, stack: ExitStack) -> Server:
    """Start the server of a system with its data in the folder; it ends with the stack."""
    folder.mkdir(parents=True)
    starters = {"gateway": _gateway, "redis": _redis, "rabbitmq": _rabbitmq}
    return starters[system.server](system, folder, stack)


def _gateway(system: System, folder: Path, stack: ExitStack) -> Server:
    from fairway import __version__

    lake = folder / "lake"
    service = stack.enter_context(GatewayService(lake, [system.protocol]))
    service.serve()
    port = int(service.urls[system.protocol].rpartition(":")[2])

    def close() -> Held:
        code = service.stop()
        if code:
            raise ServerFailed(f"the gateway ended with {code}: {service.lines[-3:]}")
        return held(lake, "gateway")

    return Server(port, service.pid, __version__, close)


def _redis(system: System, folder: Path, stack: ExitStack) -> Server:
    import redis

    (port,) = free_ports(1)
    options = {"bind": HOST, "port": port, "dir": folder, "appendonly": "yes", "appendfsync": "always", "save": ""}
    command = [find_program("redis-server") or "redis-server"]
    for name, value in options.items():
        command += [f"--{name}", str(value)]
    child = stack.enter_context(process(command, log=folder / "redis.log"))
    client: Any = redis.Redis(HOST, port)

    def answers() -> bool:
        try:
            return bool(client.ping())
        except redis.RedisError:
            return False

    _wait(answers, child, folder / "redis.log", system)

    def close() -> Held:
        count = int(client.xlen(NAME))
        client.close()
        return Held(count)

    return Server(port, child.pid, str(client.info("server")["redis_version"]), close)


def _rabbitmq(system: System, folder: Path, stack: ExitStack) -> Server:
    port, names_port, node_port = free_ports(3)
    environment = _rabbitmq_environment(folder, port, names_port, node_port)
    stack.enter_context(
        process([find_program("epmd") or "epmd", "-port", str(names_port)], environment, folder / "epmd.log")
    )
    log = folder / "broker.log"
    child = stack.enter_context(process([find_program("rabbitmq-server") or "rabbitmq-server"], environment, log))
    _wait(lambda: _queued(port) is not None, child, log, system)

    broker = _last_child(child.pid)
    # The broker first: then the script that started it ends by itself, and nobody is left to be buried by others.
    stack.callback(_kill_and_wait, broker, child)

    def close() -> Held:
        return Held(_queued(port) or 0)

    return Server(port, broker, _rabbitmq_version(port), close)


def _kill_and_wait(pid: int, parent: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError, subprocess.TimeoutExpired):
        os.kill(pid, signal.SIGKILL)
        parent.wait(END_S)


def _rabbitmq_environment(folder: Path, port: int, names_port: int, node_port: int) -> dict[str, str]:
    for name in ("plugins", "environment.conf", "broker.conf"):
        (folder / name).touch()
    return {
        "HOME": str(folder),
        "ERL_EPMD_ADDRESS": HOST,
        "ERL_EPMD_PORT": str(names_port),
        "RABBITMQ_NODENAME": f"fairway-bench-{os.getpid()}@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": HOST,
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_DIST_PORT": str(node_port),
        "RABBITMQ_MNESIA_BASE": str(folder / "data"),
        "RABBITMQ_LOG_BASE": str(folder / "log"),
        "RABBITMQ_LOGS": str(folder / "log" / "broker.log"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
        "RABBITMQ_CONF_ENV_FILE": str(folder / "environment.conf"),
        "RABBITMQ_CONFIG_FILE": str(folder / "broker.conf"),
    }


@contextmanager
def _channel(port: int) -> Iterator[Any]:
    import pika

    connection = pika.BlockingConnection(pika.ConnectionParameters(HOST, port))
    try:
        yield connection.channel()
    finally:
        connection.close()


def _queued(port: int) -> int | None:
    """Count the messages of the queue, which is made if it is not there; None while the broker does not answer."""
    from pika.exceptions import AMQPError

    with suppress(OSError, AMQPError), _channel(port) as channel:
        return int(channel.queue_declare(NAME, durable=True).method.message_count)
    return None


def _rabbitmq_version(port: int) -> str:
    with _channel(port) as channel:
        properties: dict[str, Any] = channel.connection._impl.server_properties
        version = properties["version"]
        return version.decode() if isinstance(version, bytes) else str(version)


def free_ports(count: int) -> list[int]:
    """Find free ports; somebody else may take one before it is used, as with every such search."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind((HOST, 0))
        return [int(one.getsockname()[1]) for one in sockets]


def _wait(ready: Callable[[], bool], child: subprocess.Popen[bytes], log: Path, system: System) -> None:
    until_s = time.monotonic() + START_S
    while not ready():
        if child.poll() is not None or time.monotonic() > until_s:
            said = log.read_text(errors="replace").split("\n")[-4:]
            raise ServerFailed(f"{system.title} did not start: {' '.join(said).strip() or 'it said nothing'}")
        time.sleep(LOOK_S)


def _last_child(pid: int) -> int:
    """Follow a script to the program that it runs."""
    while children := Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        name = Path(f"/proc/{pid}/comm").read_text().strip()
        if name == "beam.smp":
            break
        pid = int(children[0])
    return pid
