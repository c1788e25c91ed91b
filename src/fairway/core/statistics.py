"""What a machine counts: one plain dataclass per machine, all integers."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field

# Reasons in `dropped` that every protocol has in common; each protocol adds those of its own rules.
TOO_LARGE = "too_large"
"""A part of a message that the receiver's own options never let in."""
RECEIPTS_FULL = "receipts_full"
"""A message for which there is no receipt slot (`open_receipts_max`, `open_receipt_bytes_max`)."""
REMEMBERED_FULL = "remembered_full"
"""A message that could not be remembered, so that its duplicates would be delivered (`remembered_max`)."""
PEERS_FULL = "peers_full"
"""A call, or a first message, beyond `peers_max`."""
CLOSING = "closing"
"""A new message of a conversation that is closing."""
ENDPOINT_CLOSED = "endpoint_closed"
"""A call, or a first message, to an endpoint that was closed."""


@dataclass
class Statistics:
    """Counts since the machine was made. `dropped` has one entry per reason for which a datagram was refused."""

    datagrams_sent: int = 0
    bytes_sent: int = 0
    datagrams_received: int = 0
    bytes_received: int = 0
    messages_sent: int = 0
    messages_delivered: int = 0
    """Our messages that the peer acknowledged."""
    messages_received: int = 0
    messages_unknown: int = 0
    messages_refused: int = 0
    retransmissions: int = 0
    repairs: int = 0
    """Retransmissions caused by what overtook the packet, not by a timer."""
    duplicates: int = 0
    """Duplicates of data that had already arrived."""
    batches: int = 0
    """Received super-buffers handled as a whole; those with a hole take the exact path and are not counted."""
    conversations_opened: int = 0
    conversations_closed: int = 0
    amplification_withheld: int = 0
    """Datagrams not sent because the address had not proved that it receives."""
    rtt_us: int = 0
    """The latest smoothed round-trip time of any peer; 0 before the first sample."""
    dropped: Counter[str] = field(default_factory=Counter)

    def as_dict(self) -> dict[str, object]:
        """Return the counts as plain values, reasons in alphabetical order."""
        plain = asdict(self)
        plain["dropped"] = dict(sorted(self.dropped.items()))
        return plain
