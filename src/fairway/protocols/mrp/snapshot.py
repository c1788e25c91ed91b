"""What of a connection survives a restart, as a JSON object.

Kept are the ids, the layout and the role; the lowest number not received (deferred: not committed) and those beyond
it, with their bodies where they were acknowledged but not yet delivered; the next number of our own, what of ours
is still unacknowledged, and the packet that keeps the connection alive.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import NamedTuple

from fairway.core import snapshots
from fairway.core.events import Address
from fairway.protocols.mrp.options import LAYOUTS, WINDOW_MAX
from fairway.protocols.mrp.wire import CONID_MAX

_VERSION = b"MRP2"

Numbered = list[tuple[int, bytes]]


class Snapshot(NamedTuple):
    """One connection at rest."""

    address: Address
    layout: str
    client: bool
    local: int
    remote: int
    next: int
    own_next: int
    beyond: Numbered
    outstanding: Numbered
    """Our datagrams that were sent and not acknowledged."""
    last: Numbered
    """Our highest acknowledged datagram, if there is one."""


def pack(snapshot: Snapshot) -> bytes:
    plain = snapshot._asdict()
    for name in ("beyond", "outstanding", "last"):
        plain[name] = [[number, b64encode(data).decode()] for number, data in plain[name]]
    return snapshots.pack(_VERSION, plain)


def unpack(data: bytes) -> Snapshot:
    """Return the snapshot of these bytes; raises `DamagedSnapshot`."""
    with snapshots.reading("mrp"):
        plain = snapshots.unpack(_VERSION, data)
        snapshot = Snapshot(
            address=snapshots.restored_address(plain["address"]),
            layout=plain["layout"],
            client=bool(plain["client"]),
            local=int(plain["local"]),
            remote=int(plain["remote"]),
            next=int(plain["next"]),
            own_next=int(plain["own_next"]),
            beyond=_numbered(plain["beyond"]),
            outstanding=_numbered(plain["outstanding"]),
            last=_numbered(plain["last"]),
        )
        _check(snapshot)
    return snapshot


def _check(snapshot: Snapshot) -> None:
    named = snapshot.layout in LAYOUTS and 0 < snapshot.local <= CONID_MAX and 0 < snapshot.remote <= CONID_MAX
    ahead = all(0 < number - snapshot.next <= WINDOW_MAX for number, _ in snapshot.beyond)
    behind = all(0 < snapshot.own_next - number <= WINDOW_MAX for number, _ in snapshot.outstanding)
    if not (named and ahead and behind):
        raise ValueError("a layout, an id or a number that cannot be")


def _numbered(plain: list[list[object]]) -> Numbered:
    return [(int(str(number)), b64decode(str(data), validate=True)) for number, data in plain]
