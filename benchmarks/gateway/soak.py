"""An hour at a constant rate: a gateway, a stream, and a crowd of peers (`make soak-gateway`).

python -m benchmarks.gateway.soak --minutes 60 --rate 5000 --peers 200

Prints a line a minute and a verdict: memory flat, backlog bounded, and everything acknowledged in the table once, by
`fairway reconcile` and by comparing every body. The lake is removed when all is well, and kept otherwise.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import shutil
import signal
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, quantiles

from benchmarks.gateway.crowd import ACKNOWLEDGED, Crowd, Ledger
from benchmarks.gateway.landed import Tally, tally
from benchmarks.transport.clocks import resident_bytes
from fairway.core.errors import FairwayError
from fairway.core.tables import MESSAGES
from fairway.demo.services import GatewayService, Service, ServiceFailed, stream_service
from fairway.lake.landing.reconcile import Account, reconcile
from fairway.store.delta import Delta
from fairway.store.lakes import Lake

ANSWER_S = 10.0
_UNSEALED = re.compile(r"^fairway_gateway_backlog_messages\{[^}]*\} (\S+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Sample:
    gateway_bytes: int
    stream_bytes: int
    """With the JVM and its workers."""
    unsealed: int
    on_the_way: int
    """Acknowledged, as the senders know it, and not in the table."""
    files: int
    """Of the table."""


class Gauges:
    """Reads everything without touching what it reads."""

    def __init__(self, lake: Path, metrics: str, gateway: int, stream: int) -> None:
        self._table = Lake(lake, create=False).delta(MESSAGES.name)
        self._metrics = metrics
        self._gateway = gateway
        self._stream = stream

    def read(self, acknowledged: int) -> Sample:
        """Take one sample; so many messages were acknowledged before."""
        rows = rows_by_file(self._table)
        return Sample(
            gateway_bytes=resident_bytes(self._gateway),
            stream_bytes=sum(map(resident_bytes, members(self._stream))),
            unsealed=self._unsealed(),
            on_the_way=max(0, acknowledged - sum(rows)),
            files=len(rows),
        )

    def _unsealed(self) -> int:
        with urllib.request.urlopen(self._metrics, timeout=ANSWER_S) as answer:
            found = _UNSEALED.search(answer.read().decode())
        return int(float(found[1])) if found else 0


def rows_by_file(table: Delta) -> list[int]:
    return [file.rows for file, _ in table.files(table.open())] if table.exists() else []


def members(group: int) -> Iterator[int]:
    for name in os.listdir("/proc"):
        if name.isdigit():
            with suppress(ProcessLookupError):
                if os.getpgid(int(name)) == group:
                    yield int(name)


PROTOCOLS = ("udpc", "mrp", "rup", "pydevts")
SAMPLE_S = 5.0
LINE_S = 60.0
SETTLE_S = 60.0
LANDED_S = 300.0
LOOK_S = 1.0
GROWTH_SHARE_MAX, GROWTH_BYTES_MAX = 0.1, 16 << 20
"""What the gateway's memory may be more in the last quarter than in the second: a tenth, and a little."""
MEMORY_MINUTES_MIN = 10.0
"""A shorter run says nothing about memory: machines remember duplicates for a minute or more, and caches fill up."""
UNSEALED_S_MAX = 30.0
ON_THE_WAY_S_MAX = 60.0
"""A backlog is bounded when it never holds more than so many seconds of the rate: six and four times what is usual."""
DRIVER_MEMORY = "spark.driver.memory=1g"


@dataclass(frozen=True, slots=True)
class Orders:
    minutes: float
    rate: int
    peers: int


