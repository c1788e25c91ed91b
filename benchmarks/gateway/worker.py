"""The sending side of one load, as a process: `python -m benchmarks.gateway.worker JOB`, where JOB is a JSON object.

Measures and prints the result as a JSON object, with `error` when it fails. Whatever happens, it ends at its limit.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from statistics import quantiles
from typing import Any, cast

from benchmarks.gateway.clients import Client, make_client
from benchmarks.gateway.systems import LOADS
from benchmarks.transport.clocks import peak_bytes
from benchmarks.transport.loads import measure

OPEN_S = 30.0


def main(argument: str) -> None:
    """Runs one load."""
    job: dict[str, Any] = json.loads(argument)
    signal.alarm(int(job["limit_s"]) + 1)
    try:
        result = asyncio.run(_send(job))
    except BaseException as error:
        result = {"error": f"{type(error).__name__}: {error}"}
    print(json.dumps(result), flush=True)
    # A client whose conversation was broken may keep the interpreter from ending.
    os._exit(1 if "error" in result else 0)


async def _send(job: dict[str, Any]) -> dict[str, Any]:
    load = LOADS[job["load"]]
    sender = make_client(job["system"], load, job["first"])
    client = cast(Client, sender)
    async with asyncio.timeout(OPEN_S):
        await sender.open(job["host"], job["port"], load)
    result = await measure(sender, load, job["seconds"], job["server_pid"])
    await sender.close()
    return {
        **result,
        **_latencies_ms(client.latencies_s if load.kind == "awaited" else []),
        "acknowledged": client.bodies.next - job["first"],
        "sender_peak_mb": peak_bytes() / 1e6,
    }


def _latencies_ms(latencies_s: list[float]) -> dict[str, float]:
    if len(latencies_s) < 2:
        return {}
    cuts = quantiles(latencies_s, n=100)
    return {"p50_ms": cuts[49] * 1e3, "p99_ms": cuts[98] * 1e3}


if __name__ == "__main__":
    main(sys.argv[1])
