"""Fleets in a process of their own, so that nothing that is killed or stopped here touches what they remember.

python -m tests.torture.senders JOB     JOB being JSON; sends until standard input ends, then writes the ledger

Patient devices wait out every restart. Hasty ones give up after two seconds, so that the ledger holds messages whose
outcome nobody knows. Bulky ones send what the gateway spools.
"""

from __future__ import annotations

import asyncio
import json
import pickle
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fairway.core.errors import FairwayError
from fairway.demo.fleet import Fleet, Ledger, Orders
from fairway.demo.keys import Keys
from fairway.demo.services import process

PATIENT = {
    "udpc": "silence=60s&important_timeout=60s&request_timeout=20s",
    "mrp": "stall=60s",
    "rup": "silence=30s",
    "pydevts": "repeat_after=1s&packet_repeats_max=30",
}
HASTY = {
    "udpc": "silence=2s&important_timeout=2s",
    "mrp": "stall=2s",
    "rup": "silence=2s",
    "pydevts": "repeat_after=500ms&packet_repeats_max=3",
}
BULKY_BYTES = 1_200_000
"""Above what a gateway spools."""
REQUEST_EVERY = 5
OUTCOMES_WITHIN_S = 600.0
"""Far longer than any device waits, for a machine with other work."""


class SendersFailed(FairwayError):
    """The senders ended before they were told to; the message holds what they said."""


def crews(urls: Mapping[str, str], name: str, *, interval_s: float, keys: Keys | None = None) -> list[Orders]:
    """Return the orders of patient, hasty and bulky devices."""
    common: dict[str, Any] = {"messages": 0, "keys": str(keys.folder) if keys else ""}
    steady = {"interval_s": interval_s, "request_every": REQUEST_EVERY, **common}
    patient = Orders(urls=_with(urls, PATIENT), devices=2, name=f"{name}-patient", **steady)
    hasty = Orders(urls=_with(urls, HASTY), devices=1, name=f"{name}-hasty", **steady)
    bulk = {"rup": f"{urls['rup']}?{PATIENT['rup']}"}
    bulky = Orders(
        urls=bulk, devices=1, interval_s=1.0, in_flight=2, sizes={"rup": BULKY_BYTES}, name=f"{name}-bulky", **common
    )
    return [patient, hasty, bulky]


def _with(urls: Mapping[str, str], options: Mapping[str, str]) -> dict[str, str]:
    return {protocol: f"{url}?{options[protocol]}" for protocol, url in urls.items()}


class Senders:
    """The running process."""

    def __init__(self, child: subprocess.Popen[bytes], ledger: Path) -> None:
        self._child = child
        self._ledger = ledger

    @property
    def running(self) -> bool:
        return self._child.poll() is None

    def finish(self) -> Ledger:
        """Have them send nothing more and wait for every outcome; return the ledger."""
        try:
            _, said = self._child.communicate(timeout=OUTCOMES_WITHIN_S)
        except subprocess.TimeoutExpired:
            raise SendersFailed(f"the senders did not have every outcome after {OUTCOMES_WITHIN_S:g} s") from None
        if self._child.returncode:
            raise SendersFailed(f"the senders ended with {self._child.returncode}: {said.decode()[-2_000:]}")
        ledger: Ledger = pickle.loads(self._ledger.read_bytes())
        return ledger


@contextmanager
def sending(orders: list[Orders], ledger: Path) -> Iterator[Senders]:
    """Run fleets as a process until the block ends."""
    job = json.dumps({"orders": [asdict(one) for one in orders], "ledger": str(ledger)})
    with process([sys.executable, "-m", "tests.torture.senders", job]) as child:
        yield Senders(child, ledger)


async def _send(fleets: list[Fleet]) -> None:
    loop = asyncio.get_running_loop()

    def told() -> None:
        loop.remove_reader(sys.stdin)
        for fleet in fleets:
            fleet.stopping = True

    loop.add_reader(sys.stdin, told)
    async with asyncio.TaskGroup() as group:
        for fleet in fleets:
            group.create_task(fleet.send())


def main(argument: str) -> None:
    """Send until standard input ends, and write the ledger."""
    job = json.loads(argument)
    fleets = [Fleet(Orders(**orders)) for orders in job["orders"]]
    together = Ledger()
    try:
        asyncio.run(_send(fleets))
    finally:
        for fleet in fleets:
            if BULKY_BYTES in fleet.orders.sizes.values():
                # Where the gateway dies every second a large message has to wait for a longer one.
                fleet.ledger.latencies_s.clear()
            together.add(fleet.ledger)
        Path(job["ledger"]).write_bytes(pickle.dumps(together))


if __name__ == "__main__":
    main(sys.argv[1])
