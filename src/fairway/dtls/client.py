"""The client's side: one gateway, one association, and another one beside it while it is renewed.

A handshake begins with the first datagram to send. The last flight is repeated unchanged every quarter of a second,
which the gateway answers with its own; an attempt that comes to nothing is followed by another, later each time.

An association is renewed, and the old one used meanwhile, when it is a day old or has carried 2^24 records; when the
gateway closed it; and when something was sent and nothing valid heard for two seconds: a gateway that was restarted, or
one that sees us at another address now, drops our records in silence. A gateway's unprotected close_notify is a hint at
the same, and no more than that, because anybody can write one.
"""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import dataclass, field

from fairway.core.addresses import format_address, with_device
from fairway.core.events import Address
from fairway.core.machine import Buffer, Transmit
from fairway.core.random_source import RandomSource
from fairway.dtls.association import Up
from fairway.dtls.engine import (
    INPUT_BYTES_MAX,
    Association,
    ClientEngine,
    HandshakeFailed,
    Limits,
    PeerIdentity,
)
from fairway.dtls.outputs import Outputs, pieces
from fairway.dtls.records import (
    ALERT,
    DATA,
    HEADER_BYTES,
    hello,
    is_protected,
    is_unprotected_close,
    is_verify_request,
    split,
)

JITTER = 1_024
RESPONSES = 3
"""Silence means nothing before so many times the response time."""

_log = logging.getLogger("fairway.dtls")


@dataclass(slots=True, eq=False)
class Attempt:
    """A handshake under way."""

    association: Association
    began_us: int
    ends_us: int
    cookie: bytes = b""
    """What the gateway's first HelloVerifyRequest said."""
    flight: list[bytes] = field(default_factory=list)
    repeats: int = 0
    repeat_us: int | None = None