@dataclass(slots=True)
class Outcome:
    orders: Orders
    ledger: Ledger
    samples: list[Sample] = field(default_factory=list)
    account: Account | None = None
    tally: Tally | None = None
    gateway_code: int = 0
    stream_code: int = 0

    def problems(self) -> list[str]:
        """Return what does not hold; nothing if all is well."""
        return [*self._promise(), *self._backlog(), *self._memory()]

    def _promise(self) -> list[str]:
        found = []
        if self.account is None or not self.account.balanced or self.account.on_the_way:
            found.append(f"reconcile does not balance: {self.account}")
        if self.tally is None or self.tally.missing or self.tally.double or self.tally.foreign:
            found.append(f"the table is not what was sent: {self.tally}")
        if self.ledger.unknown or self.ledger.held_back:
            found.append(f"{self.ledger.unknown:,} outcomes unknown, {self.ledger.held_back:,} messages held back")
        if self.gateway_code or self.stream_code:
            found.append(f"the gateway ended with {self.gateway_code}, the stream with {self.stream_code}")
        return found

    def _backlog(self) -> list[str]:
        rate = self.orders.rate
        unsealed = max((one.unsealed for one in self.samples), default=0) / rate
        on_the_way = max((one.on_the_way for one in self.samples), default=0) / rate
        found = []
        if unsealed > UNSEALED_S_MAX:
            found.append(f"{unsealed:.0f} s of messages were unsealed; at most {UNSEALED_S_MAX:.0f} are usual")
        if on_the_way > ON_THE_WAY_S_MAX:
            found.append(
                f"{on_the_way:.0f} s of messages were not in the table; at most {ON_THE_WAY_S_MAX:.0f} are usual"
            )
        return found

    def _memory(self) -> list[str]:
        if self.orders.minutes < MEMORY_MINUTES_MIN:
            return []
        early, late = self.gateway_quarters()
        allowed = early * (1 + GROWTH_SHARE_MAX) + GROWTH_BYTES_MAX
        return [f"the gateway grew from {early / 1e6:.0f} MB to {late / 1e6:.0f} MB"] if late > allowed else []

    def gateway_quarters(self) -> tuple[float, float]:
        """Return the gateway's memory in the second and in the last quarter, on average."""
        quarter = len(self.samples) // 4
        if not quarter:
            return 0.0, 0.0
        sizes = [one.gateway_bytes for one in self.samples]
        return mean(sizes[quarter : 2 * quarter]), mean(sizes[-quarter:])


def run(orders: Orders, lake: Path) -> Outcome:
    """Run everything; services end with it, whatever happens."""
    with (
        GatewayService(lake, PROTOCOLS, ["--metrics", "127.0.0.1:0"]) as gateway,
        stream_service(lake, ["--keep", "0s", "--conf", DRIVER_MEMORY]) as stream,
    ):
        gateway.serve()
        stream.start()
        outcome = asyncio.run(_load(orders, lake, gateway, stream))
        outcome.gateway_code = gateway.stop()
        outcome.account = _landed(lake)
        outcome.stream_code = stream.stop()
        outcome.account = _landed(lake, wait_s=0.0)
        acknowledged = [bytes(numbers) for numbers in outcome.ledger.outcomes]
        outcome.tally = tally(lake, acknowledged, ACKNOWLEDGED)
    return outcome


async def _load(orders: Orders, lake: Path, gateway: GatewayService, stream: Service) -> Outcome:
    crowd = Crowd(list(gateway.urls.values()), orders.peers, orders.rate)
    await crowd.open()
    outcome = Outcome(orders, crowd.ledger)
    metrics = gateway.wait_for("metrics ")[0].split()[1]
    gauges = Gauges(lake, metrics, gateway.pid, stream.pid)
    await _warm_up(crowd, gauges, stream)
    watching = asyncio.create_task(_watch(outcome, gauges))
    try:
        await crowd.send_for(orders.minutes * 60)
    finally:
        watching.cancel()
    await crowd.settle(SETTLE_S)
    return outcome


async def _warm_up(crowd: Crowd, gauges: Gauges, stream: Service) -> None:
    """Send for a second and wait until the table has something: Spark takes its time to start."""
    await crowd.send_for(1.0)
    until_s = time.monotonic() + LANDED_S
    while not (await asyncio.to_thread(gauges.read, 0)).files:
        if time.monotonic() > until_s or not stream.running:
            raise ServiceFailed(f"nothing landed within {LANDED_S:.0f} s; the stream said {stream.lines[-3:]}")
        await asyncio.sleep(LOOK_S)


