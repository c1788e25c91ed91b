"""The sending side of one load, as a process: `python -m benchmarks.gateway.worker JOB`, where JOB is a JSON object."""

from __future__ import annotations

import asyncio
import sys
from statistics import quantiles
from typing import Any

from benchmarks.gateway.clients import make_client
from benchmarks.gateway.systems import LOADS
from benchmarks.transport.clocks import peak_bytes
from benchmarks.transport.loads import measure
from benchmarks.transport.worker import run

OPEN_S = 30.0


async def _send(job: dict[str, Any]) -> dict[str, Any]:
    load = LOADS[job["load"]]
    client = make_client(job["system"], load, job["first"])
    async with asyncio.timeout(OPEN_S):
        await client.open(job["host"], job["port"], load)
    result = await measure(client, load, job["seconds"], job["server_pid"])
    await client.close()
    result |= {"acknowledged": client.next - job["first"], "sender_peak_mb": peak_bytes() / 1e6}
    if len(client.latencies_s) > 1:
        cuts = quantiles(client.latencies_s, n=100)
        result |= {"p50_ms": cuts[49] * 1e3, "p99_ms": cuts[98] * 1e3}
    return result


if __name__ == "__main__":
    run(sys.argv[1], _send)
