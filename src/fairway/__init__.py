"""Fairway carries messages over UDP, reliably, from the edge to the lake.

    async with fairway.connect("udpc://192.0.2.1:9000") as connection:
        await connection.send(b"hello")

`connect`, `listen` and `serve` open; `fairway.net.blocking` has the same for programs without asyncio. Importing this
loads no more than a version: what belongs to it comes from `fairway.net` when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairway.pure import prefer_sources as _prefer_sources

if TYPE_CHECKING:
    from fairway.core.errors import (
        BadAddress,
        BadMessage,
        BadOption,
        CallerError,
        DamagedSnapshot,
        FairwayError,
        NotSupported,
    )
    from fairway.net import (
        AddressUnavailable,
        Batch,
        Connection,
        ConnectRefused,
        ConnectUnknown,
        ConversationClosed,
        DeliveryRefused,
        DeliveryUnknown,
        EndpointStatistics,
        Listener,
        Message,
        Opening,
        OutcomeRefused,
        OutcomeUnknown,
        Part,
        Request,
        Run,
        Server,
        Tally,
        connect,
        listen,
        serve,
    )

__version__ = "0.1.0"

_prefer_sources()

_ERRORS = ("BadAddress", "BadMessage", "BadOption", "CallerError", "DamagedSnapshot", "FairwayError", "NotSupported")

__all__ = [
    "AddressUnavailable",
    "BadAddress",
    "BadMessage",
    "BadOption",
    "Batch",
    "CallerError",
    "ConnectRefused",
    "ConnectUnknown",
    "Connection",
    "ConversationClosed",
    "DamagedSnapshot",
    "DeliveryRefused",
    "DeliveryUnknown",
    "EndpointStatistics",
    "FairwayError",
    "Listener",
    "Message",
    "NotSupported",
    "Opening",
    "OutcomeRefused",
    "OutcomeUnknown",
    "Part",
    "Request",
    "Run",
    "Server",
    "Tally",
    "__version__",
    "connect",
    "listen",
    "serve",
]


def __getattr__(name: str) -> object:
    """Load what an application uses when it first asks for it."""
    if name not in __all__:
        raise AttributeError(f"module 'fairway' has no attribute {name!r}")
    from importlib import import_module

    found: object = getattr(import_module("fairway.core.errors" if name in _ERRORS else "fairway.net"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    """Name everything, loaded or not."""
    return sorted({*globals(), *__all__})