async def _watch(outcome: Outcome, gauges: Gauges) -> None:
    """Sample until cancelled, and print a line a minute."""
    began_s, lines = time.monotonic(), 0
    while True:
        await asyncio.sleep(SAMPLE_S)
        acknowledged = outcome.ledger.acknowledged
        outcome.samples.append(await asyncio.to_thread(gauges.read, acknowledged))
        if time.monotonic() - began_s >= LINE_S * (lines + 1):
            lines += 1
            print(_line(lines, outcome), flush=True)


def _line(minute: int, outcome: Outcome) -> str:
    ledger, sample = outcome.ledger, outcome.samples[-1]
    latencies_s, ledger.latencies_s = ledger.latencies_s, []
    cuts = quantiles(latencies_s, n=100) if len(latencies_s) > 1 else [0.0] * 99
    return (
        f"minute {minute}: {ledger.acknowledged:,} acknowledged of {ledger.sent:,}, {ledger.unknown:,} unknown, "
        f"{ledger.held_back:,} held back; p50 {cuts[49] * 1e3:.1f} ms, p99 {cuts[98] * 1e3:.0f} ms; "
        f"unsealed {sample.unsealed:,}, not in the table {sample.on_the_way:,}, files {sample.files:,}; "
        f"gateway {sample.gateway_bytes / 1e6:.0f} MB, stream {sample.stream_bytes / 1e6:.0f} MB"
    )


def _landed(lake: Path, wait_s: float = LANDED_S) -> Account:
    """Reconcile; wait until nothing is on the way any more, at most so long."""
    until_s = time.monotonic() + wait_s
    while True:
        (account,) = reconcile(Lake(lake, create=False))
        if not account.on_the_way or time.monotonic() > until_s:
            return account
        time.sleep(LOOK_S)


def report(outcome: Outcome) -> list[str]:
    orders, ledger = outcome.orders, outcome.ledger
    early, late = outcome.gateway_quarters()
    unsealed = max((one.unsealed for one in outcome.samples), default=0)
    on_the_way = max((one.on_the_way for one in outcome.samples), default=0)
    lines = [
        f"{orders.minutes:g} minutes, {orders.rate:,} messages a second from {orders.peers} peers",
        f"senders: {ledger.sent:,} sent, {ledger.acknowledged:,} acknowledged, {ledger.unknown:,} unknown",
        f"reconcile: {outcome.account}",
        f"bodies: {outcome.tally}",
        f"backlog: at most {unsealed:,} not sealed, {on_the_way:,} not in the table",
        f"gateway: {early / 1e6:.0f} MB in the second quarter, {late / 1e6:.0f} MB in the last",
    ]
    if orders.minutes < MEMORY_MINUTES_MIN:
        lines.append(f"memory is not judged in less than {MEMORY_MINUTES_MIN:g} minutes")
    problems = outcome.problems()
    return [*lines, *(f"FAILED {problem}" for problem in problems)] if problems else [*lines, "all is well"]


def main(arguments: list[str]) -> int:
    """Run the soak; return 1 when something does not hold."""
    parser = argparse.ArgumentParser(prog="benchmarks.gateway.soak")
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--rate", type=int, default=5_000)
    parser.add_argument("--peers", type=int, default=200)
    parser.add_argument("--folder", type=Path, default=Path("out"), help="where the lake lies during the run")
    chosen = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    chosen.folder.mkdir(parents=True, exist_ok=True)
    lake = Path(tempfile.mkdtemp(prefix="soak-gateway-", dir=chosen.folder))
    try:
        outcome = run(Orders(chosen.minutes, chosen.rate, chosen.peers), lake / "lake")
    except FairwayError as error:
        print(f"FAILED {error} (the lake is kept: {lake})", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        shutil.rmtree(lake, ignore_errors=True)
        return 130
    print("\n".join(report(outcome)), flush=True)
    if outcome.problems():
        print(f"the lake is kept: {lake}")
        return 1
    shutil.rmtree(lake)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
