"""Places for received messages: what is handed over and not yet committed, and what waits for an earlier one.

All connections of a machine share them. Packets kept ahead of a gap never take the last place, nor the last bytes
that the largest message needs: the packet that fills the gap must find one, or nothing would ever move again.
"""

from __future__ import annotations

from fairway.core.machine import UDP_PAYLOAD_BYTES_MAX


class Places:
    """Counts messages and their bytes against two bounds."""

    __slots__ = ("_bytes_max", "_count_max", "bytes", "count", "kept_bytes", "kept_count")

    def __init__(self, count_max: int, bytes_max: int) -> None:
        self._count_max = count_max
        self._bytes_max = bytes_max
        self.count = 0
        self.bytes = 0
        self.kept_count = 0
        self.kept_bytes = 0

    def fit(self, count: int, size: int) -> bool:
        """Tells whether there is room for so many messages of so many bytes in all."""
        return self.count + count <= self._count_max and self.bytes + size <= self._bytes_max

    def fit_kept(self, size: int) -> bool:
        """Tells whether there is room for one message ahead of a gap."""
        return (
            self.kept_count + 1 < self._count_max
            and self.kept_bytes + size <= self._bytes_max - UDP_PAYLOAD_BYTES_MAX
            and self.fit(1, size)
        )

    def take_one(self, size: int) -> bool:
        """Occupies a place for one message that is handed over, if there is one."""
        if self.count >= self._count_max or self.bytes + size > self._bytes_max:
            return False
        self.count += 1
        self.bytes += size
        return True

    def take(self, count: int, size: int) -> None:
        """Occupies places for messages that are handed over."""
        self.count += count
        self.bytes += size

    def free(self, count: int, size: int) -> None:
        """Frees the places of committed messages."""
        self.count -= count
        self.bytes -= size

    def keep(self, size: int) -> None:
        """Occupies a place for one message ahead of a gap."""
        self.take(1, size)
        self.kept_count += 1
        self.kept_bytes += size

    def hand_over(self, size: int) -> None:
        """Turns the place of a kept message into that of one handed over."""
        self.kept_count -= 1
        self.kept_bytes -= size
