"""What of a connection survives a restart, as a JSON object.

Kept are the ids, the layout and the role; the lowest number not received (deferred: not committed) and those beyond
it, with their bodies where they were acknowledged but not yet delivered; the next number of our own, what of ours
is still unacknowledged, and the packet that keeps the connection alive.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from dataclasses import dataclass

from fairway.core.events import Address
from fairway.core.snapshots import reading, restored_address, seal, unseal
from fairway.protocols.mrp.options import LAYOUTS, WINDOW_MAX
from fairway.protocols.mrp.wire import CONID_MAX

_VERSION = b"MRP2"

Numbered = list[tuple[int, bytes]]


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """One connection at rest."""

    address: Address
    layout: str
    client: bool
    local: int
    remote: int
    next: int
    beyond: Numbered
    own_next: int
    outstanding: Numbered
    """Our datagrams that were sent and not acknowledged."""
    last: Numbered
    """Our highest acknowledged datagram, if there is one."""


def pack(snapshot: Snapshot) -> bytes:
    """Return the snapshot as bytes."""
    plain = {
        "address": snapshot.address,
        "layout": snapshot.layout,
        "client": snapshot.client,
        "local": snapshot.local,
        "remote": snapshot.remote,
        "next": snapshot.next,
        "beyond": _plain(snapshot.beyond),
        "own_next": snapshot.own_next,
        "outstanding": _plain(snapshot.outstanding),
        "last": _plain(snapshot.last),
    }
    return seal(_VERSION, json.dumps(plain, separators=(",", ":")).encode())


def unpack(data: bytes) -> Snapshot:
    """Return the snapshot of these bytes; raises `DamagedSnapshot`."""
    with reading("mrp"):
        plain = json.loads(unseal(_VERSION, data))
        snapshot = Snapshot(
            address=restored_address(plain["address"]),
            layout=plain["layout"],
            client=bool(plain["client"]),
            local=int(plain["local"]),
            remote=int(plain["remote"]),
            next=int(plain["next"]),
            beyond=_numbered(plain["beyond"]),
            own_next=int(plain["own_next"]),
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


def _plain(numbered: Numbered) -> list[list[object]]:
    return [[number, b64encode(data).decode()] for number, data in numbered]


def _numbered(plain: list[list[object]]) -> Numbered:
    return [(int(str(number)), b64decode(str(data), validate=True)) for number, data in plain]
