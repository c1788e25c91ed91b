"""Random, truncated and mutated datagrams through one machine, while healthy conversations go on beside them.

Three kinds of peers talk to the machine under test:

* *strangers* (thousands of addresses) send random bytes and mutations of traffic recorded elsewhere;
* *insiders* have real conversations with the machine and mutate their own datagrams, so that the damage reaches
  the state behind a valid session; their conversations may die of it and are opened again;
* the *healthy* only talk, in both directions, and every message must arrive once and be acknowledged.

What must hold: no exception, no container past its ceiling, no stranger with more than three times its bytes, flat
memory, and the healthy notice nothing. A run is a function of protocol, number of datagrams and seed.

    python -m tests.fuzz --datagrams 20000000
"""

from __future__ import annotations

import argparse
import os
import resource
import shlex
import sys
import time
import traceback
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field

from benchmarks.footprint import footprint
from fairway.core.errors import CallerError
from fairway.core.events import (
    Address,
    Closed,
    Connected,
    Delivered,
    DeliveryUnknown,
    Event,
    MessageReceived,
    MessagesReceived,
    Peer,
    Refused,
    RequestReceived,
)
from fairway.core.machine import Machine
from fairway.core.random_source import Seeded
from fairway.protocols import NAMES, make_machine, make_options
from tests.conformance.pair import cut
from tests.fuzz.hostility import Hostility, Insider

FORMS: Mapping[str, tuple[Mapping[str, object], ...]] = {"mrp": ({"layout": "stamped"}, {"layout": "piggyback"})}
"""Options of the peers, where a protocol has several forms; the machine under test serves them all."""
BOUNDS: Mapping[str, int] = {
    "peers_max": 2_048,
    "half_open_max": 512,
    "unproved_max": 1_024,
    "open_receipts_max": 2_048,
    "send_queue_messages_max": 2_048,
}
OWN_BOUNDS: Mapping[str, Mapping[str, int]] = {
    "pydevts": {"remembered_max": 1 << 16},
    "rup": {"remembered_max": 1 << 16, "incoming_messages_max": 2_048, "incoming_messages_per_peer_max": 512},
}
"""Small enough to be reached, where reaching them may not cost the healthy anything."""
ENTRIES_PER_SLOT = 12
"""Container entries that one entry of a named bound may cost: its tables, its timers and what hangs on it."""
BUFFERED_BYTES_MAX = 64 << 20
RSS_GROWTH_KIB_MAX = 96 << 10

STEP_US = 100
"""Virtual time between two datagrams."""
PULSE = 2_048
"""Datagrams between two exchanges of the honest peers."""
DRAIN = 32
"""Datagrams between two checks of what the machine wants to send and report."""
MEASURE = 100_000
WARM_UP = 10 * MEASURE
"""After so many datagrams the tables have their size and memory must stay flat."""
INSIDERS = 8
INSIDER_PULSES = 4
"""How often an insider talks before its conversation is opened anew."""
RECORDED_MAX = 64
ROUNDS_MAX = 200
"""Turns of one exchange: more than any window needs."""

TESTED: Address = ("tested", 0)

DTLS = "dtls"
TARGETS = (*NAMES, DTLS)


@dataclass(slots=True)
class FuzzResult:
    """What came of one run; it is good when `failures` is empty."""

    protocol: str
    seed: int
    datagrams: int = 0
    seconds: float = 0.0
    messages_healthy: int = 0
    conversations_insider: int = 0
    entries_peak: int = 0
    entries_ceiling: int = 0
    rss_growth_kib: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    def fail(self, sentence: str) -> None:
        """Keep a failure, if it is one of the first few."""
        if len(self.failures) < 10:
            self.failures.append(f"after {self.datagrams} datagrams: {sentence}")

    def replay(self, datagrams: int) -> str:
        """Return the command that runs exactly this again."""
        words = ["python", "-m", "tests.fuzz", "--protocol", self.protocol, "--seed", str(self.seed)]
        return shlex.join([*words, "--datagrams", str(datagrams)])


