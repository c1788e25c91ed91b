"""From an acknowledgement to a row: a gateway and a stream with their defaults, and messages one at a time.

Each message is sent at another moment of the second, so that sealing and batches are met in all their phases; then
the table is read, as any reader would, until it has as many rows as messages were sent.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from time import monotonic

import fairway
from benchmarks.gateway.soak import rows_by_file
from fairway.core.tables import MESSAGES
from fairway.demo.services import GatewayService, ServiceFailed, stream_service
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
    """Measure so many messages; raise `ServiceFailed` if one does not come."""
    with GatewayService(lake, [PROTOCOL]) as gateway, stream_service(lake) as stream:
        gateway.serve()
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
            await connection.send(b"visible %d" % number)
            began_s = monotonic()
            while sum(await asyncio.to_thread(rows_by_file, table)) <= number:
                if monotonic() > began_s + (EACH_S if number else FIRST_S):
                    raise ServiceFailed(f"message {number} was acknowledged and is not in the table")
                await asyncio.sleep(LOOK_S)
            taken.append(monotonic() - began_s)
            await asyncio.sleep(PAUSE_S)
    return taken[1:]
