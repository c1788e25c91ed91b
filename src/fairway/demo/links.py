"""Bad links: a relay in front of each URL, which loses, doubles and reorders datagrams."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

from fairway.demo.relay import Faults, relaying

LOSS, COPIES, REORDERED = 30_000, 20_000, 50_000
"""Out of a million datagrams, each way."""


@contextmanager
def bad_links(urls: Mapping[str, str], seed: int) -> Iterator[tuple[dict[str, str], dict[str, int]]]:
    """Puts a relay in front of each URL; gives the URLs of the relays, and counts that are filled at the end."""
    faults = Faults(loss_per_million=LOSS, copies_per_million=COPIES, reordered_per_million=REORDERED, seed=seed)
    counts = {"lost": 0, "copied": 0, "reordered": 0}
    with ExitStack() as relays:
        stops = []
        through = {}
        for protocol, url in urls.items():
            scheme, _, place = url.partition("://")
            host, port = place.rsplit(":", 1)
            (relay_host, relay_port), stop = relays.enter_context(relaying((host, int(port)), faults))
            through[protocol] = f"{scheme}://{relay_host}:{relay_port}"
            stops.append(stop)
        yield through, counts
        for stop in stops:
            for way in stop().values():
                for name in counts:
                    counts[name] += way[name]
