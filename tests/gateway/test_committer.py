"""What is committed together: at most so much, in the order in which it came, and again after a failure."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import cast

import pytest

from fairway.core.events import Peer, Receipt
from fairway.gateway import committer as module
from fairway.gateway.adapter import Arrived, EndpointAdapter, wall_us
from fairway.gateway.committer import Committer
from fairway.gateway.figures import Figures
from fairway.gateway.home import Home
from fairway.gateway.journal import Journal, Transaction
from fairway.gateway.settings import Settings

PEER = Peer(("127.0.0.1", 9), 5)


class Receiving:
    """Stands for the adapter of one endpoint; its state is what has been acknowledged or is being committed."""

    url = "udpc://127.0.0.1:9000"
    protocol = "udpc"
    port = 9_000

    def __init__(self) -> None:
        self.acknowledged: list[int] = []

    def name_of(self, peer: Peer) -> str:
        return f"{peer.address}"

    def pieces(self, peer: Peer, committing: Sequence[Receipt]) -> tuple[bytes, bytes]:
        known = self.acknowledged + [receipt.first for receipt in committing if isinstance(receipt.first, int)]
        return repr(known).encode(), b""

    def acknowledge(self, arrived: Arrived) -> None:
        assert isinstance(arrived.receipt.first, int)
        self.acknowledged.append(arrived.receipt.first)

    def arrived(self, first: int, count: int) -> Arrived:
        bodies = [bytes(4)] * count
        return Arrived(cast(EndpointAdapter, self), Receipt(PEER, first, count), "message", True, wall_us(), bodies)


class Watched(Journal):
    """Keeps what was written together, and fails where it is told to."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "edge")
        self.written: list[Transaction] = []
        self.failures = 0

    def write(self, transaction: Transaction) -> None:
        if self.failures:
            self.failures -= 1
            error = sqlite3.OperationalError("database or disk is full")
            error.sqlite_errorname = "SQLITE_FULL"
            raise error
        super().write(transaction)
        self.written.append(transaction)


def committed(home: Home, counts: Sequence[int], failures: int = 0) -> tuple[Watched, Receiving]:
    """Queue so many messages at a time, all at once, and wait until they are committed."""
    journal, receiving = Watched(home.journal), Receiving()
    journal.failures = failures

    async def run() -> None:
        settings = Settings(urls=("udpc://127.0.0.1:0",), lake=str(home.journal.parent), commit_messages=10)
        with ThreadPoolExecutor(1) as writer:
            committer = Committer(
                journal, writer, Figures(), settings, remember_us=1_000_000, sync_spool=lambda names: None
            )
            first = 1
            for count in counts:
                committer.arrived(receiving.arrived(first, count))
                first += count
            await committer.drained()

    asyncio.run(run())
    return journal, receiving


def test_a_transaction_holds_no_more_than_it_may_and_what_came_together_stays_together(home: Home) -> None:
    journal, receiving = committed(home, [4, 4, 4, 25, 1, 1])
    sizes = [[row.messages for row in transaction.rows] for transaction in journal.written]
    assert sizes == [[4, 4, 4], [25], [1, 1]]
    offsets = [row.offset for transaction in journal.written for row in transaction.rows]
    assert offsets == [0, 4, 8, 12, 37, 38]
    assert receiving.acknowledged == [1, 5, 9, 13, 38, 39]
    states = [transaction.states[0][3] for transaction in journal.written]
    assert states == [b"[1, 5, 9]", b"[1, 5, 9, 13]", b"[1, 5, 9, 13, 38, 39]"], "the rest is not known yet"
    journal.close()


def test_what_could_not_be_written_comes_before_what_waited_behind_it(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RETRY_FIRST_S", 0.01)
    journal, receiving = committed(home, [10, 10, 3], failures=2)
    assert [row.offset for transaction in journal.written for row in transaction.rows] == [0, 10, 20]
    assert receiving.acknowledged == [1, 11, 21]
    journal.close()
