"""A virtual world with one machine under test, one scripted peer, and a link between them.

The conformance suite pairs our machines with each other; whatever both get wrong in the same way stays hidden there.
Here the peer is a script that speaks raw bytes, follows the standard, and behaves differently from our own
implementation. A run is a function of its seed: the seed draws the machine's ids, a few per cent of the link's delay,
its jitter and its losses. Faults, outages and policies of the peer count from the moment the load is sent, so that
no seed fails in its handshake.

A test runs for several seeds with `over_seeds(default)`; the name of a failed test ends with its seed:

    ODD_SEEDS=100 python -m pytest tests/odd      checks every bound with 100 seeds instead of the default few
    ODD_SEED=17 python -m pytest ...::test_name   replays one seed

`World.finish` asserts for every run what no peer may cause: a token with two outcomes or none, a message reported as
delivered that the peer never took, one reported as "not sent" of which something was transmitted, a storm of
datagrams, a machine that keeps itself busy or still counts something as unfinished.
"""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from heapq import heappop, heappush
from typing import ClassVar, Literal, TypedDict, Unpack

import pytest

from fairway.core.events import Closed, Connected, Delivered, DeliveryUnknown, Event, Peer, Refused
from fairway.core.machine import Machine, Transmit, settle
from fairway.core.random_source import Seeded
from fairway.protocols import make_machine, make_options, wire
from tests.conformance.pair import cut

MS = 1_000
SECOND = 1_000_000
HERE, THERE = ("machine", 1), ("peer", 2)
TAG_BYTES = 8
"""Bodies begin with a number of so many digits, by which a message is recognised on the wire."""
PILE_GAP_US = MS
"""What arrived during a pause is read so long after the wake that ends it."""
WAKES_IN_A_ROW_MAX = 16
STEPS_MAX = 3_000_000
SPARE_DATAGRAMS = 200
"""Handshakes, heartbeats, probes: what a run may send beyond its multiple of the datagrams needed."""


def numbered(count: int, size: int = 100, first: int = 0) -> list[bytes]:
    """Return different bodies of one size."""
    return [tag(number).ljust(size, b".") for number in range(first, first + count)]


def tag(number: int) -> bytes:
    """Return what the body of that number begins with."""
    return b"%08d" % number


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """Delay, rate, losses and outages; times count from the moment the load is sent."""

    delay_us: int
    """One way."""
    grows: tuple[int, int] | None = None
    """From when on the delay is another one, and which."""
    bytes_per_second: int = 0
    """Towards the peer; 0 is unlimited."""
    queue_us: int = 200 * MS
    """How long datagrams wait for that at the most; the rest is lost."""
    loss_per_million: int = 0
    """Of each datagram, in both directions."""
    answer_loss_per_million: int = 0
    """Of each datagram from the peer, in addition."""
    outages: tuple[tuple[int, int], ...] = ()
    """From when until when nothing passes, in either direction."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one message ended."""

    kind: str
    at_us: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Answers:
    """When acknowledgements of a peer leave."""

    late_us: int = 0
    batch_us: int = 0
    """Gather for so long what one instant would answer, then send it as `order` says."""
    order: str = "kept"
    """`kept`, `reversed`, or `latest`: only the last one of a batch."""
    spread_us: int = 0
    """Each acknowledgement takes a time of its own up to this: the application commits its messages side by side."""
    in_order: bool = False
    """None of them overtakes another: the application commits its messages one after another."""
    seed: int = 1


PROMPT = Answers()
REVERSED = Answers(batch_us=5 * MS, order="reversed")


class Habits(TypedDict, total=False):
    """What any peer may do differently; times count from the moment the load is sent."""

    answers: Answers
    repeats_us: int
    """Say the last acknowledgement again so often, although it says nothing new."""
    deaf_us: int
    """From when on the peer hears nothing."""
    mute_us: int
    """From when on the peer neither hears nor says anything."""
    forgets_us: int
    """When the peer restarts and has forgotten every conversation."""


