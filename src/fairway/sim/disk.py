"""A simulated disk: messages and the state that recognises their duplicates are stored together, or not at all.

One transaction is under way at a time, as in a gateway: it takes the snapshots with what it is about to commit, is
durable some time later, and only then are the receipts committed and the acknowledgements released. A crash in
between leaves it done or undone, as the seed has it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from fairway.core.errors import NoSuchPeer
from fairway.core.events import Peer, Receipt
from fairway.core.machine import Machine


@dataclass(slots=True)
class Stored:
    """Messages of one receipt, to be made durable."""

    receipt: Receipt
    bodies: tuple[bytes, ...]
    afterwards: Callable[[], None] | None = None
    """What the application does once they are committed (answer a request)."""


@dataclass(slots=True)
class Transaction:
    process: int
    stored: list[Stored]
    snapshots: dict[Peer, bytes] = field(default_factory=dict)
    clean: dict[Peer, bool] = field(default_factory=dict)


class Disk:
    """What a node finds again after a crash."""

    def __init__(self) -> None:
        self.snapshots: dict[Peer, bytes] = {}
        self.sent_since: dict[Peer, bool] = {}
        """Whether a node has sent data of its own to a peer since the snapshot, or had some under way at it."""
        self.pending: list[Stored] = []
        self.writing: Transaction | None = None

    def sent(self, peer: Peer) -> None:
        """Note that the node sends data of its own."""
        self.sent_since[peer] = True
        if self.writing is not None:
            self.writing.clean[peer] = False

    def begin(self, machine: Machine, process: int, quiet: Callable[[Peer], bool]) -> None:
        """Start a transaction with everything that waits for one; `quiet` tells that no own data is under way."""
        transaction = Transaction(process, self.pending)
        self.pending = []
        receipts: dict[Peer, list[Receipt]] = {}
        for stored in transaction.stored:
            receipts.setdefault(stored.receipt.peer, []).append(stored.receipt)
        for peer, committing in receipts.items():
            try:
                transaction.snapshots[peer] = machine.snapshot(peer, committing)
            except NoSuchPeer:
                continue
            transaction.clean[peer] = quiet(peer)
        self.writing = transaction

    def end(self) -> Transaction:
        """Make the transaction under way durable."""
        transaction = self.writing
        assert transaction is not None
        self.writing = None
        for peer, snapshot in transaction.snapshots.items():
            self.snapshots[peer] = snapshot
            self.sent_since[peer] = not transaction.clean[peer]
        return transaction

    def keep(self, machine: Machine, receipts: dict[Peer, list[Receipt]], quiet: Callable[[Peer], bool]) -> None:
        """Store every conversation as it stands: an application without deferral that writes at every step."""
        self.snapshots = {}
        for peer in machine.peers():
            self.snapshots[peer] = machine.snapshot(peer, receipts.get(peer, ()))
            self.sent_since[peer] = not quiet(peer)

    def crash(self) -> None:
        self.pending = []

    def forget(self, peer: Peer) -> None:
        self.snapshots.pop(peer, None)
        self.sent_since.pop(peer, None)
        if self.writing is not None:
            self.writing.snapshots.pop(peer, None)
