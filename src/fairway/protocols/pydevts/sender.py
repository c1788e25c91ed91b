"""What we send to one peer: a queue, the open messages, and how many may be open."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import accumulate, chain, islice
from zlib import crc32

from fairway.core.congestion import make_controller
from fairway.core.flight import Acknowledged, Flight, Run
from fairway.core.machine import Buffer
from fairway.core.rtt import RoundTrip
from fairway.protocols.pydevts import wire
from fairway.protocols.pydevts.identifiers import IDS, Identifiers
from fairway.protocols.pydevts.options import PydevtsOptions

CHECKS = 4
"""Acks after one out of order that are looked at for overtaken messages: three overtake, one more is spare."""


NO_ID_RETRY_US = 1_000_000
"""How long a message waits before it looks again for a free id."""


class Batch:
    """Messages of equal size that leave together under consecutive ids."""

    __slots__ = ("count", "data", "segment_bytes")

    def __init__(self, data: bytes, segment_bytes: int) -> None:
        self.data = data
        self.segment_bytes = segment_bytes
        self.count = len(data) // segment_bytes


class Sender:
    """The sending side towards one peer."""

    __slots__ = (
        "_blocked_until_us",
        "_checks",
        "_controller",
        "_expected",
        "_keys",
        "_numbers",
        "_options",
        "_presumed_lost",
        "_queue",
        "_sampled",
        "_tokens",
        "bytes_held",
        "flight",
        "identifiers",
        "round_trip",
        "starved",
    )

    def __init__(self, options: PydevtsOptions, identifiers: Identifiers) -> None:
        self._options = options
        self._controller = make_controller(options.controller, options.window)
        self.round_trip = RoundTrip(initial_us=1, min_us=1, max_us=options.repeat_after_us)
        self.identifiers = identifiers
        self.flight = Flight()
        self._numbers: dict[int, int] = {}
        """Number of each open key."""
        self._keys: dict[int, int] = {}
        """Key of each open id."""
        self._queue: deque[bytes] = deque()
        self._tokens: deque[int] = deque()
        self.bytes_held = 0
        """Bodies that are queued or open."""
        self.starved = False
        """Whether a caller was told that there is no room."""
        self._sampled = -1, -1
        """The way of the latest sample: packets that left together and were acknowledged together give one."""
        self._blocked_until_us = 0
        """When to look again for a free id; looking through all of them costs milliseconds."""
        self._presumed_lost: dict[int, None] = {}
        self._checks = 0
        self._expected = -1

    def __len__(self) -> int:
        """Counts the messages without an outcome."""
        return len(self._queue) + self.flight.left

    # The queue.

    def room(self) -> int:
        """Tells how many messages the queue takes, bytes apart."""
        return max(0, self._options.send_queue_messages_max - len(self))

    def fits(self, size: int) -> bool:
        """Tells whether the queue takes one more body; an empty one always does."""
        return len(self) == 0 or (
            len(self) < self._options.send_queue_messages_max
            and self.bytes_held + size <= self._options.send_queue_bytes_max
        )

    def room_for(self, bodies: Sequence[Buffer]) -> int:
        """Tells how many of these bodies, from the first on, the queue takes."""
        room = min(len(bodies), self.room())
        sizes = list(map(len, bodies[:room]))
        free = self._options.send_queue_bytes_max - self.bytes_held
        if sum(sizes) > free:
            room = sum(1 for held in accumulate(sizes) if held <= free)
        return max(room, 1) if bodies and len(self) == 0 else room

    def queue(self, bodies: Sequence[bytes], tokens: range) -> None:
        self._queue.extend(bodies)
        self._tokens.extend(tokens)
        self.bytes_held += sum(map(len, bodies))

    def take_queue(self) -> list[int]:
        """Empties the queue and gives the tokens of what never left."""
        tokens = list(self._tokens)
        self.bytes_held -= sum(map(len, self._queue))
        self._queue.clear()
        self._tokens.clear()
        return tokens

    # Sending.

    def ready(self, now_us: int) -> int:
        """Tells how many queued messages may leave now."""
        if now_us < self._blocked_until_us:
            return 0
        by_window = min(len(self._queue), self._options.window - len(self.flight))
        return min(by_window, self._controller.room(self._in_flight(), now_us)) if by_window > 0 else 0

    def next_ready_us(self, now_us: int) -> int | None:
        """Tells when pacing or a free id may let the next message leave; None when only an outcome of others can."""
        if not self._queue or len(self.flight) >= self._options.window:
            return None
        if now_us < self._blocked_until_us:
            return self._blocked_until_us
        return self._controller.next_room_us(self._in_flight(), now_us)

    def _in_flight(self) -> int:
        return self.flight.left - len(self._presumed_lost)

    def leave(self, most: int, now_us: int) -> list[Batch]:
        """Sends queued messages of equal size, `most` at the most; none when no id is free."""
        bodies, tokens = self._equal_sizes(most)
        batches: list[Batch] = []
        done = 0
        for number, keys in self.identifiers.take(list(map(crc32, bodies)), self._keys, now_us):
            part = bodies[done : done + len(keys)]
            batches.append(self._open(number, keys, part, tokens[done], now_us))
            done += len(keys)
        if done < len(bodies):
            self._blocked_until_us = now_us + NO_ID_RETRY_US
            self._queue.extendleft(reversed(bodies[done:]))
            self._tokens.extendleft(reversed(tokens[done:]))
        self._controller.sent(done, now_us)
        return batches

    def _equal_sizes(self, most: int) -> tuple[list[bytes], list[int]]:
        """Takes bodies of one size with consecutive tokens off the queue."""
        bodies, tokens = list(islice(self._queue, most)), list(islice(self._tokens, most))
        size, token = len(bodies[0]), tokens[0]
        if tokens[-1] != token + len(tokens) - 1 or set(map(len, bodies)) != {size}:
            for position, body in enumerate(bodies):
                if len(body) != size or tokens[position] != token + position:
                    del bodies[position:], tokens[position:]
                    break
        for _ in bodies:
            self._queue.popleft()
            self._tokens.popleft()
        return bodies, tokens

    def _open(self, number: int, keys: list[int], bodies: list[bytes], token: int, now_us: int) -> Batch:
        batch = Batch(wire.packets(keys, bodies), wire.HEADER_BYTES + len(bodies[0]))
        due_us = now_us + self._options.repeat_after_us
        if batch.count == 1:
            self.flight.add_one(number, batch.data, token, now_us, due_us)
            self._numbers[keys[0]] = number
            self._keys[keys[0] >> 32] = keys[0]
            return batch
        self.flight.add(number, batch.count, batch.data, batch.segment_bytes, token, now_us, due_us)
        self._numbers.update(zip(keys, range(number, number + batch.count), strict=True))
        self._keys.update(zip([key >> 32 for key in keys], keys, strict=True))
        return batch

    def repeat(self, number: int, now_us: int, *, overdue: bool) -> bytes:
        """Takes note that an open message leaves again, and gives its datagram as it first was."""
        run = self.flight.find(number)
        assert run is not None
        if overdue and number not in self._presumed_lost:
            self._controller.lost(run.sent_us[-1], now_us)
        self._presumed_lost.pop(number, None)
        self._controller.sent(1, now_us)
        return bytes(self.flight.repeat(number, now_us, now_us + self._options.repeat_after_us).data)

    # Outcomes.

    def find(self, key: int) -> int | None:
        """Gives the number of the open message that an ack with this key speaks of."""
        number = self._numbers.get(key)
        if number is None and not key & wire.CRC_MASK:
            number = self._numbers.get(self._keys.get(key >> 32, -1))
        return number

    def find_all(self, keys: Sequence[int]) -> list[int] | None:
        """Gives the numbers of open messages with exactly these keys, if all are open and none comes twice."""
        numbers = [self._numbers.get(key) for key in keys]
        found = [number for number in numbers if number is not None]
        return found if len(found) == len(keys) == len(set(keys)) else None

    def key_of(self, number: int) -> int:
        """Gives the key of an open message."""
        return self._keys[number % IDS]

    def acknowledged(self, numbers: Sequence[int], keys: Sequence[int], now_us: int) -> Sequence[int]:
        """Ends open messages as acknowledged and gives their tokens."""
        before = self._in_flight()
        first, count = numbers[0], len(numbers)
        alone = self.flight.acknowledge_one(first) if count == 1 else None
        if alone is not None:
            self._end(keys, self._sample_run(alone, 1, now_us))
            self._note_lost(first, numbers, now_us)
            self._controller.acknowledged(1, before, self.round_trip.smoothed_us, now_us)
            return range(alone.token, alone.token + 1)
        if count == 1 or list(numbers) == list(range(first, first + count)):
            pieces = self.flight.acknowledge(first, count)
        else:
            pieces = [piece for number in numbers for piece in self.flight.acknowledge(number)]
        self._end(keys, self._sample(pieces, now_us))
        self._note_lost(first, numbers, now_us)
        self._controller.acknowledged(count, before, self.round_trip.smoothed_us, now_us)
        return pieces[0].tokens if len(pieces) == 1 else list(chain.from_iterable(piece.tokens for piece in pieces))

    def _sample(self, pieces: list[Acknowledged], now_us: int) -> int:
        """Measures the round trip on packets that were sent once, and gives the bytes of all bodies."""
        return sum(self._sample_run(run, count, now_us) for run, _, count in pieces)

    def _sample_run(self, run: Run, count: int, now_us: int) -> int:
        if len(run.sent_us) == 1 and self._sampled != (run.sent_us[0], now_us):
            self._sampled = run.sent_us[0], now_us
            self.round_trip.sample(now_us - run.sent_us[0])
        return count * (run.segment_bytes - wire.HEADER_BYTES)

    def _note_lost(self, first: int, numbers: Sequence[int], now_us: int) -> None:
        """Tells the controller of messages that others overtook.

        It hears of a loss one round trip after it, not three seconds; the protocol repeats on its timer all the same.
        """
        if self._presumed_lost:
            for number in numbers:
                self._presumed_lost.pop(number, None)
        if first != self._expected:
            self._checks = CHECKS
        self._expected = numbers[-1] + 1
        if self._checks == 0:
            return
        self._checks -= 1
        for number in self.flight.overtaken():
            if number not in self._presumed_lost:
                self._presumed_lost[number] = None
                run = self.flight.find(number)
                assert run is not None
                self._controller.lost(run.sent_us[-1], now_us)

    def give_up(self, number: int) -> int:
        """Ends an open message without an answer and gives its token."""
        key = self.key_of(number)
        run: Run | None = self.flight.drop(number)
        assert run is not None
        self._presumed_lost.pop(number, None)
        self._end((key,), run.segment_bytes - wire.HEADER_BYTES)
        return run.token

    def _end(self, keys: Sequence[int], size: int) -> None:
        self.bytes_held -= size
        for key in keys:
            del self._numbers[key]
            del self._keys[key >> 32]
