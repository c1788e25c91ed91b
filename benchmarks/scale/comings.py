"""A long run in which conversations of all four protocols come and go on one listener, with asyncio's debug mode on.

Memory must be flat once warm, no task may be left, asyncio must have nothing to say, and every acknowledged message
must have arrived.

The protocols remember what has ended for minutes by design, to recognise late duplicates, and some keep idle addresses
until a table is full. Here those times are short and those tables small: a leak shows as growth within minutes, and a
table that is still filling does not look like one. None is so short that a machine which stands still for two seconds
ends a conversation.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import time
from dataclasses import dataclass, field
from random import Random
from statistics import median

from benchmarks.transport.clocks import resident_bytes
from fairway import net

URLS = (
    "udpc://127.0.0.1:0?peers_max=256&unproved_max=256&linger=200ms&response_kept=5s",
    "mrp://127.0.0.1:0?peers_max=256&unproved_max=256&forget=5s&keepalive=500ms",
    "rup://127.0.0.1:0?peers_max=256&unproved_max=256&remember=500ms&forget=1s",
    "pydevts://127.0.0.1:0?peers_max=256&unproved_max=256&repeat_after=50ms&remember=600ms&reuse_after=700ms",
)
CALLERS = 16
BODY_BYTES_MAX = 8_192
MESSAGES_MAX = 64
SAMPLES = 40
WARM_SHARE = 1 / 3
CLOSE_S = 2.0


@dataclass(slots=True)
class Soaked:
    """What came of a long run."""

    conversations: int = 0
    acknowledged: int = 0
    received: int = 0
    abandoned: int = 0
    """Messages whose sender stopped waiting: they may have arrived."""
    resident: list[int] = field(default_factory=list)
    tasks_left: int = 0
    complaints: list[str] = field(default_factory=list)

    @property
    def growth_bytes(self) -> float:
        """What the last third of the run held more than the second, by their medians."""
        warm = self.resident[int(len(self.resident) * WARM_SHARE) :]
        half = len(warm) // 2
        return median(warm[half:]) - median(warm[:half])

    def judge(self, growth_bytes_max: int) -> None:
        """Raise unless memory is flat, nothing is left or complained, and every message arrived once."""
        assert self.growth_bytes <= growth_bytes_max, f"memory grew by {self.growth_bytes} bytes once warm"
        assert self.tasks_left == 0, f"{self.tasks_left} tasks are left"
        assert self.complaints == [], self.complaints
        assert self.acknowledged <= self.received <= self.acknowledged + self.abandoned, "messages are lost or doubled"


class _Complaints(logging.Handler):
    def __init__(self, found: list[str]) -> None:
        super().__init__(logging.WARNING)
        self._found = found

    def emit(self, record: logging.LogRecord) -> None:
        self._found.append(record.getMessage())


def soak(seconds: float, *, seed: int = 1, slow_callback_s: float = 0.5) -> Soaked:
    """Run conversations for so many seconds."""
    soaked = Soaked()
    logger, handler = logging.getLogger("asyncio"), _Complaints(soaked.complaints)
    logger.addHandler(handler)
    try:
        with asyncio.Runner(debug=True) as runner:
            runner.run(_soak(soaked, seconds, Random(seed), slow_callback_s))
        # What was never awaited or never read complains when it is collected.
        gc.collect()
    finally:
        logger.removeHandler(handler)
    return soaked


async def _soak(soaked: Soaked, seconds: float, random: Random, slow_callback_s: float) -> None:
    asyncio.get_running_loop().slow_callback_duration = slow_callback_s
    until = time.monotonic() + seconds
    async with net.listen(*URLS, close_timeout_s=CLOSE_S) as listener:
        taking = asyncio.create_task(_take(listener, soaked))
        try:
            async with asyncio.TaskGroup() as group:
                for number in range(CALLERS):
                    url = listener.urls[number % len(URLS)] + "?" + URLS[number % len(URLS)].partition("?")[2]
                    group.create_task(_come_and_go(url, soaked, Random(random.random()), until))
                group.create_task(_sample(soaked, seconds, until))
        finally:
            # Also after a failed caller: a task that nobody awaits would fail the next run, too.
            taking.cancel()
            await asyncio.wait([taking])
        if not taking.cancelled():
            taking.result()
    soaked.tasks_left = len(asyncio.all_tasks()) - 1


async def _take(listener: net.Listener, soaked: Soaked) -> None:
    while True:
        for message in await listener.receive_many():
            soaked.received += 1
            if isinstance(message, net.Request):
                await message.reply(message.body)


async def _sample(soaked: Soaked, seconds: float, until: float) -> None:
    while time.monotonic() < until:
        await asyncio.sleep(seconds / SAMPLES)
        gc.collect()
        soaked.resident.append(resident_bytes())


async def _come_and_go(url: str, soaked: Soaked, random: Random, until: float) -> None:
    while time.monotonic() < until:
        async with net.connect(url, close_timeout_s=CLOSE_S) as connection:
            soaked.conversations += 1
            bodies = [_body(random, connection.protocol) for _ in range(random.randint(1, MESSAGES_MAX))]
            # Not added in one step: others count while this one waits.
            count = await connection.send_many(bodies)
            soaked.acknowledged += count
            for body in bodies[:4]:
                await connection.send(body)
                soaked.acknowledged += 1
            if connection.protocol == "udpc":
                answer = await connection.request(b"are you there")
                assert answer.body == b"are you there"
                soaked.acknowledged += 1
            if random.random() < 0.2:
                await _abandon(connection, bodies[0], soaked)


async def _abandon(connection: net.Connection, body: bytes, soaked: Soaked) -> None:
    """Stop waiting for a message; the conversation must not mind."""
    soaked.abandoned += 1
    connection.send_nowait(body).cancel()
    await connection.send(body)
    soaked.acknowledged += 1


def _body(random: Random, protocol: str) -> bytes:
    most = BODY_BYTES_MAX if protocol == "rup" else 1_024
    return random.randbytes(random.randint(1, most))
