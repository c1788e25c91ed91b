"""Several workers on the same ports: every peer keeps its journal, whoever is killed."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sqlite3
import subprocess
import sys
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fairway import net
from fairway.core import layout
from fairway.net.sharing import bind_shared
from fairway.net.sockets import open_bound
from tests.loopback import own_host

from .test_service import refused
from .world import Crowd, Ledger, Sender, any_ports, gateway, landed, until

WORKERS = ("--workers", "2")
NAMES = ("gateway.0", "gateway.1")


def children_of(parent: int) -> list[int]:
    """List the processes that a gateway has started."""
    listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(parent)], capture_output=True, check=False)
    return [int(pid) for pid in listed.stdout.split()]


async def test_a_worker_that_is_killed_comes_back_and_its_peers_see_only_delay(lake: Path) -> None:
    ledger = Ledger()
    async with gateway(lake, any_ports(("udpc", "rup")), *WORKERS) as running:
        crowd = Crowd(*(Sender(running.urls[number % 2], f"s{number}", ledger) for number in range(8)))
        await crowd.begin(100, at_once=2)
        os.kill(children_of(running.process.pid)[0], signal.SIGKILL)
        await until(lambda: any("starting it again" in line for line in running.said))
        await crowd.more()
        await crowd.end(running, lake, NAMES)
    assert all(landed(lake, name) for name in NAMES), "one worker had nothing to do"


async def test_peers_find_their_journals_after_the_supervisor_is_killed(lake: Path) -> None:
    ledger = Ledger()
    async with gateway(lake, any_ports(("udpc",)), *WORKERS) as first:
        crowd = Crowd(*(Sender(first.urls[0], f"s{number}", ledger) for number in range(6)))
        await crowd.begin(100, at_once=2)
        workers = children_of(first.process.pid)
        first.signal(signal.SIGKILL)
        await first.ended()
        await until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in workers))
    async with gateway(lake, first.urls, *WORKERS) as second:
        await crowd.more()
        await crowd.end(second, lake, NAMES)


async def test_another_number_of_workers_is_refused_while_conversations_may_go_on(lake: Path) -> None:
    async with gateway(lake, any_ports(("udpc",)), *WORKERS) as running, net.connect(running.urls[0]) as connection:
        await connection.send(b"hello")
        assert await running.stop() == 0
    said = await asyncio.to_thread(refused, "udpc://127.0.0.1:0", "--lake", str(lake), "--workers", "3")
    assert said.startswith("1 fairway: the journals of gateway belong to 2 workers and conversations in them may still")
    assert (lake / layout.GATEWAYS / "gateway" / "workers").read_text() == "2\n"


def _is_sealed(journal: Path) -> bool:
    with closing(sqlite3.connect(f"file:{journal}?mode=ro", uri=True)) as reader:
        return bool(reader.execute("SELECT count(*) FROM sealed").fetchone()[0])


async def test_another_number_of_workers_is_refused_after_a_kill_and_beside_a_running_gateway(lake: Path) -> None:
    two = ("udpc://127.0.0.1:0", "--lake", str(lake), "--workers", "2")
    async with gateway(lake, any_ports(("pydevts",))) as running:
        said = await asyncio.to_thread(refused, *two)
        assert said.startswith("1 fairway: the journals of gateway belong to 1 workers and one of them is in use")
        async with net.connect(running.urls[0]) as connection:
            await connection.send(b"hello")
            # Not until the segment is there: the journal notes it a moment later.
            await until(lambda: _is_sealed(lake / layout.GATEWAYS / "gateway" / layout.JOURNAL))
        running.signal(signal.SIGKILL)
        await running.ended()
    said = await asyncio.to_thread(refused, *two)
    assert said.startswith("1 fairway: the journals of gateway belong to 1 workers and conversations in them may still")
    assert (lake / layout.GATEWAYS / "gateway" / "workers").read_text() == "1\n"


async def test_a_signal_to_all_processes_during_the_start_ends_it_without_a_word(lake: Path) -> None:
    for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 0)):
        command = ("gateway", "udpc://127.0.0.1:0", "--lake", str(lake), *WORKERS)
        starting = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "fairway", *command, stderr=asyncio.subprocess.PIPE, start_new_session=True
        )
        await until(partial(children_of, starting.pid))
        os.killpg(starting.pid, number)
        _, said = await starting.communicate()
        assert (starting.returncode, said.decode()) == (code, "")


async def test_a_taken_port_is_not_shared_with_others(lake: Path) -> None:
    async with gateway(lake, any_ports(("udpc",)), *WORKERS) as running:
        said = await asyncio.to_thread(refused, running.urls[0], "--lake", str(lake), "--name", "b", *WORKERS)
        assert said.startswith(f"1 fairway: cannot listen on {own_host()}:")


def test_nobody_gets_a_shared_port_between_the_look_whether_it_is_free_and_its_sockets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The port was bound alone, let go, and bound again by sockets that share it with whoever came in between."""
    let_go: list[socket.socket] = []

    class Watched(socket.socket):
        def close(self) -> None:
            let_go.append(self)
            super().close()

    def open_watched(*given: Any) -> socket.socket:
        return Watched(fileno=open_bound(*given).detach())

    monkeypatch.setattr("fairway.net.sockets.open_bound", open_watched)
    (port,) = asyncio.run(bind_shared([f"udpc://{own_host()}:0"], 2))
    assert not let_go
    assert len(port.descriptors) == 2
    port.close()


async def _choices(peers: list[socket.socket]) -> list[int]:
    """Return for each peer the number of the socket, among three, that gets what it sends."""
    (port,) = await bind_shared(["udpc://127.0.0.1:0"], 3)
    group = [socket.socket(fileno=os.dup(descriptor)) for descriptor in port.descriptors]
    port.close()
    chosen = []
    for peer in peers:
        peer.sendto(b"x", group[0].getsockname())
        for number, sock in enumerate(group):
            sock.setblocking(False)
            with suppress(BlockingIOError):
                sock.recv(1)
                chosen.append(number)
    for sock in group:
        sock.close()
    return chosen


def test_a_peer_meets_the_same_worker_again_whatever_port_was_bound_before() -> None:
    peers = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(24)]
    for peer in peers:
        peer.bind(("127.0.0.1", 0))
    first, second = asyncio.run(_choices(peers)), asyncio.run(_choices(peers))
    for peer in peers:
        peer.close()
    assert first == second
    assert set(first) == {0, 1, 2}
