"""Killed at each named point, a gateway that starts again holds its promise, and senders see only delay."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from fairway import net
from fairway.core import layout
from fairway.gateway.journal import open_reader
from fairway.store import crashpoints

from .world import any_ports, gateway, journalled, landed, one_of_each, start, until

SEALS_OFTEN = ("--seal-after", "150ms")


@pytest.mark.parametrize(
    "points",
    [
        pytest.param(crashpoints.GATEWAY_POINTS, id="all-in-turn"),
        *(pytest.param((point,), id=point, marks=pytest.mark.long) for point in crashpoints.GATEWAY_POINTS),
    ],
)
async def test_a_gateway_killed_at_each_point_loses_and_doubles_nothing(points: tuple[str, ...], lake: Path) -> None:
    urls, crowd = any_ports(), None
    for point in points:
        # Each lives longer than the second after which pydevts sends again.
        passes = 60 if point.endswith("commit") else 8
        running = await start(lake, urls, *SEALS_OFTEN, environment={"FAIRWAY_CRASH_AT": f"{point}:{passes}"})
        if crowd is None:
            urls, crowd = running.urls, one_of_each(running)
            for sender in crowd.senders:
                await sender.connect()
            await until(lambda: sessions_stored(lake) == 2)
            crowd.start()
        assert await running.ended() == -signal.SIGKILL, point
    assert crowd is not None
    async with gateway(lake, urls, *SEALS_OFTEN) as last:
        await crowd.more()
        await crowd.end(last, lake)
    assert not journalled(lake)


async def test_large_messages_survive_a_kill_between_commit_and_acknowledgement(lake: Path) -> None:
    """The first is sealed before the kill, the second is committed and not acknowledged, the third comes after it."""
    bodies = [bytes([number]) * (1_300_000 + number) for number in range(3)]
    first = await start(lake, any_ports(("rup",)), *SEALS_OFTEN, environment={"FAIRWAY_CRASH_AT": "after-commit:2"})
    async with net.connect(first.urls[0] + "?silence=60s") as connection:
        await connection.send(bodies[0])
        spool = lake / "gateways" / "gateway" / "spool"
        await until(lambda: any((lake / "landing" / "gateway").iterdir()) and not any(spool.iterdir()))
        second = connection.send_nowait(bodies[1])
        assert await first.ended() == -signal.SIGKILL
        assert not second.done()
        assert len(list(spool.iterdir())) == 1
        async with gateway(lake, first.urls, *SEALS_OFTEN) as running:
            await second
            await connection.send(bodies[2])
            assert await running.stop() == 0
    assert [row["body"] for row in landed(lake)] == bodies
    assert not list(spool.iterdir())


async def test_a_session_without_a_message_survives_a_kill(lake: Path) -> None:
    async with gateway(lake, any_ports(("udpc", "mrp"))) as first:
        connections = [await net.connect(url) for url in first.urls]
        await until(lambda: sessions_stored(lake) == 2)
        first.signal(signal.SIGKILL)
        await first.ended()
    async with gateway(lake, first.urls) as second:
        for connection in connections:
            await connection.send(connection.protocol.encode())
            await connection.close(1.0)
        assert await second.stop() == 0
    assert sorted(row["body"] for row in landed(lake)) == [b"mrp", b"udpc"]


async def test_a_request_committed_and_not_answered_is_answered_after_the_restart(lake: Path) -> None:
    """The session is stored by the first commit, the request by the second."""
    first = await start(lake, any_ports(("udpc",)), environment={"FAIRWAY_CRASH_AT": "after-commit:2"})
    async with net.connect(first.urls[0] + "?silence=60s&request_timeout=60s") as connection:
        await until(lambda: sessions_stored(lake) == 1)
        asked = asyncio.ensure_future(connection.request(b"question"))
        assert await first.ended() == -signal.SIGKILL
        assert journalled(lake) == [b"question"]
        async with gateway(lake, first.urls) as second:
            assert (await asked).body == b""
            assert await second.stop() == 0
    assert [(row["kind"], row["body"]) for row in landed(lake)] == [("request", b"question")]


def sessions_stored(lake: Path) -> int:
    reader = open_reader(lake / layout.GATEWAYS / "gateway" / layout.JOURNAL)
    try:
        return int(reader.execute("SELECT count(*) FROM states").fetchone()[0])
    finally:
        reader.close()
