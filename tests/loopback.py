"""An address of this machine at which no other process takes ports.

Tests run beside each other, and every socket that calls somebody takes a free port at 127.0.0.1, whatever loopback
address it calls. A port there that a test has let go, to find nobody at it or to bind it again, may belong to somebody
else by then. At an address that only one process knows it does not.
"""

from __future__ import annotations

import os
import socket


def own_host() -> str:
    """Return the loopback address of this process, made of its id."""
    process = os.getpid()
    return f"127.{1 + (process >> 16)}.{process >> 8 & 255}.{process & 255}"


def closed_port() -> str:
    """Return host and port, as they stand in a URL, that no socket has."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind((own_host(), 0))
        return f"{own_host()}:{probe.getsockname()[1]}"
