"""An endpoint as a process of its own, so that its memory can be told from that of the crowd that calls it.

`python -m benchmarks.scale.host URL` prints its URL, sends every message back, and prints a report for each line on
its standard input, until that ends.
"""

from __future__ import annotations

import asyncio
import gc
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.footprint import footprint
from benchmarks.transport.clocks import resident_bytes
from fairway import net
from fairway.demo.services import answer, process

ANSWER_S = 60.0


class Host:
    """The process, seen from outside."""

    def __init__(self, child: subprocess.Popen[bytes]) -> None:
        self._child = child
        self.url: str = answer(child, ANSWER_S)["url"]

    @property
    def address(self) -> tuple[str, int]:
        host, _, port = self.url.partition("://")[2].rpartition(":")
        return host, int(port)

    def report(self, *, entries: bool = False) -> dict[str, Any]:
        """Ask for memory and counts; `entries` also for those of all containers of the machine, which takes long."""
        assert self._child.stdin is not None
        self._child.stdin.write(b"entries\n" if entries else b"report\n")
        self._child.stdin.flush()
        found: dict[str, Any] = answer(self._child, ANSWER_S)
        return found


@contextmanager
def hosting(url: str) -> Iterator[Host]:
    with process([sys.executable, "-m", "benchmarks.scale.host", url]) as child:
        yield Host(child)


async def serve(url: str) -> None:
    """Listen, echo and report until standard input ends."""
    async with net.listen(url, close_timeout_s=0.5) as listener:
        gc.collect()
        gc.freeze()
        print(json.dumps({"url": listener.url}), flush=True)
        echoing = asyncio.create_task(_echo(listener))
        try:
            await _report(listener, echoing)
        finally:
            echoing.cancel()


async def _echo(listener: net.Listener) -> None:
    while True:
        for message in await listener.receive_many():
            # The peer may be gone by now, which is not this side's affair.
            if message.peer.closed is None:
                message.peer.send_nowait(message.body).add_done_callback(_look)


def _look(outcome: asyncio.Future[None]) -> None:
    if not outcome.cancelled():
        outcome.exception()


async def _report(listener: net.Listener, echoing: asyncio.Task[None]) -> None:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        if echoing.done():
            echoing.result()
        gc.collect()
        report: dict[str, Any] = {
            "resident_bytes": resident_bytes(),
            "statistics": listener.statistics[0].as_dict(),
        }
        if line.strip() == b"entries":
            report["entries"] = footprint(listener._served[0].endpoint.machine).entries
        print(json.dumps(report), flush=True)


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1]))