class DtlsClient(Outputs):
    """A client's association with the gateway at one address."""

    def __init__(
        self, engine: ClientEngine, remote: Address, random: RandomSource, limits: Limits | None = None
    ) -> None:
        super().__init__(limits)
        self.remote = remote
        self.inner = with_device(remote, engine.name)
        """The address under which the machine knows the gateway."""
        self.peer: PeerIdentity | None = None
        self._engine = engine
        self._instance = random.bits(64).to_bytes(8, "big").hex().encode()
        """By this the gateway knows us again when our address has changed."""
        self._random = random
        self._jitter = random.below(JITTER)
        """Drawn once: to draw for every datagram that awaits an answer costs as much as to encrypt it."""
        self._up: Up | None = None
        self._attempt: Attempt | None = None
        self._queue: deque[Transmit] = deque()
        self._attempts = 0
        """Attempts since the last handshake that was completed."""
        self._failures = 0
        self._begin_us: int | None = None
        """When the next attempt begins."""
        self._renew_us = 0
        self._records = 0
        self._sent_us = 0
        """When the first datagram left that is not answered yet."""
        self._unanswered_us: int | None = None
        """When silence since then becomes a reason to shake hands."""
        self._liveness_us = self._limits.liveness_us
        self._response_us = 0
        """How long answers take: the slowest of late."""
        self._last: Transmit | None = None
        """What was sent last and nothing heard since: it leaves again with the next association, if in doubt."""
        self._in_doubt = False
        """Whether the gateway may have lost the association."""
        self._hinted_us: int | None = None
        self._closed = False
        self._failed: list[str] = []

    # Outputs.

    def failures(self) -> list[str]:
        """Return, once, why the first handshakes failed, from the second on: one failure may be anybody's forgery.

        Nothing of ours has left until then. Once a handshake was completed, a failure is no answer to what did."""
        failed, self._failed = self._failed, []
        return failed

    def next_deadline_us(self) -> int | None:
        """Return when `wake` is wanted."""
        if self._closed:
            return None
        dues: list[int] = []
        if self._attempt is not None:
            dues.append(self._attempt.ends_us)
            if self._attempt.repeat_us is not None:
                dues.append(self._attempt.repeat_us)
        elif self._begin_us is not None:
            dues.append(self._begin_us)
        elif self._up is not None:
            dues.append(self._renew_us)
            if self._unanswered_us is not None:
                dues.append(self._unanswered_us)
        return min(dues, default=None)

    @property
    def is_up(self) -> bool:
        """Whether datagrams leave at once."""
        return self._up is not None

    # Inputs.

    def send(self, transmits: list[Transmit], now_us: int) -> None:
        """Seal what the machine sends; before the handshake is done a few datagrams wait for it."""
        for transmit in transmits:
            if not self._fits(transmit.data, transmit.segment_bytes):
                continue
            if self._up is not None:
                self._send(self._up, transmit, now_us)
            else:
                self._wait(transmit, now_us)

    def _wait(self, transmit: Transmit, now_us: int) -> None:
        kept = transmit._replace(data=bytes(transmit.data))
        if len(self._queue) >= self._limits.queued_max:
            self.counters.dropped["queue_full"] += 1
        elif kept not in self._queue:
            self._queue.append(kept)
        attempt = self._attempt
        if attempt is None and self._begin_us is None and not self._closed:
            self._begin(now_us)
        self._probe(now_us)

    def _probe(self, now_us: int) -> None:
        """Repeat the flight again: somebody is waiting, and a gateway that was away is to be found soon."""
        attempt = self._attempt
        if attempt is not None and attempt.repeat_us is None:
            attempt.repeat_us = now_us + self._limits.probe_us

    def _send(self, up: Up, transmit: Transmit, now_us: int) -> None:
        count = self._seal(up, transmit.data, transmit.segment_bytes, now_us)
        if not count:
            return
        self._records += count
        if count == 1:
            self._last = transmit
        self._probe(now_us)
        if self._unanswered_us is None:
            jitter_us = self._liveness_us * self._jitter // (2 * JITTER)
            self._sent_us, self._unanswered_us = now_us, now_us + self._liveness_us + jitter_us
        if self._records >= self._limits.renew_records:
            self._renew_us = now_us

    def receive(self, data: Buffer, address: Address, now_us: int, segment_bytes: int | None = None) -> None:
        """Take one datagram, or a super-buffer of them."""
        if address != self.remote:
            self.counters.dropped["stranger"] += 1
            return
        up = self._up
        if up is not None and up.previous is not None and now_us - up.since_us > self._limits.overlap_us:
            up.forget_previous()
        step = segment_bytes or len(data)
        for piece in pieces(data, step, together=up is not None):
            self._receive_one(piece, step, now_us)

    def _receive_one(self, datagram: bytes, step: int, now_us: int) -> None:
        up = self._up
        if up is not None and datagram and datagram[0] == DATA and step <= INPUT_BYTES_MAX:
            self._open(up, datagram, step, now_us)
        elif not self._is_record(datagram):
            return
        elif is_unprotected_close(datagram):
            self._hint(now_us)
        elif up is not None and datagram[0] == ALERT and is_protected(datagram):
            self._open(up, datagram, len(datagram), now_us)
        elif self._attempt is not None:
            if not self._restarted(self._attempt, datagram, now_us):
                self._step(self._attempt, datagram, now_us)
        elif datagram[0] == DATA or (datagram[0] == ALERT and is_protected(datagram)):
            self.counters.dropped["record_not_accepted"] += 1
        else:
            self.counters.dropped["late_handshake"] += 1

    def wake(self, now_us: int) -> None:
        """Let time pass: repeat a flight, begin anew, renew."""
        attempt = self._attempt
        if self._closed:
            return
        if attempt is not None:
            if now_us >= attempt.ends_us:
                self._give_up(attempt, "no_answer")
                self._begin(now_us)
            elif attempt.repeat_us is not None and now_us >= attempt.repeat_us:
                self._repeat(attempt, now_us)
        elif self._begin_us is not None:
            if now_us >= self._begin_us:
                self._begin(now_us)
        elif self._up is not None:
            silent = self._unanswered_us is not None and now_us >= self._unanswered_us
            if silent:
                self._liveness_us = min(2 * self._liveness_us, self._limits.liveness_us_max)
                self._unanswered_us, self._in_doubt = None, True
            if silent or now_us >= self._renew_us:
                self._begin(now_us)

    def replace_engine(self, engine: ClientEngine) -> None:
        """Use other keys or CAs from the next handshake on."""
        self._engine = engine

    def close(self) -> None:
        """Send a close_notify and forget everything."""
        self._closed = True
        if self._attempt is not None:
            self._give_up(self._attempt, "closed")
        if self._up is not None:
            self._up.forget_previous()
            self._transmit(self.remote, self._up.association.close(notify=True))
            self._up = None
        self._queue.clear()
        self.counters.associations = 0

    # The handshake.

    def _begin(self, now_us: int) -> None:
        limits = self._limits
        limit_us = limits.attempts_us[min(self._attempts, len(limits.attempts_us) - 1)]
        self._attempts += 1
        self._begin_us = None
        self._attempt = attempt = Attempt(self._engine.call(self._instance), now_us, now_us + self._jittered(limit_us))
        self.counters.half_open = 1
        self._step(attempt, None, now_us)

    def _jittered(self, duration_us: int) -> int:
        """Return the duration, or up to a quarter less or more: a thousand devices must not come at once."""
        return duration_us * 3 // 4 + self._random.below(duration_us // 2 or 1)

    def _step(self, attempt: Attempt, datagram: bytes | None, now_us: int) -> None:
        association = attempt.association
        try:
            association.advance(datagram)
        except HandshakeFailed as failure:
            self._transmit(self.remote, association.flight())
            self._fail(attempt, failure.reason, now_us)
            return
        flight = association.flight()
        found = hello(flight[0]) if flight and attempt.cookie else None
        if found is not None and not found.cookie:
            # OpenSSL's timer had expired, so it wrote the hello without a cookie again, which would be answered again.
            flight[0] = b"".join(split(flight[0])[1:])
        if flight:
            attempt.flight, attempt.repeats = flight, 0
            attempt.repeat_us = now_us + self._limits.repeat_us
            self._transmit(self.remote, flight)
        if association.established:
            self._establish(attempt, now_us)

    def _restarted(self, attempt: Attempt, datagram: bytes, now_us: int) -> bool:
        """Begin anew if the gateway asks for another cookie: it was restarted, and OpenSSL takes no second one."""
        if not is_verify_request(datagram):
            return False
        said = datagram[HEADER_BYTES:]
        if not attempt.cookie:
            attempt.cookie = said
            return False
        return said != attempt.cookie and self._began_anew(attempt, now_us)

    def _began_anew(self, attempt: Attempt, now_us: int) -> bool:
        """Begin anew with a gateway that was restarted, unless the attempt is so young that it may be a forgery."""
        if now_us < attempt.began_us + self._limits.retry_us:
            return False
        self._give_up(attempt, "gateway_restarted")
        self._begin(now_us)
        return True

    def _establish(self, attempt: Attempt, now_us: int) -> None:
        association = attempt.association
        peer = association.peer()
        if peer is None:
            self._transmit(self.remote, association.close(notify=True))
            self._fail(attempt, "not_accepted", now_us)
            return
        before, up = self._up, Up(association, peer, self.remote, self.inner, now_us, now_us)
        if before is not None:
            before.forget_previous()
            up.previous = before.association
        self.counters.renewals += self.counters.handshakes > 0
        self.counters.handshakes += 1
        self.counters.associations, self.counters.half_open = 1, 0
        self.peer, self._up, self._attempt = peer, up, None
        self._attempts = self._failures = self._records = 0
        # At the latest after `renew_us`: by then a certificate that was replaced must be in use.
        self._renew_us = now_us + self._limits.renew_us - self._random.below(self._limits.renew_us // 4 or 1)
        self._unanswered_us = None
        if self._in_doubt and self._last is not None:
            # The machine may be long from its next retransmission, and the gateway gone again by then.
            self._queue.appendleft(self._last)
        self._in_doubt = False
        while self._queue:
            self._send(up, self._queue.popleft(), now_us)
        self._opened(up, b"", 1, now_us)

    def _repeat(self, attempt: Attempt, now_us: int) -> None:
        attempt.repeats += 1
        self.counters.resent_flights += 1
        self._transmit(self.remote, attempt.flight)
        more = attempt.repeats < self._limits.repeats_max
        if not more and attempt.cookie:
            # The gateway has answered before, and does no longer: the handshake is lost.
            attempt.ends_us = min(attempt.ends_us, now_us + self._limits.attempts_us[0])
        attempt.repeat_us = now_us + self._limits.repeat_us if more else None

    def _fail(self, attempt: Attempt, reason: str, now_us: int) -> None:
        self._give_up(attempt, reason)
        self._failures += 1
        _log.info("the handshake with %s failed: %s", format_address(self.remote), reason)
        if self._failures > 1 and not self.counters.handshakes:
            self._failed.append(reason)
        limits = self._limits
        later_us = limits.attempts_us[min(self._failures - 1, len(limits.attempts_us) - 1)]
        self._begin_us = now_us + self._jittered(limits.retry_us if self._failures == 1 else later_us)

    def _give_up(self, attempt: Attempt, reason: str) -> None:
        attempt.association.close(notify=False)
        self._attempt = None
        self.counters.failed[reason] += 1
        self.counters.half_open = 0

    # Records.

    def _open(self, up: Up, data: bytes, step: int, now_us: int) -> None:
        """Open records with the association that is up, or keep one for that which is about to be."""
        missing = -(-len(data) // step) - self._opened(up, data, step, now_us)
        if missing <= 0 or self._up is not up:
            return
        if self._attempt is None or len(data) > step:
            self.counters.dropped["record_not_accepted"] += missing
        elif self._is_record(data):
            self._step(self._attempt, data, now_us)

    def _opened(self, up: Up, data: bytes, step: int, now_us: int) -> int:
        count = super()._opened(up, data, step, now_us)
        if count:
            self._records += count
            if self._unanswered_us is not None:
                self._response_us = max(now_us - self._sent_us, self._response_us * 7 // 8)
                self._unanswered_us = None
            self._last = None
            self._liveness_us = max(self._limits.liveness_us, RESPONSES * self._response_us)
        return count

    def _lost(self, up: Up, now_us: int) -> None:
        """The gateway closed the association: devices come back one after another."""
        up.forget_previous()
        up.association.close(notify=False)
        self._up = None
        self.counters.associations = 0
        self._unanswered_us, self._in_doubt = None, True
        if self._attempt is None and self._begin_us is None:
            self._begin_us = now_us + self._random.below(self._limits.retry_us)

    def _hint(self, now_us: int) -> None:
        """The gateway seems not to know our association, or the handshake that it had answered before."""
        if self._attempt is not None and self._attempt.cookie and self._began_anew(self._attempt, now_us):
            return
        recent = self._hinted_us is not None and now_us < self._hinted_us + self._limits.hint_us
        if self._up is None or self._attempt is not None or self._begin_us is not None or recent:
            self.counters.dropped["hint_ignored"] += 1
            return
        self._hinted_us, self._in_doubt = now_us, True
        self.counters.hints += 1
        self._begin(now_us)