class ScriptedPeer:
    """A peer that the machine under test talks to: bytes in, bytes out, and actions at a time."""

    protocol: ClassVar[str]

    def __init__(self, **habits: Unpack[Habits]) -> None:
        self.habits = habits
        self.answers = habits.get("answers", PROMPT)
        self.options: dict[str, object] = {}
        """What the machine must be made with to talk to this peer."""
        self.world: World
        self.taken: Counter[bytes] = Counter()
        """How often each message was delivered to the peer's application, by its tag."""
        self._batch: list[bytes] = []
        self._last = b""
        self._spread = Seeded(self.answers.seed)
        self._committed_us = 0

    def receive(self, data: bytes) -> None:
        """Take one datagram."""
        raise NotImplementedError

    def forget(self) -> None:
        """Lose every conversation, as by a restart."""
        raise NotImplementedError

    def message_of(self, data: bytes) -> bytes | None:
        """Return the tag of the message that a datagram of the machine begins, or None."""
        raise NotImplementedError

    def needed(self, bodies: Sequence[bytes]) -> int:
        """Return how many datagrams the machine needs for these messages when nothing is lost."""
        return len(bodies)

    def answer(self, data: bytes) -> None:
        """Send an acknowledgement as the habits say."""
        if not self._last and "repeats_us" in self.habits:
            self.world.at(self.world.now_us + self.habits["repeats_us"], self._repeat)
        self._last = data
        if self.answers.batch_us:
            if not self._batch:
                self.world.at(self.world.now_us + self.answers.batch_us, self._send_batch)
            self._batch.append(data)
        elif self.answers.late_us or self.answers.spread_us:
            late_us = self.answers.late_us + self._spread.below(self.answers.spread_us + 1)
            at_us = self.world.now_us + late_us
            self._committed_us = max(self._committed_us, at_us)
            self.world.at(self._committed_us if self.answers.in_order else at_us, self.world.answer, data)
        else:
            self.world.answer(data)

    def _repeat(self) -> None:
        self.world.answer(self._last)
        self.world.at(self.world.now_us + self.habits["repeats_us"], self._repeat)

    def _send_batch(self) -> None:
        batch, self._batch = self._batch, []
        order = self.answers.order
        for data in reversed(batch) if order == "reversed" else batch[-1:] if order == "latest" else batch:
            self.world.answer(data)


