"""Hostile datagrams for the DTLS layer: gateway and client, with OpenSSL inside.

Strangers send random bytes and mutations of a recorded handshake. The insiders' own datagrams are mutated and come from
their addresses, the healthy device's among them: unlike a machine, the layer must not let even that disturb it. The
same datagrams reach the healthy client as if the gateway had sent them. What must hold: no exception, no more
associations than there are devices and bounds, no stranger with more bytes than it sent, and every message of the
healthy device arrives once, in order, and is answered.
"""

from __future__ import annotations

import logging
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

from fairway.core.events import Address
from fairway.dtls import Limits
from tests.dtls.world import GATEWAY, SECOND_US, Faults, Fleet, World
from tests.fuzz.fuzzing import STEP_US, FuzzResult
from tests.fuzz.hostility import Hostility, Insider

PULSE = 512
"""Hostile datagrams between two messages of the healthy device."""
INSIDERS = 4
RECORDED_MAX = 64
HEALTHY: Address = ("healthy", 0)
LIMITS = Limits(half_open_max=32, up_max=64)


class SecuredBombardment:
    """A gateway under fire, with its devices, in virtual time."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.seed = seed
        self.fleet = Fleet(folder)
        self.result = FuzzResult("dtls", seed, entries_ceiling=LIMITS.half_open_max + LIMITS.up_max)
        self.world = World(self.fleet.gateway(LIMITS), seed)
        self.world.add(self.fleet.client("healthy", seed=seed), HEALTHY)
        self.insiders: dict[Address, Insider] = {HEALTHY: Insider(HEALTHY)}
        self.said: list[bytes] = []
        self.bytes_in: Counter[Address] = Counter()
        self.bytes_out: Counter[Address] = Counter()
        self.hostility = Hostility(seed, self._record(), bystander=HEALTHY)
        for number in range(INSIDERS):
            self._let_in(number)
        self.pulse(0)

    def _record(self) -> list[bytes]:
        """Return the datagrams of a handshake and some messages elsewhere, both directions."""
        world = World(self.fleet.gateway(), self.seed, Faults(loss=100_000))
        world.add(self.fleet.client("recorded"), HEALTHY)
        for number in range(20):
            world.say(HEALTHY, bytes([number]) * (1 + 50 * number))
            world.run(SECOND_US // 2)
        return [datagram for _, _, datagram in world.carried]

    def _let_in(self, number: int) -> None:
        """Open an association for an insider, in the place of the one before."""
        turn = self.result.conversations_insider
        self.result.conversations_insider += 1
        address: Address = ("insider", number)
        self.world.add(self.fleet.client(f"insider-{number}", seed=turn), address)
        self.insiders[address] = Insider(address)
        self.hostility.insiders = list(self.insiders.values())

    def pulse(self, number: int) -> None:
        """Let every device talk, and one insider begin anew now and then."""
        world = self.world
        for address in self.insiders:
            body = f"{address} says {number}".encode().ljust(40 + number % 90, b".")
            world.say(address, body)
            if address == HEALTHY:
                self.said.append(body)
        # Handshakes are done in peace: whoever is on the path can spoil each of them.
        world.run(SECOND_US // 5)
        for source, destination, datagram in world.carried:
            if source in self.insiders:
                insider = self.insiders[source]
                insider.recorded = [*insider.recorded, datagram][-RECORDED_MAX:]
            elif destination not in self.insiders:
                self.bytes_out[destination] += len(datagram)
        world.carried.clear()
        if number % 8 == 7:
            self._let_in(number // 8 % INSIDERS)

    def fire(self, datagrams: int) -> None:
        """Feed so many hostile datagrams, and each of them to the healthy client, too."""
        world = self.world
        for _ in range(datagrams):
            data, address, segment_bytes = self.hostility.draw()
            world.now_us += STEP_US
            self.bytes_in[address] += len(data)
            try:
                world.gateway.receive(data, address, world.now_us, segment_bytes)
                world.clients[HEALTHY].receive(data, GATEWAY, world.now_us, segment_bytes)
            except Exception as error:
                error.add_note(f"the datagram from {address} was {data.hex()}, segment_bytes {segment_bytes}")
                raise
            world.settle()
        self.result.datagrams += datagrams

    def check(self) -> None:
        """Compare what there is with what there may be."""
        result, counters = self.result, self.world.gateway.counters
        result.entries_peak = max(result.entries_peak, counters.half_open + counters.associations)
        if counters.half_open > LIMITS.half_open_max or counters.associations > len(self.insiders):
            result.fail(f"{counters.associations} associations and {counters.half_open} that are half-open")
        for address, sent in self.bytes_out.items():
            if sent > self.bytes_in[address]:
                result.fail(f"{address} got {sent} bytes for {self.bytes_in[address]}")
        got = self.world.of(HEALTHY, "healthy")
        if got != self.said:
            result.fail(f"the healthy said {len(self.said)} and {len(got)} came")
        answers = [b"echo " + body for body in self.said]
        if self.world.answers.get(HEALTHY) != answers:
            result.fail(f"of {len(answers)} answers {len(self.world.answers.get(HEALTHY, []))} came")


def fuzz_dtls(datagrams: int, seed: int = 1) -> FuzzResult:
    """Feed that many hostile datagrams to a gateway and a client, and return what came of it."""
    started = time.perf_counter()
    log = logging.getLogger("fairway.dtls")
    level = log.level
    log.setLevel(logging.ERROR)  # thousands of failed handshakes are no news here
    with tempfile.TemporaryDirectory() as folder:
        bombardment = SecuredBombardment(seed, Path(folder))
        result = bombardment.result
        pulse = 1
        try:
            while result.datagrams < datagrams:
                bombardment.fire(min(PULSE, datagrams - result.datagrams))
                bombardment.pulse(pulse)
                pulse += 1
            bombardment.world.run(SECOND_US)
            bombardment.check()
        except Exception:
            result.fail(traceback.format_exc())
    log.setLevel(level)
    result.messages_healthy = len(bombardment.said)
    counters = bombardment.world.gateway.counters
    result.dropped = dict(sorted((counters.dropped + counters.failed).items()))
    result.seconds = time.perf_counter() - started
    return result
