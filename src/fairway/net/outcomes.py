"""How a call ends for the one who awaits it: it returns, or one of these is raised.

FairwayError
├── OutcomeRefused              the peer or a rule said no                       a ConnectionError
│   ├── DeliveryRefused         to a message
│   └── ConnectRefused          to a conversation                                a ConnectionRefusedError
├── OutcomeUnknown              no answer in time                                a TimeoutError
│   ├── DeliveryUnknown         the message may have arrived
│   └── ConnectUnknown          nobody may be there
├── ConversationClosed          nothing more to receive, and no way to send      a ConnectionError
└── BadAddress
    └── AddressUnavailable      the socket cannot be opened: a busy port         an OSError with its errno
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from fairway.core.errors import BadAddress, FairwayError

T = TypeVar("T")


@dataclass(slots=True)
class Tally:
    """What became of the messages of one `send_many`."""

    acknowledged: int = 0
    refused: int = 0
    unknown: int = 0

    def __str__(self) -> str:
        return f"{self.acknowledged} acknowledged, {self.refused} refused, {self.unknown} unknown"


class OutcomeRefused(FairwayError, ConnectionError):
    """The peer, or a rule, said no."""


class OutcomeUnknown(FairwayError, TimeoutError):
    """No answer came in time; what was sent may have arrived."""


class DeliveryRefused(OutcomeRefused):
    """The message was refused. `tally` counts the others when it was one of a `send_many`."""

    def __init__(self, reason: str, tally: Tally | None = None) -> None:
        super().__init__(reason)
        self.tally = tally


class DeliveryUnknown(OutcomeUnknown):
    """The message was not acknowledged in time. `tally` counts the others when it was one of a `send_many`."""

    def __init__(self, reason: str, tally: Tally | None = None) -> None:
        super().__init__(reason)
        self.tally = tally


class ConnectRefused(OutcomeRefused, ConnectionRefusedError):
    """The peer or a rule said no to the conversation."""


class ConnectUnknown(OutcomeUnknown):
    """The peer did not answer in time, or nobody has its port: the message that says so may be anyone's."""


class ConversationClosed(FairwayError, ConnectionError):
    """The conversation, or the whole endpoint, is closed."""


class AddressUnavailable(BadAddress, OSError):
    """No socket can be opened there: the port is taken, or this machine has no such address or route."""

    def __init__(self, sentence: str, cause: OSError) -> None:
        super().__init__(sentence)
        self.errno = cause.errno


async def within(work: Awaitable[T], timeout_s: float | None, late: Callable[[str], Exception]) -> T:
    """Return what the work returns; raise `late` when that takes longer than so many seconds."""
    if timeout_s is None:
        return await work
    try:
        async with asyncio.timeout(timeout_s):
            return await work
    except OutcomeUnknown:
        raise
    except TimeoutError:
        raise late(f"nothing came within {timeout_s:g} s") from None