class World:
    """One machine, one peer and one link in virtual time."""

    def __init__(
        self,
        peer: ScriptedPeer,
        link: Link,
        *,
        seed: int = 1,
        loses: Callable[[bytes], bool] | None = None,
        pauses: Sequence[tuple[int, int]] = (),
        reads_us: int = 0,
        **options: object,
    ) -> None:
        random = Seeded(seed)
        chosen = make_options(peer.protocol, **{**peer.options, **options})
        self.machine: Machine = make_machine(peer.protocol, chosen, random.fork(1))
        self.peer = peer
        self.link = link
        self.now_us = SECOND
        self.began_us: int | None = None
        """When the load was sent."""
        self.log: list[tuple[int, bytes]] = []
        """What the machine sent, and when."""
        self.answered = 0
        """Datagrams of the peer."""
        self.outcomes: dict[int, Outcome] = {}
        self.bodies: dict[int, bytes] = {}
        """By token, in the order of sending."""
        self.closed_us: int | None = None
        self._loses = loses
        self._pauses = pauses
        self._paused_until_us = 0
        self._reads_us = reads_us
        """How long what has arrived waits for a reader that then takes all of it before anything leaves."""
        self._inbox: list[bytes] = []
        self._losses = random.fork(2)
        self._jitter = random.fork(3)
        self._slower_us = random.below(link.delay_us // 20 + 1)
        self._jitter_us = min(100, link.delay_us // 10)
        self._queue: list[tuple[int, int, Callable[..., None], tuple[bytes, ...]]] = []
        self._numbers = 0
        self._latest_us = [0, 0]
        self._free_us = 0
        self._deadline_us: int | None = None
        self._opened: deque[Peer] = deque()
        peer.world = self

    @property
    def rtt_us(self) -> int:
        """The longest round trip of the link as it was made."""
        return 2 * (self.link.delay_us + self._slower_us + self._jitter_us)

    # Time.

    def at(self, at_us: int, action: Callable[..., None], *arguments: bytes) -> None:
        """Call the action at that time."""
        self._numbers += 1
        heappush(self._queue, (at_us, self._numbers, action, arguments))

    def run(self, done: Callable[[], bool], limit_us: int) -> bool:
        """Let time pass until the condition holds, at most `limit_us`; return whether it does."""
        end_us = self.now_us + limit_us
        queue = self._queue
        steps = wakes = 0
        while not done():
            deadline_us = self._deadline_us
            if deadline_us is not None:
                deadline_us = max(deadline_us, self._paused_until_us, self.now_us)
            if queue and (deadline_us is None or queue[0][0] <= deadline_us):
                if queue[0][0] > end_us:
                    break
                self.now_us, _, action, arguments = heappop(queue)
                action(*arguments)
                wakes = 0
            else:
                if deadline_us is None or deadline_us > end_us:
                    break
                wakes = wakes + 1 if deadline_us == self.now_us else 0
                assert wakes <= WAKES_IN_A_ROW_MAX, f"the deadline stays at {deadline_us} however often it is woken"
                self.now_us = deadline_us
                self.machine.wake(deadline_us)
                self._settle()
            steps += 1
            assert steps < STEPS_MAX, f"{STEPS_MAX} steps were not enough: a storm of datagrams or wakes"
        else:
            return True
        self.now_us = end_us
        return False

    def _settle(self) -> None:
        settle(self.machine, self._transmit, self._report, self._arm)

    def _arm(self, deadline_us: int | None) -> None:
        self._deadline_us = deadline_us

    # The machine's side.

    def _report(self, event: Event) -> None:
        if isinstance(event, Delivered | DeliveryUnknown | Refused):
            outcome = Outcome(type(event).__name__, self.now_us, getattr(event, "reason", ""))
            for token in event.tokens:
                assert token not in self.outcomes, f"token {token} has two outcomes: {self.outcomes[token]}, {outcome}"
                self.outcomes[token] = outcome
        elif isinstance(event, Connected):
            self._opened.append(event.peer)
        elif isinstance(event, Closed):
            self.closed_us = self.now_us

    def connect(self) -> Peer:
        """Open a conversation and let it come to rest."""
        self.machine.connect(THERE, self.now_us)
        self._settle()
        assert self.run(lambda: bool(self._opened), 10 * SECOND), "the handshake did not end"
        self.run(lambda: False, self.rtt_us)
        return self._opened.popleft()

    def send(self, peer: Peer, bodies: Sequence[bytes]) -> None:
        """Send the load; faults and the policies of the peer count from here."""
        if self.began_us is None:
            self._begin()
        tokens = self.machine.send_many(peer, bodies, self.now_us)
        assert len(tokens) == len(bodies), f"the queue took {len(tokens)} of {len(bodies)} messages"
        self.bodies.update(zip(tokens, bodies, strict=True))
        self._settle()

    def _begin(self) -> None:
        self.began_us = self.now_us
        if "forgets_us" in self.peer.habits:
            self.at(self.now_us + self.peer.habits["forgets_us"], self.peer.forget)
        for start_us, length_us in self._pauses:
            self.at(self.now_us + start_us, partial(self._pause, length_us))

    def _pause(self, length_us: int) -> None:
        """Call the machine no more for so long: its deadlines pass, and what arrives for it waits."""
        self._paused_until_us = self.now_us + length_us

    # The link.

    def _transmit(self, transmits: list[Transmit]) -> None:
        for transmit in transmits:
            for data in cut(transmit.data, transmit.segment_bytes):
                self.log.append((self.now_us, data))
                if not self._lost(0) and not (self.began_us is not None and self._loses and self._loses(data)):
                    self._pass(0, data)

    def answer(self, data: bytes) -> None:
        """Send a datagram of the peer on its way."""
        if self._since("mute_us"):
            return
        self.answered += 1
        if not self._lost(self.link.answer_loss_per_million):
            self._pass(1, data)

    def _since(self, habit: Literal["deaf_us", "mute_us"]) -> bool:
        start_us = self.peer.habits.get(habit)
        return start_us is not None and self.began_us is not None and self.now_us >= self.began_us + start_us

    def _lost(self, more_per_million: int) -> bool:
        if self.began_us is None:
            return False
        since_us = self.now_us - self.began_us
        if any(start_us <= since_us < end_us for start_us, end_us in self.link.outages):
            return True
        return self._losses.happens(self.link.loss_per_million) or self._losses.happens(more_per_million)

    def _pass(self, direction: int, data: bytes) -> None:
        leaves_us = self.now_us
        if direction == 0 and self.link.bytes_per_second:
            self._free_us = max(self._free_us, leaves_us)
            if self._free_us - leaves_us > self.link.queue_us:
                return
            self._free_us += len(data) * SECOND // self.link.bytes_per_second
            leaves_us = self._free_us
        grows, began_us, delay_us = self.link.grows, self.began_us, self.link.delay_us
        if grows is not None and began_us is not None and self.now_us >= began_us + grows[0]:
            delay_us = grows[1]
        arrives_us = leaves_us + delay_us + self._slower_us + self._jitter.below(self._jitter_us + 1)
        self._latest_us[direction] = arrives_us = max(arrives_us, self._latest_us[direction])
        self.at(arrives_us, self._to_machine if direction else self._to_peer, data)

    def _to_peer(self, data: bytes) -> None:
        if not self._since("mute_us") and not self._since("deaf_us"):
            self.peer.receive(data)

    def _to_machine(self, data: bytes) -> None:
        if self.now_us < self._paused_until_us:
            self.at(self._paused_until_us + PILE_GAP_US, self._to_machine, data)
            return
        self._inbox.append(data)
        if not self._reads_us:
            self._read()
        elif len(self._inbox) == 1:
            self.at(self.now_us + self._reads_us, self._read)

    def _read(self) -> None:
        inbox, self._inbox = self._inbox, []
        for data in inbox:
            self.machine.receive(data, THERE, self.now_us)
        self._settle()

    # Whole runs.

    def carry(
        self, bodies: Sequence[bytes], limit_us: int, *, per_needed: float = 2.0, every_us: int = 0, at_once: int = 1
    ) -> World:
        """Open a conversation, send the load, wait for all outcomes and check the run; return the world.

        The load is sent in one call, or, with `every_us`, so many messages at once and the next after that time.
        """
        peer = self.connect()
        self.send(peer, bodies[:at_once] if every_us else bodies)
        for first in range(at_once, len(bodies) if every_us else 0, at_once):
            self.run(lambda: False, every_us)
            self.send(peer, bodies[first : first + at_once])
        self.run(self.ended, limit_us)
        self.finish(per_needed)
        return self

    def ended(self) -> bool:
        """Return whether every message has its outcome."""
        return len(self.outcomes) == len(self.bodies)

    @property
    def took_us(self) -> int:
        """The time from sending the load to its last outcome, or until now where one is missing."""
        assert self.began_us is not None
        last_us = max(outcome.at_us for outcome in self.outcomes.values()) if self.ended() else self.now_us
        return last_us - self.began_us

    def last_delivery_us(self, expected: int) -> int:
        """Return how long the delivered messages took, so many as are expected, in a conversation that goes on."""
        delivered = self.tokens("Delivered")
        assert (len(delivered), self.closed_us) == (expected, None), self.summary()
        assert self.began_us is not None
        return max(self.outcomes[token].at_us for token in delivered) - self.began_us

    def tokens(self, kind: str) -> list[int]:
        """Return the tokens with that outcome."""
        return [token for token, outcome in self.outcomes.items() if outcome.kind == kind]

    def transmissions(self) -> Counter[bytes]:
        """Return how often each message was transmitted (of one in parts: its first part), by tag."""
        tags = (self.peer.message_of(data) for _, data in self.log)
        return Counter(found for found in tags if found is not None)

    def summary(self) -> str:
        """Return what happened, in a line."""
        kinds = Counter(f"{outcome.kind} ({outcome.reason})" for outcome in self.outcomes.values())
        told = ", ".join(f"{count} {kind.removesuffix(' ()')}" for kind, count in kinds.items()) or "no outcome"
        return f"{told} of {len(self.bodies)} in {self.took_us / SECOND:.3f} s, {len(self.log)} datagrams sent"

    def finish(self, per_needed: float) -> None:
        """Check what must hold after every run, whatever the peer did."""
        assert self.ended(), f"{len(self.bodies) - len(self.outcomes)} messages have no outcome: {self.summary()}"
        assert self.machine.unfinished() == 0, f"{self.machine.unfinished()} are unfinished: {self.summary()}"
        transmitted = self.transmissions()
        for token, body in self.bodies.items():
            outcome, name = self.outcomes[token], body[:TAG_BYTES]
            if outcome.kind == "Delivered":
                assert self.peer.taken[name], f"{name!r} is delivered; the peer never took it: {self.summary()}"
            elif outcome.kind == "Refused":
                assert not transmitted[name], f"{name!r} is refused; it was transmitted: {self.summary()}"
            else:
                assert transmitted[name], f"{name!r} is unknown; it was never transmitted: {self.summary()}"
        malformed = set(self.machine.statistics.dropped).intersection(wire(self.peer.protocol).REASONS)
        assert not malformed, f"the script of the peer is wrong: the machine dropped {sorted(malformed)}"
        most = per_needed * self.peer.needed(list(self.bodies.values())) + SPARE_DATAGRAMS
        assert len(self.log) <= most, f"a storm: at most {most:.0f} datagrams are allowed: {self.summary()}"

    def all_delivered(self) -> World:
        """Check that every message was delivered, each to the peer's application once."""
        assert len(self.tokens("Delivered")) == len(self.bodies), self.summary()
        twice = [name for name, count in self.peer.taken.items() if count > 1]
        assert not twice or "forgets_us" in self.peer.habits, f"the peer delivered {len(twice)} messages twice"
        return self


def not_sent(world: World) -> list[int]:
    """Return the tokens that ended as refused because nothing of them was transmitted."""
    return [token for token in world.tokens("Refused") if world.outcomes[token].reason.startswith("not sent")]


def at_most(measured_us: float, bound_us: float, what: str) -> None:
    """Fail with both figures when a measured time exceeds its bound."""
    assert measured_us <= bound_us, f"{what}: measured {measured_us / SECOND:.3f} s, bound {bound_us / SECOND:.3f} s"


def over_seeds(default: int) -> pytest.MarkDecorator:
    """Run a test once for each seed, with its number in the name."""
    return pytest.mark.parametrize("seed", seeds(default))


def seeds(default: int) -> Iterable[int]:
    """Return the seeds to check: one that is replayed, as many as the environment says, or the default few."""
    if "ODD_SEED" in os.environ:
        return (int(os.environ["ODD_SEED"]),)
    return range(1, 1 + int(os.environ.get("ODD_SEEDS", default)))
