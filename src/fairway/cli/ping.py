"""`fairway ping`: round-trip times and loss, by what each protocol has for it.

udpc asks with a heartbeat. mrp repeats its connect, which gets the first reply again. pydevts sends an acknowledgement
of nothing, which gets a close. None of these reaches the application on the other side. rup has no such packet:
whatever a rup peer answers belongs to a message.
"""

from __future__ import annotations

import asyncio
from json import dumps
from pathlib import Path
from statistics import mean, pstdev

from fairway.cli import options
from fairway.cli.bodies import Way
from fairway.cli.exits import ExitCode
from fairway.cli.loop import complain, run
from fairway.cli.options import option
from fairway.cli.status import waiting
from fairway.cli.streams import Printer
from fairway.net import Connection, ConversationClosed, OutcomeUnknown, connect

COUNT = 4
INDISTINCT = ("mrp",)
"""Whose answers do not say which question they answer: there the next question waits for the answer before."""


def ping(
    url: str = options.URL,
    count: int = option(COUNT, min=0, help="How many times to ask; 0 is until Ctrl-C."),
    interval: float = option(1.0, min=0.001, metavar="SECONDS", help="From one question to the next."),
    json: bool = options.json("One JSON object per answer, and one at the end."),
    trace: Path | None = options.TRACE,
) -> int:
    """Show round-trip times and loss.

    Not with rup, which has no packet for it. Leaves with 3 when nothing was answered, or the peer fell silent.

    \b
    Example:
      fairway ping mrp://127.0.0.1:8192 --count 10 --interval 0.2
    """
    way = Way(url)
    return run(lambda _: _Pinging(way, json, count).run(interval, trace), url)


class _Pinging:
    """Asks at intervals and prints each answer as it comes."""

    def __init__(self, way: Way, as_json: bool, count: int) -> None:
        self._way = way
        self._as_json = as_json
        self._count = count
        self._printer = Printer()
        self._sent = 0
        self._times_us: list[int] = []
        self._waiting: set[asyncio.Task[None]] = set()

    async def run(self, interval_s: float, trace: Path | None) -> int:
        with waiting(self._way.url):
            connection = await connect(self._way.url, trace=trace)
        ended: ConversationClosed | None = None
        try:
            await self._ask(connection, interval_s)
            if self._waiting:
                await asyncio.wait(self._waiting)
        except ConversationClosed as error:
            ended = error
        finally:
            for task in self._waiting:
                task.cancel()
            await connection.close(0.0)
            if self._sent:
                await self._printer.write(self._summary().encode() + b"\n")
        if ended is not None:
            return complain(f"{self._way.url}: {ended}", ExitCode.UNKNOWN)
        return ExitCode.DONE if self._times_us else ExitCode.UNKNOWN

    async def _ask(self, connection: Connection, interval_s: float) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time()
        while not self._count or self._sent < self._count:
            question = connection.ping()
            self._sent += 1
            task = loop.create_task(self._hear(self._sent, question))
            self._waiting.add(task)
            task.add_done_callback(self._waiting.discard)
            if self._way.protocol.name in INDISTINCT:
                await task
            due = max(due + interval_s, loop.time())
            if self._sent != self._count:
                await asyncio.sleep(due - loop.time())

    async def _hear(self, number: int, question: asyncio.Future[int]) -> None:
        try:
            time_us = await question
        except OutcomeUnknown as error:
            line = {"number": number, "rtt_us": None, "reason": str(error)}
            text = f"{number}: {error}"
        else:
            self._times_us.append(time_us)
            line = {"number": number, "rtt_us": time_us}
            text = f"{number}: answer from {self._way.url} in {time_us / 1_000:.3f} ms"
        await self._printer.write((dumps(line) if self._as_json else text).encode() + b"\n")

    def _summary(self) -> str:
        times_us, answered = self._times_us, len(self._times_us)
        lost = 1 - answered / self._sent
        row: dict[str, object] = {
            "url": self._way.url,
            "sent": self._sent,
            "answered": answered,
            "loss": round(lost, 6),
        }
        if not times_us:
            return dumps(row) if self._as_json else f"{self._sent} asked, none answered, 100 % lost"
        figures = {
            "min": min(times_us),
            "average": round(mean(times_us)),
            "max": max(times_us),
            "deviation": round(pstdev(times_us)),
        }
        if self._as_json:
            return dumps(row | {f"rtt_us_{name}": value for name, value in figures.items()})
        shown = ", ".join(f"{name} {value / 1_000:.3f}" for name, value in figures.items())
        return f"{self._sent} asked, {answered} answered, {100 * lost:.0f} % lost; round trip in ms: {shown}"
