"""Fairway carries messages over UDP, reliably, from the edge to the lake.

    async with fairway.connect("udpc://192.0.2.1:9000") as connection:
        await connection.send(b"hello")

Importing this loads no more than a version; `fairway.connect`, `fairway.listen` and what belongs to them come from
`fairway.net` when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairway.pure import prefer_sources

if TYPE_CHECKING:
    from fairway.core.errors import BadAddress, BadMessage, BadOption, CallerError, FairwayError, NotSupported
    from fairway.net import (
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
        OutcomeRefused,
        OutcomeUnknown,
        Part,
        Request,
        Run,
        Tally,
        connect,
        listen,
        open_connection,
        open_listener,
    )

__version__ = "0.1.0"

prefer_sources()

_ERRORS = ("BadAddress", "BadMessage", "BadOption", "CallerError", "FairwayError", "NotSupported")

__all__ = [
    "BadAddress",
    "BadMessage",
    "BadOption",
    "Batch",
    "CallerError",
    "ConnectRefused",
    "ConnectUnknown",
    "Connection",
    "ConversationClosed",
    "DeliveryRefused",
    "DeliveryUnknown",
    "EndpointStatistics",
    "FairwayError",
    "Listener",
    "Message",
    "NotSupported",
    "OutcomeRefused",
    "OutcomeUnknown",
    "Part",
    "Request",
    "Run",
    "Tally",
    "__version__",
    "connect",
    "listen",
    "open_connection",
    "open_listener",
]


def __getattr__(name: str) -> object:
    """Loads what an application uses when it first asks for it."""
    if name not in __all__:
        raise AttributeError(f"module 'fairway' has no attribute {name!r}")
    from importlib import import_module

    found: object = getattr(import_module("fairway.core.errors" if name in _ERRORS else "fairway.net"), name)
    globals()[name] = found
    return found
