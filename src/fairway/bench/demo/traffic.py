"""The first act: devices of four protocols send through links that lose, double and reorder, to a gateway that is
killed once while they send. They see nothing but delay."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from time import monotonic

from fairway.bench.relay import Faults, relaying
from fairway.bench.torture.fleet import Fleet, Ledger, Orders
from fairway.bench.torture.services import GatewayService
from fairway.protocols import NAMES

LOSS, COPIES, REORDERED = 30_000, 20_000, 50_000
"""Out of a million datagrams, each way."""
BEFORE_KILL_S = 2.0
SEAL = ("--seal-after", "1s")
OUTCOMES_WITHIN_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Carried:
    """What the first act came to."""

    ledger: Ledger
    seconds: float
    again_s: float
    """From the kill to serving again."""
    lost: int
    copied: int
    reordered: int


@contextmanager
def bad_links(urls: dict[str, str], seed: int) -> Iterator[tuple[dict[str, str], dict[str, int]]]:
    """Puts a relay in front of each URL; gives the URLs of the relays, and counts that are filled at the end."""
    faults = Faults(loss_per_million=LOSS, copies_per_million=COPIES, reordered_per_million=REORDERED, seed=seed)
    counts = {"lost": 0, "copied": 0, "reordered": 0}
    with ExitStack() as relays:
        stops = []
        through = {}
        for protocol, url in urls.items():
            host, port = url.partition("://")[2].rsplit(":", 1)
            (relay_host, relay_port), stop = relays.enter_context(relaying((host, int(port)), faults))
            through[protocol] = f"{protocol}://{relay_host}:{relay_port}"
            stops.append(stop)
        yield through, counts
        for stop in stops:
            for way in stop().values():
                for name in counts:
                    counts[name] += way[name]


def carry(lake: Path, captures: Path, *, messages: int, seed: int) -> Carried:
    """Runs the first act: `messages` of each device, traced to `captures`, and one kill in the middle."""
    began_s = monotonic()
    with GatewayService(lake, NAMES, SEAL) as gateway:
        gateway.serve()
        with bad_links(gateway.urls, seed) as (urls, counts):
            fleet = Fleet(Orders(urls=urls, devices=2, messages=messages, name=f"demo-{seed}"), captures)
            sending = Thread(target=fleet.run, daemon=True)
            sending.start()
            # The kill comes at a moment of the story, not when something happens to be ready: any moment must do.
            sending.join(BEFORE_KILL_S)
            gateway.kill()
            killed_s = monotonic()
            gateway.serve()
            again_s = monotonic() - killed_s
            sending.join(OUTCOMES_WITHIN_S)
            if sending.is_alive():
                fleet.stopping = True
                sending.join(OUTCOMES_WITHIN_S)
        gateway.stop()
    return Carried(ledger=fleet.ledger, seconds=monotonic() - began_s, again_s=again_s, **counts)
