"""Group commit: what arrived within a few milliseconds becomes durable together, then its acknowledgements leave.

One transaction is under way at a time, in a thread of its own; the loop goes on receiving, and what arrives meanwhile
is the next transaction. To wait longer for more was measured to cost a sender with a full window two thirds of its rate
and to save no work; only many peers with little each are worth waiting for, because each commit costs a sync.

The snapshots are taken when a transaction begins, as the conversations will be after it. When writing fails nothing
was acknowledged: the same messages are tried again, later, with fresh snapshots; their senders wait and repeat, and
what no longer has a receipt slot in a machine is dropped there.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from fairway.core.events import Peer, Receipt
from fairway.gateway.adapter import Arrived, EndpointAdapter, key_of, wall_us
from fairway.gateway.errors import JournalFailed
from fairway.gateway.figures import Figures
from fairway.gateway.journal import Journal, Transaction, now_us
from fairway.gateway.settings import Settings
from fairway.store import crashpoints

RETRY_FIRST_S = 0.1
RETRY_MAX_S = 1.0
SLOW_COMMIT_S = 1.0
FORGET_EVERY_US = 1_000_000
MANY_PEERS, FEW_MESSAGES = 32, 16
"""After a commit for so many peers, with fewer messages of each, the next one gathers for a while."""

_log = logging.getLogger("fairway.gateway")

Conversation = tuple[EndpointAdapter, Peer]


@dataclass(slots=True, eq=False)
class Gathered:
    """What waits for the next transaction. Its size is bounded by the receipt slots of the machines."""

    since_s: float
    """Nothing of it has waited for longer."""
    arrived: list[Arrived] = field(default_factory=list)
    messages: int = 0
    changed: dict[Conversation, None] = field(default_factory=dict)
    """Conversations whose state is to be written though they brought no message."""
    gone: dict[Conversation, None] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.arrived or self.changed or self.gone)

    def beyond(self, messages_max: int, now_s: float) -> Gathered:
        """Keep as many messages as belong into one transaction, and return the others.

        Senders go on when the first are acknowledged, while the others are written. What arrived together stays
        together.
        """
        others, count = Gathered(now_s), 0
        for index, one in enumerate(self.arrived):
            if count >= messages_max:
                others.since_s = self.since_s
                others.arrived, others.messages = self.arrived[index:], self.messages - count
                self.arrived, self.messages = self.arrived[:index], count
                break
            count += one.receipt.count
        return others

    def put_back(self, earlier: Gathered) -> None:
        """Put what could not be written before what came since."""
        self.arrived = earlier.arrived + self.arrived
        self.messages += earlier.messages
        self.changed = {one: None for one in earlier.changed if one not in self.gone} | self.changed
        self.gone = earlier.gone | self.gone


class Committer:
    """Gathers arrivals and commits them. `sync_spool` makes the files of large messages durable first."""

    def __init__(
        self,
        journal: Journal,
        writer: ThreadPoolExecutor,
        figures: Figures,
        settings: Settings,
        *,
        remember_us: int,
        sync_spool: Callable[[list[str]], None],
    ) -> None:
        self._journal = journal
        self._writer = writer
        self._figures = figures
        self._settings = settings
        self._remember_us = remember_us
        self._sync_spool = sync_spool
        self._loop = asyncio.get_running_loop()
        self._next_offset = journal.next_offset
        self._gathered = Gathered(self._loop.time())
        self._writing = False
        self._timer: asyncio.Handle | None = None
        self._linger_s = 0.0
        """How long the next commit gathers."""
        self._retry_s = RETRY_FIRST_S
        self._forgot_us = now_us()
        self._idle: asyncio.Future[None] | None = None
        self.failed: asyncio.Future[None] = self._loop.create_future()
        """Fails when the journal can no longer be trusted."""

    # What adapters receive.

    def arrived(self, arrived: Arrived) -> None:
        gathered = self._gathered
        gathered.arrived.append(arrived)
        gathered.messages += arrived.receipt.count
        if not self._writing:
            self._want()

    def changed(self, adapter: EndpointAdapter, peer: Peer) -> None:
        """Note a conversation whose state is to be written though it brought no message."""
        self._gathered.changed[adapter, peer] = None
        self._want()

    def ended(self, adapter: EndpointAdapter, peer: Peer) -> None:
        self._gathered.changed.pop((adapter, peer), None)
        self._gathered.gone[adapter, peer] = None
        self._want()

    # When.

    def _want(self) -> None:
        """Begin now, or when it is time."""
        if self._writing:
            return
        if self._timer is None:
            linger_s = self._linger_s and max(0.0, self._gathered.since_s + self._linger_s - self._loop.time())
            self._timer = (
                self._loop.call_later(linger_s, self._begin) if linger_s else self._loop.call_soon(self._begin)
            )
        elif self._gathered.messages >= self._settings.commit_messages and self._figures.stall is None:
            self._begin()

    def _begin(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._writing or not self._gathered:
            return
        if self._figures.backlog_bytes > self._settings.backlog_bytes_max:
            self._stall(f"{self._figures.backlog_bytes:,} bytes wait to be sealed; see that the lake can be written")
            return
        began_s = self._loop.time()
        gathered = self._gathered
        self._gathered = gathered.beyond(self._settings.commit_messages, began_s)
        transaction = self._transaction(gathered)
        self._writing = True
        self._writer.submit(self._work, gathered, transaction, began_s)

    def _transaction(self, gathered: Gathered) -> Transaction:
        """Return what is to be written: the rows, and the state of every conversation that they belong to."""
        transaction = Transaction(gone=[(adapter.url, key_of(peer)) for adapter, peer in gathered.gone])
        committing: dict[Conversation, list[Receipt]] = {one: [] for one in gathered.changed}
        offset = self._next_offset
        for one in gathered.arrived:
            transaction.rows.append(one.row(offset))
            offset += one.receipt.count
            committing.setdefault((one.adapter, one.receipt.peer), []).append(one.receipt)
        at_us = now_us()
        for (adapter, peer), receipts in committing.items():
            state, addition = adapter.pieces(peer, receipts) or (b"", b"")
            if state:
                transaction.states.append((adapter.url, key_of(peer), at_us, state))
            if addition:
                transaction.additions.append((adapter.url, at_us, addition))
        if at_us - self._forgot_us >= FORGET_EVERY_US:
            self._forgot_us = at_us
            transaction.forget_before_us = at_us - self._remember_us
        return transaction

    def _work(self, gathered: Gathered, transaction: Transaction, began_s: float) -> None:
        """Write in the writer's thread, and have the loop go on from there.

        Straight: a future of the loop, chained to one of the thread, cost a tenth of all work at full load.
        """
        error: BaseException | None = None
        try:
            self._write(transaction)
        except BaseException as raised:
            error = raised
        self._loop.call_soon_threadsafe(self._end, error, gathered, transaction, began_s)

    def _write(self, transaction: Transaction) -> None:
        spooled = [row.spool for row in transaction.rows if row.spool is not None]
        if spooled:
            self._sync_spool(spooled)
        self._journal.write(transaction)

    def _end(self, error: BaseException | None, gathered: Gathered, transaction: Transaction, began_s: float) -> None:
        self._writing = False
        if error is not None:
            self._gathered.put_back(gathered)
            self._failed(error)
            return
        crashpoints.reached("after-commit")
        if transaction.rows:
            self._next_offset = transaction.rows[-1].offset + transaction.rows[-1].messages
        for one in gathered.arrived:
            one.adapter.acknowledge(one)
        self._note(gathered, transaction, self._loop.time() - began_s)
        if self._gathered:
            self._want()
        else:
            self._gathered.since_s = self._loop.time()
            if self._idle is not None and not self._idle.done():
                self._idle.set_result(None)

    def _note(self, gathered: Gathered, transaction: Transaction, seconds: float) -> None:
        """Draw conclusions from a commit that succeeded."""
        self._retry_s = RETRY_FIRST_S
        peers = len(transaction.states) + len(transaction.additions)
        crowded = peers >= MANY_PEERS and gathered.messages < FEW_MESSAGES * peers
        self._linger_s = self._settings.commit_after_us / 1e6 if crowded else 0.0
        if seconds > SLOW_COMMIT_S:
            _log.warning("the disk took %.1f s for one commit; senders wait meanwhile", seconds)
        self._figures.committed(transaction.rows, seconds)
        if gathered.arrived:
            self._figures.ack_spread.add(max(0.0, (wall_us() - gathered.arrived[0].received_us) / 1e6))

    def _failed(self, error: BaseException) -> None:
        """Try again later if the disk was full; give up on a disk that cannot be trusted."""
        if is_want_of_room(error):
            self._stall(f"the disk of {self._journal.path} is full; make room")
            return
        failed = JournalFailed(f"the journal {self._journal.path} cannot be written: {error}; check the disk")
        failed.__cause__ = error
        if not self.failed.done():
            self.failed.set_exception(failed)

    def _stall(self, reason: str) -> None:
        self._figures.stalled(reason)
        self._timer = self._loop.call_later(self._retry_s, self._begin)
        self._retry_s = min(2 * self._retry_s, RETRY_MAX_S)

    async def drained(self) -> None:
        """Wait until everything that has arrived is committed."""
        while self._gathered or self._writing:
            self._idle = self._loop.create_future()
            self._begin()
            await self._idle


def is_want_of_room(error: BaseException) -> bool:
    """Return whether an error of writing goes away when there is room again."""
    if isinstance(error, sqlite3.Error):
        return getattr(error, "sqlite_errorname", "") in {"SQLITE_FULL", "SQLITE_IOERR_SHMSIZE", "SQLITE_IOERR_WRITE"}
    return isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT}
