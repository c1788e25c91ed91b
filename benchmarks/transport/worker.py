"""One side of a cell, as a process: `python -m benchmarks.transport.worker JOB`, where JOB is a JSON object.

A receiver prints its address, serves until its standard input ends, and prints what it received. A sender reads on its
standard input whom to call, measures, and prints the result. Whatever happens, a process ends at its time limit.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from typing import Any

from benchmarks.links.loads import DRIVES
from benchmarks.transport.clocks import peak_bytes
from benchmarks.transport.loads import Load, Receiver, measure
from benchmarks.transport.peers import Peer

OPEN_S = 15.0
DRAIN_S = 0.1
"""A receiver that has taken nothing for so long has taken all."""


def main(argument: str) -> None:
    """Runs one side; prints a JSON object with `error` when it fails."""
    job: dict[str, Any] = json.loads(argument)
    signal.alarm(int(job["limit_s"]) + 1)
    _stay_on(int(job["core"]))
    side = _receive if job["role"] == "receiver" else _send
    try:
        result = asyncio.run(side(job))
    except BaseException as error:
        result = {"error": f"{type(error).__name__}: {error}"}
    _say(result)
    # Threads that wait in a library for ever would keep the interpreter from ending.
    os._exit(1 if "error" in result else 0)


def _stay_on(core: int) -> None:
    """Keeps this process on one core, so that the two sides do not share one."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[core % len(cores)]})


def _say(words: dict[str, Any]) -> None:
    print(json.dumps(words), flush=True)


def _peer(job: dict[str, Any]) -> Peer:
    return Peer(job["peer"], job["peer"], job["module"], job["settings"])


async def _receive(job: dict[str, Any]) -> dict[str, Any]:
    receiver = _peer(job).make_receiver()

    def announce(host: str, port: int) -> None:
        _say({"host": host, "port": port})

    serving = asyncio.create_task(receiver.serve(job["host"], Load(**job["load"]), announce))
    told_to_stop = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin, told_to_stop.set)
    stopping = asyncio.create_task(told_to_stop.wait())
    await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
    await _drained(receiver)
    result: dict[str, Any] = {"received": receiver.received, "peak_bytes": peak_bytes()}
    if serving.done():
        serving.result()
        result = {"error": "the receiver ended by itself"}
    _say(result)
    os._exit(1 if "error" in result else 0)


async def _drained(receiver: Receiver) -> None:
    """Wait until the application has taken all that was acknowledged: a sender may stop in the middle."""
    before = -1
    while receiver.received != before:
        before = receiver.received
        await asyncio.sleep(DRAIN_S)


async def _send(job: dict[str, Any]) -> dict[str, Any]:
    sender: Any = _peer(job).make_sender()
    load = Load(**job["load"])
    called: dict[str, Any] = json.loads(sys.stdin.readline())
    async with asyncio.timeout(OPEN_S):
        await sender.open(called["host"], called["port"], load)
    if load.drive:
        result = await DRIVES[load.drive](sender, load, job["seconds"])
    else:
        result = await measure(sender, load, job["seconds"], called["receiver_pid"], job["units"])
    return {**result, "peak_bytes": peak_bytes()}


if __name__ == "__main__":
    main(sys.argv[1])
