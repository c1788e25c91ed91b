"""From an acknowledgement to a row: a gateway and a stream with their defaults, and messages one at a time.

Each message is sent at another moment of the second, so that sealing and batches are met in all their phases; then
the table is read, as any reader would, until the message is in it.
"""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from pathlib import Path
from time import monotonic

import fairway
from fairway.core.tables import MESSAGES
from fairway.demo.services import GatewayService, ServiceFailed, stream_service
from fairway.store.delta import DataFile, Delta
from fairway.store.lakes import Lake

PROTOCOL = "udpc"
LOOK_S = 0.05
PAUSE_S = 0.37
"""Between one message's arrival and the next one's departure: no divisor of any period in gateway or stream."""
FIRST_S = 180.0
"""Spark takes its time to start; the first message waits for it and is not counted."""
GOAL_S = 15.0
EACH_S = 8 * GOAL_S


def seconds_to_the_table(lake: Path, messages: int) -> list[float]:
    """Measures so many messages; raises `ServiceFailed` if one does not come."""
    with ExitStack() as stack:
        gateway = stack.enter_context(GatewayService(lake, [PROTOCOL]))
        gateway.serve()
        stream = stack.enter_context(stream_service(lake))
        stream.start()
        taken = asyncio.run(_measure(gateway.urls[PROTOCOL], lake, messages))
        stream.stop()
        gateway.stop()
    return taken


async def _measure(url: str, lake: Path, messages: int) -> list[float]:
    table = Lake(lake, create=False).delta(MESSAGES.name)
    taken = []
    async with fairway.connect(url) as connection:
        for number in range(messages + 1):
            body = f"visible {number}".encode()
            await connection.send(body)
            began_s = monotonic()
            await _seen(table, body, began_s + (EACH_S if number else FIRST_S))
            taken.append(monotonic() - began_s)
            await asyncio.sleep(PAUSE_S)
    return taken[1:]


async def _seen(table: Delta, body: bytes, until_s: float) -> None:
    """Waits until a row with this body is in the table."""
    looked_at = -1
    while monotonic() < until_s:
        version = table.open().version() if table.exists() else -1
        for file in table.added(looked_at, version):
            if await asyncio.to_thread(_holds, table, file, body):
                return
        looked_at = version
        await asyncio.sleep(LOOK_S)
    raise ServiceFailed(f"{body.decode()!r} was acknowledged and is not in the table")


def _holds(table: Delta, file: DataFile, body: bytes) -> bool:
    import pyarrow as pa

    from fairway.store.parquet import batches

    wanted = pa.schema([("body", pa.binary())])
    return any(body in batch.column(0).to_pylist() for batch in batches(table.place, file.path, wanted))
