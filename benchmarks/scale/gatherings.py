"""Crowds and floods at one endpoint, with what they cost it."""

from __future__ import annotations

import time
from dataclasses import dataclass

from benchmarks.scale.crowd import CALM, Crowd
from benchmarks.scale.flood import Flood
from benchmarks.scale.host import hosting

ESTABLISHED = 100
POUR = 500
"""Calls between two turns of those who are already there."""
EXCHANGES = 2
BODY = b"a message of sixty-four bytes, so that it is like those of others"[:64]


@dataclass(frozen=True, slots=True)
class Gathered:
    """What a crowd cost the endpoint."""

    protocol: str
    sessions: int
    seconds: float
    bytes_per_session: int
    resident_mb: float


def crowd(protocol: str, sessions: int, *, limit_s: float) -> Gathered:
    """Opens so many sessions, has each send a message and get it back, twice; raises when one does not."""
    started = time.monotonic()
    calm = "".join(f"&{name}={value}" for name, value in CALM[protocol].items())
    url = f"{protocol}://127.0.0.1:0?peers_max={max(65_536, sessions)}{calm}"
    with hosting(url) as host, Crowd(protocol, host.address) as callers:
        before = host.report()["resident_bytes"]
        callers.connect(sessions, limit_s)
        for _ in range(EXCHANGES):
            callers.exchange(BODY, limit_s)
        assert not callers.failed, callers.failed[:3]
        after = host.report_meanwhile(callers.turn)
        assert after["statistics"]["messages_received"] == sessions * EXCHANGES
        assert after["statistics"]["conversations_opened"] >= sessions
    resident = after["resident_bytes"]
    return Gathered(
        protocol, sessions, time.monotonic() - started, (resident - before) // sessions, round(resident / 1e6, 1)
    )


@dataclass(frozen=True, slots=True)
class Flooded:
    """What a flood did to the endpoint."""

    protocol: str
    calls: int
    seconds: float
    entries_grown: int
    """Entries that the flood added to all tables of the machine."""
    grown_mb: float
    seen: int
    """Datagrams of the flood that the endpoint took; the kernel dropped the others."""


def flood(protocol: str, calls: int, *, limit_s: float, options: str = "") -> Flooded:
    """Pours calls from made-up addresses while sessions that are open go on exchanging messages; raises when one does
    not get through, before, during or after."""
    started = time.monotonic()
    with hosting(f"{protocol}://127.0.0.1:0{options}") as host, Crowd(protocol, host.address) as callers:
        callers.connect(ESTABLISHED, limit_s)
        callers.exchange(BODY, limit_s)
        before = host.report_meanwhile(callers.turn, entries=True)
        pouring = Flood(protocol, host.address)
        try:
            for poured in range(0, calls, POUR):
                pouring.pour(min(POUR, calls - poured))
                callers.turn(0.0)
                if poured % (calls // 10 // POUR * POUR or POUR) == 0:
                    callers.exchange(BODY, limit_s)
        finally:
            pouring.close()
        during = host.report_meanwhile(callers.turn, entries=True)
        callers.exchange(BODY, limit_s)
        assert not callers.failed, callers.failed[:3]
    return Flooded(
        protocol,
        calls,
        time.monotonic() - started,
        during["entries"] - before["entries"],
        round((during["resident_bytes"] - before["resident_bytes"]) / 1e6, 1),
        during["statistics"]["datagrams_received"] - before["statistics"]["datagrams_received"],
    )
