"""The gateway's side: datagrams of many addresses in, plaintexts of named devices out.

An address has no association, a half-open one, one that is up, or one that is up and a half-open one beside it: that of
the same device renewing, or of whoever else sits behind the same address now. Nothing is kept for a hello until it
brings back the cookie that was sent to its address. A handshake that completes replaces what was up; until then the old
association works.

Routing. Application data goes to what is up. A hello is told from another by its random: a known one goes to its
association, a new one to the listener. All other handshake records go to the half-open association if there is one.

Repairs. The calling end repeats its flights; a datagram that was seen before is answered with our last flight and not
shown to OpenSSL, which would ignore it. OpenSSL's own timer serves peers that repeat with new sequence numbers.

Costs. Cookies are checked at once. What needs public-key cryptography is bounded: so many handshakes a second, so many
datagrams at one instant, so that associations that are up keep their rate while a thousand devices come back.
"""

from __future__ import annotations

import logging
from collections import deque

from fairway.core.addresses import format_address, with_device
from fairway.core.events import Address
from fairway.core.machine import Buffer, Transmit
from fairway.dtls.association import Handshake, Rate, Up
from fairway.dtls.engine import (
    INPUT_BYTES_MAX,
    Association,
    GatewayEngine,
    HandshakeFailed,
    Limits,
)
from fairway.dtls.outputs import Outputs, pieces
from fairway.dtls.records import (
    ALERT,
    CLIENT_HELLO,
    CLOSED,
    DATA,
    HANDSHAKE,
    HEADER_BYTES,
    Hello,
    hello,
    is_protected,
)

_log = logging.getLogger("fairway.dtls")


