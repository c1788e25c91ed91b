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
from collections.abc import Callable, Coroutine
from typing import Any

from benchmarks.links.loads import DRIVES
from benchmarks.transport.clocks import peak_bytes
from benchmarks.transport.loads import Load, measure
from benchmarks.transport.pattern import Reception
from benchmarks.transport.peers import Peer

OPEN_S = 15.0
DRAIN_S = 0.1
"""A receiver that has taken nothing for so long has taken all."""


def main(argument: str) -> None:
    run(argument, _receive if json.loads(argument)["role"] == "receiver" else _send)


def run(argument: str, side: Callable[[dict[str, Any]], Coroutine[Any, Any, dict[str, Any]]]) -> None:
    """Print the result of a job as a JSON object, with `error` when it fails."""
    job: dict[str, Any] = json.loads(argument)
    signal.alarm(int(job["limit_s"]) + 1)
    if "core" in job:
        _stay_on(int(job["core"]))
    try:
        result = asyncio.run(side(job))
    except BaseException as error:
        result = {"error": f"{type(error).__name__}: {error}"}
    _say(result)
    # Threads that wait in a library for ever would keep the interpreter from ending.
    os._exit(1 if "error" in result else 0)


def _stay_on(core: int) -> None:
    """Keep this process on one core, so that the two sides do not share one."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[core % len(cores)]})


def _say(words: dict[str, Any]) -> None:
    print(json.dumps(words), flush=True)


def _peer(job: dict[str, Any]) -> Peer:
    return Peer(job["peer"], job["peer"], job["module"], job["settings"])


async def _receive(job: dict[str, Any]) -> dict[str, Any]:
    receptions: list[Reception] = []

    def announce(address: tuple[str, int], reception: Reception) -> None:
        receptions.append(reception)
        _say({"host": address[0], "port": address[1]})

    serving = asyncio.create_task(_peer(job).serve(job["host"], Load(**job["load"]), announce))
    told_to_stop = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin, told_to_stop.set)
    stopping = asyncio.create_task(told_to_stop.wait())
    await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
    if serving.done():
        serving.result()
        return {"error": "the receiver ended by itself"}
    await _drained(receptions[0])
    _say({"received": receptions[0].received, "peak_bytes": peak_bytes()})
    os._exit(0)  # before libraries that wait for ever are asked to end


async def _drained(receiver: Reception) -> None:
    """Wait until the application has taken all that was acknowledged: a sender may stop in the middle."""
    before = -1
    while receiver.received != before:
        before = receiver.received
        await asyncio.sleep(DRAIN_S)


async def _send(job: dict[str, Any]) -> dict[str, Any]:
    load = Load(**job["load"])
    called: dict[str, Any] = json.loads(sys.stdin.readline())
    async with asyncio.timeout(OPEN_S):
        sender = await _peer(job).open_sender(called["host"], called["port"], load)
    if load.drive:
        result = await DRIVES[load.drive](sender, load, job["seconds"])
    else:
        result = await measure(sender, load, job["seconds"], called["receiver_pid"], job["units"])
    return {**result, "peak_bytes": peak_bytes()}


if __name__ == "__main__":
    main(sys.argv[1])
