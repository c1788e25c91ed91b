"""Every error that Fairway raises, in one tree.

    FairwayError
    ├── CallerError                 the caller's own mistake: raised at once, nothing was sent
    │   ├── BadOption               an option is unknown or out of its range
    │   ├── BadAddress              a URL or an address cannot be understood
    │   ├── BadMessage              the protocol has no way to carry this message
    │   ├── NotSupported            the protocol has no such operation
    │   ├── NoSuchPeer              the conversation is not, or no longer, there
    │   ├── CannotConnect           the endpoint was closed, has all its peers, or is still closing this conversation
    │   ├── AlreadyOpen             a snapshot of a conversation that is open
    │   └── QueueFull               the send queue, or the pings of a peer, are at their bound
    ├── MalformedDatagram           the peer's mistake: caught inside the machine, counted, dropped
    ├── DamagedSnapshot             stored state that `restore` cannot read
    └── DamagedCapture              a capture file that ends early or contradicts itself

How a conversation ends is not an error but an event (`core/events.py`): acknowledged, refused and unknown are
three results, and the endpoints turn them into what an awaiting caller sees.
"""

from __future__ import annotations


class FairwayError(Exception):
    """The root of all errors raised by Fairway."""


class CallerError(FairwayError):
    """The caller asked for something that cannot be done; nothing was sent."""


class BadOption(CallerError, ValueError):
    """An option is unknown or out of its range."""


class BadAddress(CallerError, ValueError):
    """A URL or an address cannot be understood."""


class BadMessage(CallerError, ValueError):
    """The protocol has no way to carry this message."""


class NotSupported(CallerError):
    """The protocol has no such operation."""


class NoSuchPeer(CallerError):
    """The conversation is not, or no longer, there."""


class CannotConnect(CallerError):
    """This endpoint cannot open the conversation, whatever the peer would say."""


class AlreadyOpen(CallerError):
    """A snapshot cannot be restored, because its conversation is open."""


class QueueFull(CallerError):
    """The send queue is at its bound, and a `Writable` event says when it is not; or too many pings are open."""


class DamagedSnapshot(FairwayError):
    """Stored state cannot be read back."""


class DamagedCapture(FairwayError):
    """A capture ends early, contradicts itself or is of a kind that Fairway does not read."""


class MalformedDatagram(FairwayError):
    """The bytes are no packet of the protocol: `reason` is a stable short name, counted in the statistics."""

    __slots__ = ("expected", "found", "reason")

    def __init__(self, reason: str, *, found: str, expected: str) -> None:
        super().__init__(reason, found, expected)
        self.reason = reason
        self.found = found
        self.expected = expected

    def __str__(self) -> str:
        return f"{self.reason}: found {self.found}, expected {self.expected}"