class Honest:
    """A peer that follows the rules, and what it has seen."""

    def __init__(self, protocol: str, form: Mapping[str, object], address: Address, seed: int) -> None:
        self.machine = make_machine(protocol, make_options(protocol, **form), Seeded(seed))
        self.address = address
        self.peer: Peer | None = None
        self.insider: Insider | None = None
        self.sent: Counter[bytes] = Counter()
        self.received: Counter[bytes] = Counter()
        self.outcomes: Counter[str] = Counter()
        self.closed = False

    def say(self, number: int, now_us: int) -> None:
        """Send one message whose body tells it from all others; a closed or full conversation says nothing."""
        if self.peer is None:
            return
        body = f"{self.address} says {number} ".encode().ljust(40 + number % 90, b".")
        try:
            self.machine.send(self.peer, body, now_us)
            self.sent[body] += 1
        except CallerError:
            self.outcomes["refused at once"] += 1

    def take(self, event: Event, now_us: int) -> None:
        """Keep what is reported and commit what is received."""
        match event:
            case Connected():
                self.peer = event.peer
            case Closed():
                self.closed = True
            case Delivered() | DeliveryUnknown() | Refused():
                self.outcomes[type(event).__name__] += len(event.tokens)
            case MessageReceived() | MessagesReceived():
                self.machine.commit(event.receipt, now_us)
                self.received.update(bodies_of(event))
            case RequestReceived():
                self.machine.commit(event.receipt, now_us)


def bodies_of(event: MessageReceived | MessagesReceived) -> Sequence[bytes]:
    """Return the bodies of one message or of a batch."""
    return event.bodies if isinstance(event, MessagesReceived) else (event.body,)


