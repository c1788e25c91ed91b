"""A hostile peer: it sees every datagram, and replays, mutates and forges from addresses that are not its own.

None of the four protocols signs anything, so who can both read a conversation and forge its sender's address can
speak for it; that is not defended and not done here. With a node's address as the source it only repeats, byte for
byte and within a few seconds, what that node said. Everything else comes from addresses of its own: callers, who hear
the answers and learn from them, and victims, who hear nothing and must not be flooded.
"""

from __future__ import annotations

from collections import deque
from struct import pack
from zlib import crc32

from fairway.core.events import Address
from fairway.core.random_source import Seeded
from fairway.sim.network import AmplificationLedger, Network, Sighting
from fairway.sim.schedule import Schedule

SEEN_MAX = 256
REPLAY_WITHIN_US = 4_000_000
"""pydevts remembers a key for 40 s and a sender repeats for 30 s: older duplicates are beyond its promise."""
CALLERS = 3
HEX = b"0123456789abcdef"


class Hostile:
    """One hostile station with many addresses."""

    def __init__(self, network: Network, schedule: Schedule, protocol: str, index: int, random: Seeded) -> None:
        self.index = index
        self.address: Address = ("10.66.0.1", 666)
        self.up = True
        self.ledger = AmplificationLedger(provable=False, watched=False)
        self.sent = 0
        self._network = network
        self._schedule = schedule
        self._protocol = protocol
        self._random = random
        self._seen: deque[Sighting] = deque(maxlen=SEEN_MAX)
        self._heard: deque[tuple[Address, Address, bytes]] = deque(maxlen=SEEN_MAX)
        self._callers: list[Address] = [("10.66.0.1", 666 + number) for number in range(CALLERS)]
        self._targets: list[Address] = []
        self._left = 0
        self._interval_us = 1
        for address in self._callers:
            network.join(self, address)

    def begin(self, targets: list[Address], actions: int, interval_us: int) -> None:
        """Start doing harm to these addresses, as often as told."""
        self._targets = targets
        self._left = actions
        self._interval_us = interval_us
        self._network.taps.append(self._seen.append)
        self._schedule.at(self._random.below(interval_us + 1), self._act, None)

    def stop(self) -> None:
        self._left = 0
        self._network.taps.clear()

    def arrive(self, data: bytes, source: Address, segment_bytes: int | None) -> None:
        """Hear an answer, and keep it to say something that fits."""
        size = segment_bytes or max(len(data), 1)
        for start in range(0, len(data), size):
            self._heard.append((self._random.choose(self._callers), source, data[start : start + size]))

    def _act(self, _: None) -> None:
        if self._left <= 0:
            return
        self._left -= 1
        self._random.choose((self._replay, self._replay, self._mutate, self._mutate, self._forge, self._echo))()
        self._schedule.at(self._schedule.now_us + self._random.below(2 * self._interval_us + 1), self._act, None)

    def _say(self, source: Address, destination: Address, data: bytes) -> None:
        self.sent += 1
        self._network.carry(self, source, destination, data)

    def _own_address(self) -> Address:
        """Choose a caller, or one of many victims."""
        if self._random.happens(400_000):
            return self._random.choose(self._callers)
        return (f"10.99.{self._random.below(4)}.{self._random.below(64)}", 7_000 + self._random.below(4))

    def _replay(self) -> None:
        """Repeat what a node said, to the one it was said to: from its address, or from another."""
        if not self._seen:
            return
        sighting = self._random.choose(self._seen)
        fresh = self._schedule.now_us - sighting.time_us <= REPLAY_WITHIN_US
        if fresh and self._network.owners.get(sighting.source, self.index) < self.index:
            source = sighting.source if self._random.happens(700_000) else self._own_address()
        else:
            source = self._own_address()
        for _ in range(self._random.between(1, 4)):
            self._say(source, sighting.destination, sighting.data)

    def _mutate(self) -> None:
        """Send something that differs a little from what was sent, from an address of its own."""
        if self._seen:
            sighting = self._random.choose(self._seen)
            destination = sighting.destination if self._random.happens(700_000) else sighting.source
            self._say(self._own_address(), destination, self._mutated(sighting.data))

    def _echo(self) -> None:
        """Answer a node with a variation of what the node told it: so it learns session numbers and uses them."""
        if not self._heard:
            self._forge()
            return
        caller, source, data = self._random.choose(self._heard)
        self._say(caller, source, self._mutated(data))

    def _mutated(self, data: bytes) -> bytes:
        random = self._random
        changed = bytearray(data)
        for _ in range(random.between(1, 3)):
            manner = random.below(5)
            if manner == 0 and changed:
                changed[random.below(len(changed))] ^= 1 << random.below(8)
            elif manner == 1 and changed:
                changed[random.below(len(changed))] = random.choose((0, 1, 2, 0x7F, 0x80, 0xFE, 0xFF))
            elif manner == 2:
                del changed[random.below(len(changed) + 1) :]
            elif manner == 3:
                changed += random.bits(64).to_bytes(8, "big")
            elif self._seen:
                other = random.choose(self._seen).data
                cut = random.below(min(len(other), len(changed)) + 1)
                changed[:cut] = other[:cut]
        return bytes(changed)

    def _forge(self) -> None:
        """Invent packets of the protocol, or noise; sometimes a flood of them from as many victims."""
        destination = self._random.choose(self._targets)
        for _ in range(self._random.choose((1, 1, 1, 4, 40))):
            self._say(self._own_address(), destination, self._forged())

    def _forged(self) -> bytes:
        random = self._random
        if random.happens(150_000):
            return random.bits(8 * 40).to_bytes(40, "big")[: random.below(41)]
        body = random.bits(64).to_bytes(8, "big")[: random.below(9)]
        if self._protocol == "udpc":
            flag = random.choose((0x08, 0x08, 0x08, 0x09, 0x00, 0x10, 0x02, 0x11, 0x20, 0x40, 0x41))
            return pack(">IIIB", random.bits(31), random.bits(32), random.bits(32), flag) + (
                body if flag < 0x08 else b""
            )
        if self._protocol == "mrp":
            return b"MRP" + self._forged_mrp(body)
        if self._protocol == "rup":
            return self._forged_rup(body)
        kind = random.choose((0, 0, 0, 1, 3))
        checksum = crc32(body) if kind == 0 and random.happens(700_000) else random.bits(32)
        return pack(">BBHI", kind, random.below(2), random.bits(16), checksum) + (body if kind == 0 else b"")

    def _forged_mrp(self, body: bytes) -> bytes:
        random = self._random
        kind = random.choose((1, 1, 1, 2, 3, 4))
        if kind == 1:
            return bytes((1, random.choose((0, 0, 1, 1, 2, 16)))) + random.bits(
                24 if random.happens(MOST) else 16
            ).to_bytes(3, "big")
        if kind == 2:
            return bytes((2, random.between(1, 2), 0)) + random.bits(48).to_bytes(6, "big")
        return bytes((kind,)) + random.bits(80).to_bytes(10, "big") + (body if kind == 3 else b"")

    def _forged_rup(self, body: bytes) -> bytes:
        random = self._random
        identity = bytes(random.choose(HEX) for _ in range(32))
        if random.happens(700_000):
            start, total = random.choose(((0, len(body)), (0, 1_000), (0, 4_000_000_000), (8, 64), (8, 1 << 20)))
            return bytes((0x64, start == 0)) + identity + _uint(start) + _uint(total) + body
        return bytes((random.choose(b"rc"),)) + identity + b"\0" + _uint(random.below(1 << 20))


MOST = 700_000


def _uint(value: int) -> bytes:
    return bytes((value % 255, value // 255 % 255, value // 65_025 % 255, value // 16_581_375 % 255))
