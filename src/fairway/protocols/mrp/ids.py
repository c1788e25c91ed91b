"""Connection ids of a node: random, unique, and such that no datagram fits two connections.

A type 3 datagram can be read in two layouts. Both readings name a connection of ours only if the low byte of a stamped
id equals the high byte of a piggyback id (they lie at the same place: byte 6 of the datagram). Stamped ids of
this node therefore have bit 7 set and piggyback ids bit 15 clear, whatever ids the peers choose.
"""

from __future__ import annotations

from collections.abc import Callable

from fairway.core.chance import Chance
from fairway.protocols.mrp.options import STAMPED
from fairway.protocols.mrp.wire import CONID_MAX

_STAMPED_BITS, _PIGGYBACK_BITS = 24, 15
_STAMPED_MARK = 0x80
_DRAWS_MAX = 64
"""After so many taken ids the search goes on upwards from the last one, so that it ends."""


def draw_id(layout: str, chance: Chance, taken: Callable[[int], bool]) -> int | None:
    """Draws a free id for a connection of that layout, or gives None when all are taken."""
    bits = _STAMPED_BITS if layout == STAMPED else _PIGGYBACK_BITS
    number = 0
    for _ in range(_DRAWS_MAX):
        number = _shape(layout, chance.bits(bits))
        if number and not taken(number):
            return number
    for step in range(1, 1 << bits):
        number = _shape(layout, (number + step) & ((1 << bits) - 1))
        if number and not taken(number):
            return number
    return None


def _shape(layout: str, drawn: int) -> int:
    return (drawn | _STAMPED_MARK) & CONID_MAX if layout == STAMPED else drawn
