"""The network's own account of amplification, kept apart from the machines that it judges.

Bytes that leave a node for an address count against three times the bytes that came from it, unless the node's own
application named the address. For udpc and mrp an address counts as proved here once something came from it after
something had reached it: that is later than the protocols' own proof at the earliest, so this account never accuses
wrongly. For rup and pydevts nothing proves.
"""

from __future__ import annotations

from fairway.core.events import Address

FACTOR = 3


class Account:
    """What one node and one address exchanged."""

    __slots__ = ("exempt", "heard", "received_bytes", "sent_bytes")

    def __init__(self, exempt: bool) -> None:
        self.received_bytes = 0
        self.sent_bytes = 0
        self.heard = False
        """Something from the node has reached this address."""
        self.exempt = exempt

    def sent(self, count: int) -> bool:
        """Counts bytes towards the address; returns whether the limit still holds."""
        self.sent_bytes += count
        return self.exempt or self.sent_bytes <= FACTOR * self.received_bytes


class AmplificationLedger:
    """The accounts of one node, by address; they live longer than its processes."""

    __slots__ = ("_accounts", "_provable", "_watched")

    def __init__(self, provable: bool, watched: bool = True) -> None:
        self._accounts: dict[Address, Account] = {}
        self._provable = provable
        self._watched = watched
        """False for a hostile peer: it may send what it likes."""

    def account(self, address: Address) -> Account:
        """Return the account of an address; it stays the same object."""
        account = self._accounts.get(address)
        if account is None:
            account = self._accounts[address] = Account(not self._watched)
        return account

    def named(self, address: Address) -> None:
        """Notes that the node's own application named the address as a destination."""
        self.account(address).exempt = True

    def reached(self, address: Address) -> None:
        """Notes that something from the node arrived at the address."""
        self.account(address).heard = True

    def received(self, address: Address, count: int) -> None:
        account = self.account(address)
        account.received_bytes += count
        if account.heard and self._provable:
            account.exempt = True