class Bombardment:
    """One machine under fire, with its honest peers, in virtual time."""

    def __init__(self, protocol: str, seed: int) -> None:
        self.protocol = protocol
        self.seed = seed
        self.now_us = 1_000_000
        self.forms = FORMS.get(protocol, ({},))
        bounds = {**BOUNDS, **OWN_BOUNDS.get(protocol, {})}
        self.result = FuzzResult(protocol, seed, entries_ceiling=ENTRIES_PER_SLOT * sum(bounds.values()))
        self.machine = make_machine(protocol, make_options(protocol, **bounds), Seeded(seed))
        self.healthy: dict[Address, Honest] = {
            ("healthy", number): Honest(protocol, form, ("healthy", number), seed + 1 + number)
            for number, form in enumerate(self.forms)
        }
        self.honest: dict[Address, Honest] = dict(self.healthy)
        self.hostility = Hostility(seed, recorded_traffic(protocol, seed), bystander=("healthy", 0))
        self.known: dict[Address, Peer] = {}
        """The healthy as the machine under test knows them."""
        self.received: Counter[tuple[Address, bytes]] = Counter()
        self.answers: dict[int, tuple[Address, bytes]] = {}
        self.answered = 0
        self.bytes_in: Counter[Address] = Counter()
        self.bytes_out: Counter[Address] = Counter()
        for peer in self.healthy.values():
            peer.machine.connect(TESTED, self.now_us)
        for number in range(INSIDERS):
            self._let_in(number)
        self.exchange()

    # The honest side.

    def _let_in(self, number: int) -> None:
        turn = self.result.conversations_insider
        self.result.conversations_insider += 1
        address = ("insider", number)
        peer = Honest(self.protocol, self.forms[turn % len(self.forms)], address, self.seed * 1_000 + turn)
        peer.insider = Insider(address)
        peer.machine.connect(TESTED, self.now_us)
        self.honest[address] = peer
        self.hostility.insiders = [one.insider for one in self.honest.values() if one.insider is not None]

    def exchange(self) -> None:
        """Carry datagrams between the honest and the machine until nobody has more to say."""
        for _ in range(ROUNDS_MAX):
            busy = [self._carry(peer) for peer in self.honest.values()]
            if not self.drain() and not any(busy):
                return
            self.now_us += 100

    def _carry(self, peer: Honest) -> bool:
        deadline_us = peer.machine.next_deadline_us()
        if deadline_us is not None and deadline_us <= self.now_us:
            peer.machine.wake(self.now_us)
        events = peer.machine.events()
        for event in events:
            peer.take(event, self.now_us)
        transmits = peer.machine.transmits()
        for transmit in transmits:
            if peer.insider is not None:
                peer.insider.recorded = [*peer.insider.recorded, *cut(transmit.data, transmit.segment_bytes)][
                    -RECORDED_MAX:
                ]
            self.machine.receive(transmit.data, peer.address, self.now_us, transmit.segment_bytes)
        return bool(events or transmits)

    def drain(self) -> bool:
        """Wake the machine if it is time and take out of it what it wants to send and report."""
        deadline_us = self.machine.next_deadline_us()
        if deadline_us is not None and deadline_us <= self.now_us:
            self.machine.wake(self.now_us)
        transmits = self.machine.transmits()
        for transmit in transmits:
            peer = self.honest.get(transmit.address)
            if peer is not None:
                peer.machine.receive(transmit.data, TESTED, self.now_us, transmit.segment_bytes)
            else:
                self.bytes_out[transmit.address] += len(transmit.data)
        events = self.machine.events()
        for event in events:
            self._take(event)
        return bool(transmits or events)

    def _take(self, event: Event) -> None:
        match event:
            case MessageReceived() | MessagesReceived():
                self.machine.commit(event.receipt, self.now_us)
                if event.peer.address in self.healthy:
                    self.known[event.peer.address] = event.peer
                    self.received.update((event.peer.address, body) for body in bodies_of(event))
            case RequestReceived():
                self.machine.commit(event.receipt, self.now_us)
            case Delivered():
                self.answered += sum(token in self.answers for token in event.tokens)

    def pulse(self, number: int) -> None:
        """Let the healthy talk both ways and an insider talk, or a new one in."""
        for address, peer in self.healthy.items():
            peer.say(number, self.now_us)
            if address in self.known:
                body = b"answer %d" % number
                self.answers[self.machine.send(self.known[address], body, self.now_us)] = (address, body)
        index = number % INSIDERS
        insider = self.honest["insider", index]
        if insider.closed or number // INSIDERS % INSIDER_PULSES == INSIDER_PULSES - 1:
            self._let_in(index)
        else:
            for message in range(4):
                insider.say(number * 4 + message, self.now_us)
        self.exchange()

    # The hostile side.

    def fire(self, datagrams: int) -> None:
        """Feed at least so many hostile datagrams."""
        draw, receive, bytes_in = self.hostility.draw, self.machine.receive, self.bytes_in
        fed = 0
        while fed < datagrams:
            for _ in range(DRAIN):
                data, address, segment_bytes = draw()
                self.now_us += STEP_US
                bytes_in[address] += len(data)
                try:
                    receive(data, address, self.now_us, segment_bytes)
                except Exception as error:
                    error.add_note(f"the datagram from {address} was {data.hex()}, segment_bytes {segment_bytes}")
                    raise
                fed += 1 if segment_bytes is None else -(-len(data) // segment_bytes)
            self.drain()
        self.result.datagrams += fed

    # The checks.

    def measure(self) -> None:
        """Compare what the machine holds with its ceilings, and what strangers got with what they gave."""
        held = footprint(self.machine)
        self.result.entries_peak = max(self.result.entries_peak, held.entries)
        if held.entries > self.result.entries_ceiling:
            self.result.fail(f"{held.entries} container entries exceed the ceiling {self.result.entries_ceiling}")
        if held.buffered_bytes > BUFFERED_BYTES_MAX:
            self.result.fail(f"{held.buffered_bytes} buffered bytes exceed the ceiling {BUFFERED_BYTES_MAX}")
        for address, sent in self.bytes_out.items():
            if sent > 3 * self.bytes_in[address]:
                self.result.fail(f"{address} got {sent} bytes for {self.bytes_in[address]}")

    def finish(self) -> None:
        """Let the healthy finish undisturbed and check that each message arrived once, both ways."""
        for _ in range(600):
            self.now_us += 100_000
            self.exchange()
            waiting = sum(peer.machine.unfinished() for peer in self.healthy.values())
            if not waiting and self.answered == len(self.answers):
                break
        for peer in self.healthy.values():
            self._check(peer)
        if self.answered != len(self.answers):
            self.result.fail(f"{self.answered} of {len(self.answers)} answers to the healthy were acknowledged")
        self.result.dropped = dict(sorted(self.machine.statistics.dropped.items()))

    def _check(self, peer: Honest) -> None:
        name, fail = peer.address, self.result.fail
        self.result.messages_healthy += peer.sent.total()
        received = Counter({body: count for (address, body), count in self.received.items() if address == name})
        answers = Counter(body for address, body in self.answers.values() if address == name)
        for what, sent, got in (("said", peer.sent, received), ("was answered", answers, peer.received)):
            if got != sent or not sent:
                lost, extra = (sent - got).total(), (got - sent).total()
                fail(f"{name} {what} {sent.total()} times: {lost} did not arrive, {extra} came in excess")
        if peer.outcomes != Counter(Delivered=peer.sent.total()) or peer.closed:
            fail(f"the {peer.sent.total()} messages of {name} ended as {dict(peer.outcomes)}, closed {peer.closed}")


def recorded_traffic(protocol: str, seed: int) -> list[bytes]:
    """Record valid conversations, both directions, from the first call to the close."""
    recorded: list[bytes] = []
    for turn, form in enumerate(FORMS.get(protocol, ({},))):
        caller, called = (
            make_machine(protocol, make_options(protocol, **form), Seeded(seed + 77 * turn + index + 500))
            for index in range(2)
        )
        now_us = 1_000_000
        caller.connect("called", now_us)
        for step in range(100):
            now_us += 5_000
            recorded += _talk(caller, called, "caller", now_us, step)
            recorded += _talk(called, caller, "called", now_us, step)
    return recorded


def _talk(machine: Machine, other: Machine, name: str, now_us: int, step: int) -> list[bytes]:
    machine.wake(now_us)
    for event in machine.events():
        if isinstance(event, MessageReceived | MessagesReceived | RequestReceived):
            machine.commit(event.receipt, now_us)
        if isinstance(event, Connected):
            for size in (1, 20, 20, 20, 900, 5_000):
                machine.send(event.peer, bytes([size & 0xFF]) * size, now_us)
    if step == 80:
        machine.close(None, now_us)
    recorded: list[bytes] = []
    for transmit in machine.transmits():
        recorded += cut(transmit.data, transmit.segment_bytes)
        other.receive(transmit.data, name, now_us, transmit.segment_bytes)
    return recorded


def fuzz(protocol: str, datagrams: int, seed: int = 1, *, progress: bool = False) -> FuzzResult:
    """Feed that many hostile datagrams to one machine and return what came of it."""
    started = time.perf_counter()
    bombardment = Bombardment(protocol, seed)
    result = bombardment.result
    warm_kib = measured = pulse = 0
    try:
        while result.datagrams < datagrams:
            bombardment.fire(min(PULSE, datagrams - result.datagrams))
            bombardment.pulse(pulse)
            pulse += 1
            if result.datagrams - measured >= MEASURE:
                measured = result.datagrams
                bombardment.measure()
                if not warm_kib and measured >= WARM_UP:
                    warm_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
                if progress and measured // MEASURE % 10 == 0:
                    rate = int(measured / (time.perf_counter() - started))
                    print(f"{protocol}: {measured:,} datagrams, {rate:,} a second", file=sys.stderr, flush=True)
        bombardment.measure()
        bombardment.finish()
    except Exception:
        result.fail(traceback.format_exc())
    if warm_kib:
        result.rss_growth_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - warm_kib
        if result.rss_growth_kib > RSS_GROWTH_KIB_MAX:
            result.fail(f"memory grew by {result.rss_growth_kib} KiB after the first {WARM_UP} datagrams")
    result.seconds = time.perf_counter() - started
    return result


def run(datagrams_each: int, seed: int, protocols: Sequence[str] = TARGETS, jobs: int = 1) -> int:
    """Run the protocols side by side, print a table, and return the exit code."""
    from tests.fuzz.secured import fuzz_dtls  # it is made of this module

    with ProcessPoolExecutor(max_workers=jobs) as pool:
        pending = [
            pool.submit(fuzz_dtls, datagrams_each, seed)
            if protocol == DTLS
            else pool.submit(fuzz, protocol, datagrams_each, seed, progress=True)
            for protocol in protocols
        ]
        results = [one.result() for one in pending]
    print(f"{'protocol':10}{'datagrams':>14}{'a second':>12}{'healthy':>10}{'entries':>12}{'ceiling':>12}  result")
    for result in results:
        rate = int(result.datagrams / max(result.seconds, 0.001))
        numbers = f"{result.datagrams:>14,}{rate:>12,}{result.messages_healthy:>10,}{result.entries_peak:>12,}"
        verdict = "failed" if result.failures else "good"
        print(f"{result.protocol:10}{numbers}{result.entries_ceiling:>12,}  {verdict}")
    for result in results:
        for failure in result.failures:
            print(f"\n{result.protocol} {failure}", file=sys.stderr)
        if result.failures:
            print(f"replay: {result.replay(datagrams_each)}", file=sys.stderr)
    return 1 if any(result.failures for result in results) else 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="hostile datagrams for machines")
    parser.add_argument("--datagrams", type=int, default=1_000_000, help="hostile datagrams for each protocol")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--protocol", action="append", choices=TARGETS, help="this one only; may be repeated")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="protocols at the same time")
    chosen = parser.parse_args(arguments)
    return run(chosen.datagrams, chosen.seed, chosen.protocol or TARGETS, chosen.jobs)
