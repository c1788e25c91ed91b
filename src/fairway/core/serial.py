"""Serial numbers: they wrap on the wire and are widened to 64 bits on arrival."""

from __future__ import annotations


def widen(wire: int, near: int, bits: int) -> int:
    """Return the number that ends in `wire` and lies nearest to the wide number `near`.

    At exactly half the number space the older one is taken: the wire number is then not newer. A number below 0 is
    older than the first one ever.
    """
    turn = 1 << bits
    ahead = (wire - near) & (turn - 1)
    return near + ahead if ahead < turn >> 1 else near + ahead - turn
