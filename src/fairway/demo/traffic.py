"""The first act: devices of four protocols send through links that lose, double and reorder, to a gateway that is
killed once while they send. They see nothing but delay."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from time import monotonic

from fairway.demo.fleet import ACKNOWLEDGED, Fleet, Ledger, Orders, reading
from fairway.demo.keys import Keys
from fairway.demo.links import bad_links
from fairway.demo.services import GatewayService
from fairway.protocols import NAMES

FIRST_WITHIN_S = 60.0
POLL_S = 0.02
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


def carry(folder: Path, *, messages: int, seed: int) -> Carried:
    """Run the first act: `messages` of each device, traced to `captures`, and one kill in the middle."""
    began_s = monotonic()
    keys = Keys(folder / "keys")
    with GatewayService(folder / "lake", NAMES, SEAL, keys=keys) as gateway:
        gateway.serve()
        with bad_links(gateway.urls, seed) as (urls, counts):
            orders = Orders(urls=urls, devices=2, messages=messages, name=f"demo-{seed}", keys=str(keys.folder))
            fleet = Fleet(orders, folder / "captures")
            sending = Thread(target=fleet.run, daemon=True)
            sending.start()
            _until_all_have_begun(fleet, orders, sending)
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


def _until_all_have_begun(fleet: Fleet, orders: Orders, sending: Thread) -> None:
    """Waits until every device has an acknowledgement: only a session that is still being opened may have to be
    opened again after a kill, and the story is about the others."""
    firsts = [
        orders.key(reading(orders.name, protocol, device, 0, orders.sizes.get(protocol, 0)), protocol, device)
        for protocol in orders.urls
        for device in range(orders.devices)
    ]
    until_s = monotonic() + FIRST_WITHIN_S
    while sending.is_alive() and monotonic() < until_s:
        if all(fleet.ledger.outcomes.get(key) == ACKNOWLEDGED for key in firsts):
            return
        sending.join(POLL_S)
