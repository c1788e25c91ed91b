"""Readers that read the table while everything is killed, each about once a second, and reconcile beside them."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from time import monotonic

from fairway.core.layout import TABLES, progress
from fairway.core.tables import MESSAGES
from fairway.store.delta import Delta
from fairway.store.lakes import Lake
from fairway.store.locations import location_of
from tests.torture.readers import Reader, Seen

LOOK_S = 1.0
RECONCILE_S = 4.0
REST_PER_LOOK = 2.0
"""A look is followed by a rest of so many times its length: a large table must not become the load."""
END_S = 60.0
"""How long the end waits for looks that are under way."""
RECONCILE = "reconcile"


class Batches:
    """Where the batches of a gateway end, by the log: whoever sees whole batches sees one of these ends."""

    def __init__(self, table: Delta, gateway: str) -> None:
        self._table = table
        self._application = progress(gateway)
        self._lock = threading.Lock()
        self._ends, self._version = {0}, 0

    def end_at(self, end: int) -> bool:
        """Whether a batch ends there; to be asked after the look, which may have found what was committed just now."""
        with self._lock:
            newest = self._table.open().version() if end not in self._ends else -1
            for version in range(self._version, newest + 1):
                moved = [action["txn"] for action in self._table.entry(version) if "txn" in action]
                self._ends |= {one["version"] for one in moved if one["appId"] == self._application}
                self._version = version + 1
            return end in self._ends


class Watch:
    """Looks again and again, in a thread for each reader; reports everything that a reader must never see."""

    def __init__(
        self,
        lake: str,
        gateway: str,
        failure: Callable[[str], None],
        *,
        journals: Path | None = None,
        was_full_since: Callable[[float], bool] = lambda _: False,
    ) -> None:
        self._lake = lake
        self._failure = failure
        self._journals = journals
        self._was_full_since = was_full_since
        self._table = Delta(location_of(lake) / TABLES / MESSAGES.name)
        self._batches = Batches(self._table, gateway)
        self._newest: Counter[str] = Counter()
        self._stopping = threading.Event()
        self.looks: Counter[str] = Counter()
        """By reader; `reconcile` is one of them."""

    @contextmanager
    def watching(self, readers: Mapping[str, Reader]) -> Iterator[None]:
        """Look for the time of the block, and end after the looks that are under way."""
        threads = [
            threading.Thread(target=self._again, args=(name, LOOK_S, self.look, reader), daemon=True)
            for name, reader in readers.items()
        ]
        threads.append(
            threading.Thread(target=self._again, args=(RECONCILE, RECONCILE_S, self.reconcile, None), daemon=True)
        )
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._stopping.set()
            until_s = monotonic() + END_S
            for thread in threads:
                thread.join(max(0.0, until_s - monotonic()))

    def _again(self, name: str, rest_s: float, look: Callable[..., None], reader: Reader | None) -> None:
        waits_s = rest_s
        while not self._stopping.wait(waits_s):
            began_s = monotonic()
            look(name, reader)
            waits_s = max(rest_s, REST_PER_LOOK * (monotonic() - began_s))

    def look(self, name: str, reader: Reader) -> None:
        """Look once with a reader."""
        try:
            if self._table.exists():
                self._judge(name, reader(self._table.location.uri))
        except Exception as error:
            self._failure(f"{name} got {type(error).__name__}: {error}")

    def _judge(self, name: str, seen: Seen) -> None:
        self.looks[name] += 1
        if not seen.whole or not self._batches.end_at(seen.end):
            self._failure(f"{name} saw no whole batches, or rows twice: {seen}")
        if seen.end < self._newest[name]:
            self._failure(f"{name} saw {self._newest[name]} messages, and then {seen.end}")
        self._newest[name] = seen.end

    def reconcile(self, name: str, _: object) -> None:
        """Have the lake counted once."""
        from fairway.lake.landing.reconcile import reconcile

        began_s = monotonic()
        try:
            accounts = reconcile(Lake(self._lake, create=False), self._journals)
        except Exception as error:
            # Without room SQLite cannot make the memory that readers share.
            if not self._was_full_since(began_s):
                self._failure(f"reconcile got {type(error).__name__}: {error}")
            return
        self.looks[name] += 1
        for account in accounts:
            if not account.balanced:
                self._failure(f"reconcile: {account}")