class DtlsGateway(Outputs):
    """All associations of one socket."""

    def __init__(self, engine: GatewayEngine, limits: Limits | None = None) -> None:
        super().__init__(limits)
        self._engine = engine
        limits = self._limits
        self._half_open: dict[Address, Handshake] = {}
        self._half_open_us = 0
        """When the first of them is due, or earlier: to ask all of them in every turn costs more than ten records."""
        self._up: dict[Address, Up] = {}
        self._inner: dict[Address, Up] = {}
        self._instances: dict[tuple[str, bytes], Up] = {}
        """What is up by device and by what the client calls itself, so that it is known again at another address."""
        self._backlog: deque[tuple[bytes, Address]] = deque()
        self._served_us = -1
        self._served = 0
        """Costly datagrams that were served at the instant `_served_us`."""
        self._swept_us: int | None = None
        self._handshakes = Rate(limits.handshakes_per_second, limits.handshakes_burst)
        self._hints = Rate(limits.hints_per_second, limits.hints_per_second)
        self._lines = Rate(limits.lines_per_second, limits.lines_per_second)

    # Outputs.

    def next_deadline_us(self) -> int | None:
        """Return when `wake` is wanted."""
        if self._backlog:
            return self._served_us
        dues = [self._half_open_us] if self._half_open else []
        if self._up:
            dues.append((self._swept_us or 0) + self._limits.sweep_us)
        return min(dues, default=None)

    def associations(self) -> list[Up]:
        """Return what is up, in the order in which it came up."""
        return list(self._up.values())

    def inner_address(self, outer: Address) -> Address | None:
        """Return the address under which the machine knows who is up at a socket's address."""
        up = self._up.get(outer)
        return None if up is None else up.inner

    # Inputs.

    def receive(self, data: Buffer, address: Address, now_us: int, segment_bytes: int | None = None) -> None:
        """Take one datagram, or a super-buffer of them."""
        up = self._up.get(address)
        step = segment_bytes or len(data)
        for piece in pieces(data, step, together=up is not None):
            self._receive_one(piece, step, address, now_us)

    def send(self, transmits: list[Transmit], now_us: int) -> None:
        """Seal what the machine sends to devices; what has no association is dropped and counted."""
        for address, data, segment_bytes in transmits:
            up = self._inner.get(address)
            if up is None:
                self.counters.dropped["no_association"] += 1
            elif self._fits(data, segment_bytes):
                self._seal(up, data, segment_bytes, now_us)

    def wake(self, now_us: int) -> None:
        """Let time pass: serve what waits, ring timers, end what is too old."""
        self._served_us, self._served = now_us, 0
        while self._backlog and self._served < self._limits.per_turn_max:
            datagram, address = self._backlog.popleft()
            self._served += 1
            self._receive_costly(datagram, address, now_us)
        for address, handshake in list(self._half_open.items()):
            if now_us >= handshake.began_us + self._limits.handshake_us:
                self._fail(address, handshake, "handshake_limit", now_us)
            elif handshake.ring_us is not None and now_us >= handshake.ring_us:
                self._ring(address, handshake, now_us)
        self._half_open_us = min((one.due_us(self._limits.handshake_us) for one in self._half_open.values()), default=0)
        if self._up and now_us >= (self._swept_us or 0) + self._limits.sweep_us:
            self.sweep(now_us)

    def sweep(self, now_us: int) -> None:
        """End associations that were idle for too long, and those of devices that are no longer accepted."""
        self._swept_us = now_us
        for up in list(self._up.values()):
            reason = self._engine.refusal(up.peer)
            if now_us - up.since_us > self._limits.overlap_us:
                up.forget_previous()
            if reason:
                _log.warning(
                    "%s at %s is %s: its association is closed", up.peer.name, format_address(up.outer), reason
                )
                self.counters.dropped[f"association_{reason}"] += 1
                self._end(up, notify=True)
            elif now_us - up.heard_us > self._limits.idle_us:
                self.counters.dropped["association_idle"] += 1
                self._end(up, notify=True)

    def replace_engine(self, engine: GatewayEngine, now_us: int) -> None:
        """Use other keys, CAs or lists from now on. What is up stays up, unless it is revoked now."""
        self._engine = engine
        for address, handshake in list(self._half_open.items()):
            self._fail(address, handshake, "reloaded", now_us)
        self.sweep(now_us)

    def close(self) -> None:
        """Send a close_notify to all, so that devices renew at once."""
        for up in list(self._up.values()):
            self._end(up, notify=True)
        self._half_open.clear()
        self._backlog.clear()
        self.counters.half_open = 0

    # Application data.

    def _lost(self, up: Up, now_us: int) -> None:
        self._end(up, notify=False)

    def _end(self, up: Up, *, notify: bool) -> None:
        up.forget_previous()
        self._transmit(up.outer, up.association.close(notify=notify))
        if self._up.get(up.outer) is up:
            del self._up[up.outer]
        if self._inner.get(up.inner) is up:
            del self._inner[up.inner]
        self._forget_instance(up)
        self.counters.associations = len(self._up)

    def _forget_instance(self, up: Up) -> None:
        """Know the client no longer by what it calls itself."""
        key = up.peer.name, up.association.instance
        if self._instances.get(key) is up:
            del self._instances[key]

    # Everything else.

    def _receive_one(self, datagram: bytes, step: int, address: Address, now_us: int) -> None:
        up = self._up.get(address)
        if up is not None and datagram and datagram[0] == DATA and step <= INPUT_BYTES_MAX:
            count = -(-len(datagram) // step)
            missing = count - self._opened(up, datagram, step, now_us)
            if missing > 0:
                self.counters.dropped["record_not_accepted"] += missing
            return
        if not self._is_record(datagram):
            return
        half_open = self._half_open.get(address)
        found = hello(datagram)
        if found is not None and not self._engine.knows(found.cookie, address, now_us):
            self._listen(datagram, found, address, now_us)
        elif found is None and half_open is None and up is None:
            self._unknown(datagram, address, now_us)
        elif found is None and half_open is None and up is not None and not up.has_seen(datagram):
            self._late(up, datagram, now_us)
        else:
            self._queue(datagram, address, now_us)

    def _queue(self, datagram: bytes, address: Address, now_us: int) -> None:
        """Serve a datagram that may cost a millisecond now, or after what else has arrived."""
        if now_us != self._served_us:
            self._served_us, self._served = now_us, 0
        if self._served < self._limits.per_turn_max and not self._backlog:
            self._served += 1
            self._receive_costly(datagram, address, now_us)
        elif len(self._backlog) < self._limits.backlog_max:
            self._backlog.append((datagram, address))
        else:
            self.counters.dropped["backlog_full"] += 1

    def _receive_costly(self, datagram: bytes, address: Address, now_us: int) -> None:
        up, half_open = self._up.get(address), self._half_open.get(address)
        found = hello(datagram)
        handshake = half_open or (up.handshake if up is not None else None)
        if handshake is not None and handshake.has_seen(datagram):
            self._repeat(address, handshake)
        elif found is not None and (half_open is None or half_open.random != found.random):
            if up is None or up.random != found.random:
                self._listen(datagram, found, address, now_us)
        elif half_open is not None:
            if up is not None and datagram[0] == ALERT and is_protected(datagram) and self._closes(up, datagram):
                return
            self._step(address, half_open, datagram, datagram, now_us)

    def _closes(self, up: Up, datagram: bytes) -> bool:
        """Return whether an alert belonged to what is up, and ended it."""
        self._opened(up, datagram, len(datagram), up.heard_us)
        return self._up.get(up.outer) is not up

    def _late(self, up: Up, datagram: bytes, now_us: int) -> None:
        """Show OpenSSL a handshake record or alert after the handshake: it may close, or want its last flight again."""
        self._opened(up, datagram, len(datagram), now_us)
        self._transmit(up.outer, up.association.flight())

    def _unknown(self, datagram: bytes, address: Address, now_us: int) -> None:
        """Drop what belongs to no association; a hint, never larger than the question, says so."""
        self.counters.dropped["unknown_association"] += 1
        if len(datagram) < HEADER_BYTES + 16:
            return
        # A piece of a hello is not: its first piece has just been answered with a cookie.
        begun = datagram[0] == HANDSHAKE and datagram[HEADER_BYTES] != CLIENT_HELLO
        if (begun or (datagram[0] == DATA and is_protected(datagram))) and self._hints.allows(now_us):
            self.counters.hints += 1
            self._transmits.append(Transmit(address, CLOSED))

    def _listen(self, datagram: bytes, found: Hello, address: Address, now_us: int) -> None:
        if found.cookie:
            reason = self._no_room(address)
            if reason:
                self.counters.dropped[reason] += 1
                return
        try:
            answer, association = self._engine.listen(datagram, address, now_us)
        except HandshakeFailed as failure:
            self.counters.dropped[f"hello_{failure.reason}"] += 1
            return
        if association is not None:
            # Only now is the cookie known to be valid: hellos from spoofed addresses must not use up the rate.
            if self._handshakes.allows(now_us):
                self._begin(datagram, found.random, association, address, now_us)
            else:
                self.counters.dropped["handshake_rate"] += 1
                association.close(notify=False)
        elif sum(map(len, answer)) <= len(datagram):
            self.counters.hellos += 1
            self._transmit(address, answer)

    def _no_room(self, address: Address) -> str:
        if len(self._half_open) >= self._limits.half_open_max and address not in self._half_open:
            return "half_open_full"
        if len(self._up) + len(self._half_open) >= self._limits.up_max and address not in self._up:
            return "associations_full"
        return ""

    def _begin(self, datagram: bytes, random: bytes, association: Association, address: Address, now_us: int) -> None:
        before = self._half_open.pop(address, None)
        if before is not None:
            # The peer began anew.
            before.association.close(notify=False)
            self.counters.failed["begun_anew"] += 1
        handshake = Handshake(association, random, now_us)
        self._half_open[address] = handshake
        self._step(address, handshake, datagram, None, now_us)

    def _step(self, address: Address, handshake: Handshake, taken: bytes, feed: bytes | None, now_us: int) -> None:
        """Advance a handshake; `feed` is None for the hello that the listener has already read."""
        handshake.take(taken, self._limits.seen_max)
        if handshake.taken_bytes > self._limits.handshake_bytes_max:
            self._fail(address, handshake, "handshake_bytes", now_us)
            return
        association = handshake.association
        try:
            association.advance(feed)
        except HandshakeFailed as failure:
            self._transmit(address, association.flight())
            self._fail(address, handshake, failure.reason, now_us)
            return
        self._send_flight(address, handshake, now_us)
        if association.established:
            self._establish(address, handshake, now_us)

    def _send_flight(self, address: Address, handshake: Handshake, now_us: int) -> None:
        flight = handshake.association.flight()
        if flight:
            handshake.flight = flight
            self._transmit(address, flight)
        wait_us = handshake.association.timeout_us()
        handshake.ring_us = None if wait_us is None else now_us + max(wait_us, 1_000)
        due_us = handshake.due_us(self._limits.handshake_us)
        self._half_open_us = due_us if len(self._half_open) == 1 else min(due_us, self._half_open_us)
        self.counters.half_open = len(self._half_open)

    def _establish(self, address: Address, handshake: Handshake, now_us: int) -> None:
        association = handshake.association
        peer = association.peer()
        if peer is None:
            self._transmit(address, association.close(notify=True))
            self._fail(address, handshake, "not_accepted", now_us)
            return
        del self._half_open[address]
        before = self._up.get(address)
        known = self._instances.get((peer.name, association.instance)) if association.instance else None
        inner = with_device(address, peer.name) if known is None else known.inner
        up = Up(association, peer, address, inner, now_us, now_us, handshake, handshake.random)
        if known is not None and known is not before:
            # The same client at another address. To the machine it is where it was.
            self.counters.moved += 1
            self._end(known, notify=False)
        if before is not None:
            if before.inner == inner:
                self.counters.renewals += 1
                before.forget_previous()
                self._forget_instance(before)
                up.previous = before.association
            else:
                self._end(before, notify=False)
        elif self._swept_us is None:
            self._swept_us = now_us
        claimed = self._inner.get(inner)
        if claimed is not None and claimed is not before:
            # Another client of the device had this address and moved on: it has to begin anew where it is now.
            self._end(claimed, notify=True)
        self._up[address] = self._inner[inner] = up
        if association.instance:
            self._instances[peer.name, association.instance] = up
        self.counters.handshakes += 1
        self.counters.associations, self.counters.half_open = len(self._up), len(self._half_open)
        # What came with the peer's last flight would otherwise lie in front of its next datagram.
        self._opened(up, b"", 1, now_us)

    def _repeat(self, address: Address, handshake: Handshake) -> None:
        if handshake.resends < self._limits.resends_max:
            handshake.resends += 1
            self.counters.resent_flights += 1
            self._transmit(address, handshake.flight)

    def _ring(self, address: Address, handshake: Handshake, now_us: int) -> None:
        try:
            handshake.association.ring()
        except HandshakeFailed as failure:
            self._fail(address, handshake, failure.reason, now_us)
            return
        self._send_flight(address, handshake, now_us)

    def _fail(self, address: Address, handshake: Handshake, reason: str, now_us: int) -> None:
        handshake.association.close(notify=False)
        if self._half_open.get(address) is handshake:
            del self._half_open[address]
        self.counters.failed[reason] += 1
        self.counters.half_open = len(self._half_open)
        if self._lines.allows(now_us):
            _log.warning("the DTLS handshake with %s failed: %s", format_address(address), reason)
