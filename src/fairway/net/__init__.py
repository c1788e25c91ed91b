"""Endpoints on real sockets: one interface for the four protocols, on asyncio.

    async with fairway.listen("udpc://127.0.0.1:0") as listener:
        async with fairway.connect(listener.url) as connection:
            await connection.send(b"hello")
        message = await listener.receive()

`fairway.net.blocking` has the same for scripts and notebooks without asyncio.
"""

from fairway.net.connection import Connection
from fairway.net.counters import EndpointStatistics, SocketCounters
from fairway.net.listener import Listener, Server
from fairway.net.messages import Batch, Message, Part, Request, Run
from fairway.net.opening import Opening, connect, listen, serve
from fairway.net.outcomes import (
    AddressUnavailable,
    ConnectRefused,
    ConnectUnknown,
    ConversationClosed,
    DeliveryRefused,
    DeliveryUnknown,
    OutcomeRefused,
    OutcomeUnknown,
    Tally,
)

__all__ = [
    "AddressUnavailable",
    "Batch",
    "ConnectRefused",
    "ConnectUnknown",
    "Connection",
    "ConversationClosed",
    "DeliveryRefused",
    "DeliveryUnknown",
    "EndpointStatistics",
    "Listener",
    "Message",
    "Opening",
    "OutcomeRefused",
    "OutcomeUnknown",
    "Part",
    "Request",
    "Run",
    "Server",
    "SocketCounters",
    "Tally",
    "connect",
    "listen",
    "serve",
]
