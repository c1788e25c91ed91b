"""What is sent, and the comparison of what was received with it: the same for every peer.

A stream repeats one block of random bytes whose size is a prime, so that nothing displaced fits. A message is a number
and a tail. Comparing costs about 0.1 ns a byte of a stream and 40 ns a message.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from random import Random
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from benchmarks.transport.loads import Load

BLOCK_BYTES = 262_139
"""A prime: no datagram, fragment or buffer of another size divides it."""
BLOCK = Random(20_260_101).randbytes(BLOCK_BYTES)
NUMBER_BYTES = 8
LARGE_BLOCKS = 16
LARGE_BYTES = LARGE_BLOCKS * BLOCK_BYTES
"""A bulk message where messages have any size: 4 MB."""
BATCH_BYTES = 1 << 18
BATCH_MESSAGES_MAX = 4_096
BATCHES_IN_FLIGHT = 2

_DOUBLED = BLOCK + BLOCK


class Corrupt(Exception):
    """What arrived is not what was sent."""


class Check:
    """Compares what arrives with what was sent."""

    def __init__(self, expected: int) -> None:
        self.total = 0
        """Bytes or messages compared so far."""
        self._expected = expected

    @property
    def complete(self) -> bool:
        return self.total >= self._expected

    def take(self, bodies: Sequence[bytes | bytearray]) -> None:
        """Compare what follows; raise `Corrupt`."""
        raise NotImplementedError


class StreamCheck(Check):
    """Compares a stream with the repeated block."""

    def take(self, bodies: Sequence[bytes | bytearray]) -> None:
        for body in bodies:
            view = memoryview(body)
            for start in range(0, len(view), BLOCK_BYTES):
                piece = view[start : start + BLOCK_BYTES]
                # Compares in place: `startswith` takes any buffer.
                if not _DOUBLED.startswith(piece, self.total % BLOCK_BYTES):
                    raise Corrupt(f"a stream differs within the {len(piece)} bytes from {self.total}")
                self.total += len(piece)


def tail(size: int) -> bytes:
    """Return what follows the number in a message of this size."""
    return (BLOCK * -(-size // BLOCK_BYTES))[: size - NUMBER_BYTES]


def message(number: int, after: bytes) -> bytes:
    return number.to_bytes(NUMBER_BYTES, "big") + after


def number_bytes(value: int) -> bytes:
    """Return a number as it goes over the wire."""
    return value.to_bytes(NUMBER_BYTES, "big")


def batch_messages(size: int) -> int:
    return max(64, min(BATCH_MESSAGES_MAX, BATCH_BYTES // size))


def cycle(size: int) -> list[bytes]:
    """Return the messages that batches send over and over: four times as many as are ever in flight, so that a number
    that comes back is either old or new, never both."""
    after = tail(size)
    return [message(number, after) for number in range(4 * BATCHES_IN_FLIGHT * batch_messages(size))]


class MessageCheck(Check):
    """Compares messages with what was sent, in any order, and finds those that came twice.

    With a period the numbers begin again after so many. They are told apart by how many have come: the next one is
    never further from that than what is in flight, a quarter of the period, and a piece that is compared at once is
    not longer than that either.
    """

    def __init__(self, size: int, expected: int, period: int | None) -> None:
        super().__init__(expected)
        self._size = size
        self._period = period
        self._seen = np.zeros(expected, dtype=np.bool_)
        self._tail = np.frombuffer(tail(size), dtype=np.uint8)

    def take(self, bodies: Sequence[bytes | bytearray]) -> None:
        piece = self._period // 4 if self._period else len(bodies)
        for start in range(0, len(bodies), piece):
            self._take(bodies[start : start + piece])

    def _take(self, bodies: Sequence[bytes | bytearray]) -> None:
        joined = np.frombuffer(b"".join(bodies), dtype=np.uint8)
        if len(joined) != len(bodies) * self._size:
            raise Corrupt(f"{len(bodies)} messages of {self._size} bytes have {len(joined)} bytes")
        rows = joined.reshape(len(bodies), self._size)
        if not (rows[:, NUMBER_BYTES:] == self._tail).all():
            raise Corrupt(f"one of {len(bodies)} messages after {self.total} differs from what was sent")
        numbers = rows[:, :NUMBER_BYTES].copy().view(">u8").reshape(-1).astype(np.int64)
        self._mark(self._widened(numbers))
        self.total += len(bodies)
        if self.complete and not (self.total == self._expected and self._seen.all()):
            raise Corrupt(f"of {self._expected} messages {int(self._seen.sum())} came, {self.total} with duplicates")

    def _widened(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        if self._period is None:
            return numbers
        half = self._period // 2
        widened: NDArray[np.int64] = (numbers - self.total + half) % self._period + self.total - half
        return widened

    def _mark(self, numbers: NDArray[np.int64]) -> None:
        if (numbers < 0).any() or (numbers >= self._expected).any():
            raise Corrupt(f"a message has a number that none of the {self._expected} has")
        if self._seen[numbers].any():
            raise Corrupt(f"a message came twice, among the {len(numbers)} after {self.total}")
        self._seen[numbers] = True


class BlockCheck(Check):
    """Compares the large messages that `large_messages` gives, in any order."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self._variants = {variant[:NUMBER_BYTES]: variant for variant in variants()}
        self._left = Counter((body[:NUMBER_BYTES], len(body)) for body in large_messages(size))

    def take(self, bodies: Sequence[bytes | bytearray]) -> None:
        for body in bodies:
            key = bytes(body[:NUMBER_BYTES])
            if not self._variants.get(key, b"").startswith(body):
                raise Corrupt(f"a message of {len(body)} bytes after {self.total} differs from what was sent")
            if not self._left[key, len(body)]:
                raise Corrupt(f"a message of {len(body)} bytes came twice, or was never sent")
            self._left[key, len(body)] -= 1
            self.total += len(body)


