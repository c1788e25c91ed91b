"""Readers that look at the table while everything is killed: delta-rs always, others and reconcile now and then."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from time import monotonic

from fairway.bench.torture.readers import doubles_by_delta, doubles_by_duckdb, doubles_by_polars
from fairway.core.tables import MESSAGES
from fairway.store.delta import Delta
from fairway.store.places import place_of

LOOK_S = 1.0
REST_PER_LOOK = 4.0
"""A look is followed by a rest of so many times its length: a large table must not become the load."""
OTHERS_EVERY = 4
END_S = 60.0


class Watcher(threading.Thread):
    """Looks again and again; notes everything that a reader must never see."""

    def __init__(self, lake: Path, was_full_since: Callable[[float], bool], fault: Callable[[str], None]) -> None:
        super().__init__(daemon=True)
        self._lake = lake
        self._table = lake / "tables" / MESSAGES.name
        self._was_full_since = was_full_since
        self._fault = fault
        self._stopping = threading.Event()
        self.looks = 0
        self.reconciled = 0

    def run(self) -> None:
        rest_s = LOOK_S
        while not self._stopping.wait(rest_s):
            began_s = monotonic()
            self.look()
            rest_s = max(LOOK_S, REST_PER_LOOK * (monotonic() - began_s))

    def look(self) -> None:
        """Looks once, with every reader whose turn it is."""
        try:
            self._look()
        except Exception as error:
            self._fault(f"a reader got {type(error).__name__}: {error}")

    def _look(self) -> None:
        if not Delta(place_of(self._table)).exists():
            return
        self._read(doubles_by_delta, "delta-rs")
        if self.looks % OTHERS_EVERY == 0:
            self._read(doubles_by_duckdb, "DuckDB")
            self._read(doubles_by_polars, "Polars")
            self._reconcile()

    def _read(self, doubles: Callable[[Path], int], name: str) -> None:
        twice = doubles(self._table)
        self.looks += 1
        if twice:
            self._fault(f"{name} saw {twice} rows twice")

    def _reconcile(self) -> None:
        from fairway.lake.landing.reconcile import Unreadable, reconcile
        from fairway.store.lakes import Lake

        began_s = monotonic()
        try:
            accounts = reconcile(Lake(self._lake, create=False))
        except Unreadable as error:
            # Without room SQLite cannot make the memory that readers share.
            if not self._was_full_since(began_s):
                self._fault(f"reconcile: {error}")
            return
        self.reconciled += 1
        for account in accounts:
            if not account.balanced:
                self._fault(f"reconcile: {account}")

    def stop(self) -> None:
        """Ends after the look that is under way."""
        self._stopping.set()
        if self.is_alive():
            self.join(END_S)
