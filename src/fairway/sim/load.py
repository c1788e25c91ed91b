"""What applications send, and how they treat what they get."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from struct import Struct

from fairway.core.errors import BadOption
from fairway.core.random_source import Seeded
from fairway.sim.pipe import check_values

_NAME = Struct(">BBI")
NAMED_BYTES_MIN = _NAME.size + 2
"""From this size on a body names its sender, receiver and number, and so is the only one of its kind."""
_PATTERN_BYTES = 65_536
PROBABILITIES = ("tiny", "plain", "request", "asynchronous", "chain", "ping", "commit_never", "answer_never", "split")


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What each client sends to the server, and back when `two_way`. Probabilities are out of a million."""

    messages: int = 100
    bytes_min: int = 64
    bytes_max: int = 64
    tiny: int = 0
    """Messages of 0 to 7 bytes, many of which are equal."""
    tiny_bytes_min: int = 0
    interval_us: int = 0
    """Between two steps of an application; 0 sends whenever there is room."""
    batch: int = 64
    """Messages in one step."""
    two_way: bool = False
    plain: int = 0
    request: int = 0
    asynchronous: int = 0
    chain: int = 0
    """Responses that are requests themselves."""
    ping: int = 0
    commit_us: int = 0
    """A receipt is committed within this time of its message."""
    commit_never: int = 0
    answer_never: int = 0
    split: int = 0
    """Receipts of many messages that are committed in pieces."""
    disk_us: int = 0
    """A transaction of the simulated disk takes this long."""

    def __post_init__(self) -> None:
        check_values(self, PROBABILITIES)
        if self.bytes_max < self.bytes_min:
            raise BadOption(f"bytes_max is {self.bytes_max}; it must not be below bytes_min, {self.bytes_min}")
        if self.batch < 1:
            raise BadOption("batch is 0; it must be at least 1")


@cache
def _pattern() -> bytes:
    """Return bytes in which no stretch looks like another."""
    return b"".join(Seeded(index).bits(512).to_bytes(64, "big") for index in range(_PATTERN_BYTES // 64))


class Bodies:
    """Makes bodies that name their sender, receiver and number, filled with bytes that differ everywhere."""

    __slots__ = ("_load", "_pattern", "_random")

    def __init__(self, load: Load, random: Seeded) -> None:
        self._load = load
        self._random = random
        self._pattern = _pattern() * (2 + load.bytes_max // _PATTERN_BYTES)

    def make(self, sender: int, receiver: int, number: int, named: bool = False) -> bytes:
        """Make the next body; a named one is never tiny, so that it can be recognised."""
        load = self._load
        if load.tiny and not named and self._random.happens(load.tiny):
            return self._pattern[: self._random.between(load.tiny_bytes_min, 7)]
        size = load.bytes_min
        if load.bytes_max > size:
            size = self._random.between(size, load.bytes_max)
        if size < NAMED_BYTES_MIN and not named:
            return self._pattern[:size]
        start = number & 0xFF
        end = max(start + size - NAMED_BYTES_MIN, start)
        return self.named(sender, receiver, number) + self._pattern[start:end]

    def named(self, sender: int, receiver: int, number: int) -> bytes:
        """Make the head of a body; the last two bytes keep it from being the reverse of another."""
        return _NAME.pack(sender, receiver, number) + b"\xfa\x17"