def large_messages(size: int) -> Iterator[bytes]:
    """Cut so many bytes into large messages, the last one shorter; neighbours differ."""
    bodies = variants()
    for number, start in enumerate(range(0, size, LARGE_BYTES)):
        body = bodies[number % len(bodies)]
        yield body if size - start >= LARGE_BYTES else body[: size - start]


@cache
def variants() -> list[bytes]:
    """Return the block repeated, begun at four offsets."""
    return [(_DOUBLED[by : by + BLOCK_BYTES]) * LARGE_BLOCKS for by in range(0, 4 * 64, 64)]


class Reception:
    """Compares one transfer after the other; the first message of each says how large it is."""

    def __init__(self, load: Load, make_check: Callable[[int], Check] | None = None, confirm_every: int = 1) -> None:
        self.received = 0
        """Units that arrived and were right."""
        self._load = load
        self._make_check = make_check or self._message_check
        self._every = confirm_every
        self._check: Check | None = None
        self._confirmed = 0
        self._ping = message(0, tail(load.message_bytes))

    def _message_check(self, count: int) -> Check:
        size = self._load.message_bytes
        return MessageCheck(size, count, None if self._load.kind == "awaited" else len(cycle(size)))

    def take(self, bodies: Sequence[bytes]) -> int | None:
        """Compare what arrived; return how much of the transfer is to be confirmed now, if anything."""
        if self._load.kind == "ping":
            if any(body != self._ping for body in bodies):
                raise Corrupt("a ping differs from what was sent")
            self.received += len(bodies)
            return 1 if bodies else None
        if bodies and self._check is None:
            self._check, self._confirmed = self._make_check(int.from_bytes(bodies[0], "big")), 0
            bodies = bodies[1:]
        if not bodies:
            return None
        check = self._check
        assert check is not None
        check.take(bodies)
        self.received += sum(map(len, bodies)) if self._load.kind == "bulk" else len(bodies)
        if check.complete:
            self._check = None
        elif check.total - self._confirmed < self._every:
            return None
        self._confirmed = check.total
        return check.total

    @property
    def complete(self) -> bool:
        """Whether the last transfer that began has ended."""
        return self._check is None
