"""The judge: what must hold in every run, whatever the network, the crashes and a hostile peer do.

Always: nothing is delivered that was not sent to that receiver, byte for byte; nothing twice; in order where the
protocol promises order; an acknowledged message has been delivered (deferred: committed), or, with mrp's stamped
layout, is kept by a receiver that lives; each token has one outcome; no event follows `Closed`; no address gets more
than its share; tables stay within their bounds; deadlines do not stay in the past. After the link has healed:
everything accepted has an outcome, and each application gets a new message through.

What is not promised is not asked for. A process that restarts without its snapshot is a new receiver. A message that
was delivered but not committed comes again after a restart from a snapshot. rup and pydevts know peers by address
alone, so a peer whose address changed may be heard twice. "Unknown" may or may not have arrived.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from fairway.core.events import Address, Peer
from fairway.sim.measures import Measures
from fairway.sim.sent_messages import (
    PING,
    PLAIN,
    RELIABLE,
    REQUEST,
    WITHOUT_OUTCOME,
    Arrivals,
    Scope,
    Sent,
    SentBody,
    Stream,
)

VIOLATIONS_MAX = 20


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule that was broken, and when."""

    time_us: int
    rule: str
    what: str

    def __str__(self) -> str:
        return f"{self.time_us / 1_000_000:.6f} s: {self.rule}: {self.what}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Promises:
    """What a protocol promises under the options of this run."""

    deferred: bool
    ordered: bool
    """Ids give the order of sending; without `deferred` delivery follows it."""
    keeps_acknowledged: bool
    """An acknowledged message may still wait in the receiver for an earlier one (mrp stamped)."""
    by_address: bool
    """Peers are told apart by address alone."""
    all_arrive: bool = False
    """The faults are mild: every reliable message must be acknowledged in the end."""
    sequenced: bool = False
    """udpc only: plain messages never go back in order."""
    ids_by_chance: bool = False
    """pydevts only: a sender that lost its memory may draw an id again, and take an old ack for its own."""


@dataclass(slots=True)
class Process:
    """One life of a node, and the lineage of snapshots that it continues."""

    number: int = 0
    lineage: int = 0


class Judge:
    """Watches every application and machine of a run, and collects what is wrong."""

    def __init__(self, promises: Promises, owners: dict[Address, int], now_us: Callable[[], int]) -> None:
        self.promises = promises
        self.measures = Measures()
        self.violations: list[Violation] = []
        self.outcomes: Counter[str] = Counter()
        self.accepted_total = 0
        self.delivered_total = 0
        self.first_accepted_us = 0
        self.last_outcome_us = 0
        self.foreign = 0
        """Messages of hostile peers: theirs to send, but bounded."""
        self._owners = owners
        self._now_us = now_us
        self._sent_bodies: dict[tuple[int, bytes], SentBody] = {}
        self._tokens: dict[int, dict[int, Sent]] = {}
        self._other_tokens: dict[int, dict[int, str]] = {}
        self._streams: dict[tuple[int, int, Peer], Stream] = {}
        self._all_streams: list[Stream] = []
        self._arrivals: dict[tuple[int, int, Peer], Arrivals] = {}
        self._processes: dict[int, Process] = {}
        self._lineage_of: dict[tuple[int, int], int] = {}
        self._undecided: dict[tuple[int, int, Peer], list[tuple[int | str, SentBody]]] = {}
        self._kept: list[Sent] = []

    def accuse(self, rule: str, what: str) -> None:
        if len(self.violations) < VIOLATIONS_MAX:
            self.violations.append(Violation(self._now_us(), rule, what))

    # The lives of nodes.

    def started(self, node: int, restored: bool) -> None:
        """Note a new process of a node; its tokens are its own, and it continues a lineage only when restored."""
        process = self._processes.get(node)
        if process is None:
            process = self._processes[node] = Process()
        else:
            process.number += 1
            if not restored:
                process.lineage = process.number
        self._lineage_of[node, process.number] = process.lineage
        self._tokens[node] = {}
        self._other_tokens[node] = {}

    def resumed(self, node: int, peer: Peer) -> None:
        """Note that a conversation goes on in the new process."""
        process = self._processes[node].number
        for (owner, number, other), arrivals in list(self._arrivals.items()):
            if owner == node and other == peer and number < process:
                self._arrivals[node, process, peer] = self._remembered(arrivals)
        for (owner, number, other), stream in list(self._streams.items()):
            if owner == node and other == peer and number < process:
                self._streams[node, process, peer] = stream

    def _remembered(self, arrivals: Arrivals) -> Arrivals:
        """Return what a restored process knows: a plain message that was not committed may come again."""
        if not self.promises.sequenced:
            return arrivals
        known = Arrivals(arrivals.stream)
        plain = (sent for sent in arrivals.stream.sends if sent.kind == PLAIN and len(sent.sent_body.sends) == 1)
        known.next_ordinal = 1 + max((sent.ordinal for sent in plain if sent.sent_body.committed_total), default=-1)
        return known

    # Sending.

    def accepted(self, node: int, peer: Peer, token: int, body: bytes, kind: str) -> None:
        if not self.accepted_total:
            self.first_accepted_us = self._now_us()
        self.accepted_total += 1
        process = self._processes[node].number
        stream = self._streams.get((node, process, peer))
        if stream is None:
            stream = Stream(node, process, peer, self._owners.get(peer.address, -1))
            self._streams[node, process, peer] = stream
            self._all_streams.append(stream)
        key = (stream.receiver, body)
        sent_body = self._sent_bodies.get(key)
        if sent_body is None:
            sent_body = self._sent_bodies[key] = SentBody(body)
        sent = Sent(sent_body, kind, stream, token, len(stream.sends), self._now_us())
        self.measures.accepted(node, sent.accepted_us)
        sent_body.sends.append(sent)
        stream.sends.append(sent)
        if kind not in WITHOUT_OUTCOME:
            stream.open_tokens += 1
            self._claim(node, token)
            self._tokens[node][token] = sent

    def asked(self, node: int, token: int, kind: str) -> None:
        self._claim(node, token)
        self._other_tokens[node][token] = kind

    def _claim(self, node: int, token: int) -> None:
        if token in self._tokens[node] or token in self._other_tokens[node]:
            self.accuse("tokens", f"token {token} of node {node} was given twice")

    def answered(self, node: int, token: int, kind: str) -> None:
        """Note the outcome of a `connect` or `ping`."""
        if self._other_tokens[node].pop(token, None) != kind:
            self.accuse("outcomes", f"token {token} of node {node} has a second {kind} outcome, or never was one")

    def settled(self, node: int, token: int, outcome: str) -> Sent | None:
        """Note the outcome of a send: `delivered`, `unknown`, `refused` or `response`."""
        sent = self._tokens[node].pop(token, None)
        if sent is None:
            if outcome == "unknown" and self._other_tokens[node].get(token) == PING:
                self.answered(node, token, PING)
                return None
            self.accuse("outcomes", f"token {token} of node {node} has a second outcome ({outcome}), or never was one")
            return None
        sent.outcome = outcome
        self.last_outcome_us = self._now_us()
        sent.stream.open_tokens -= 1
        self.outcomes[outcome] += 1
        if outcome == "delivered":
            self.measures.acknowledged(sent.accepted_us, self.last_outcome_us)
            self._acknowledged(sent)
        elif outcome == "refused":
            sent.sent_body.refused += 1
            # Of several messages with one body it cannot be told which was refused and which arrived.
            if sent.sent_body.delivered_total and len(sent.sent_body.sends) == 1:
                self.accuse("refused means not delivered", self._name(sent))
        return sent

    def _acknowledged(self, sent: Sent) -> None:
        sent_body = sent.sent_body
        if sent.kind != RELIABLE:
            self.accuse("outcomes", f"{self._name(sent)} is a {sent.kind} and was reported as delivered")
        sent_body.acked += 1
        safe = sent_body.committed_total if self.promises.deferred else sent_body.delivered_total
        if sent_body.acked <= safe or (self.promises.ids_by_chance and self._sent_before(sent)):
            return
        if self.promises.keeps_acknowledged:
            self._kept.append(sent)
        else:
            state = "committed" if self.promises.deferred else "delivered"
            self.accuse("acknowledged means delivered", f"{self._name(sent)} was not {state}")

    def _sent_before(self, sent: Sent) -> bool:
        """Return whether another process of the sender had a message delivered whose ack may be taken for this one's.

        That is one with the same body or, since an ack with crc 0 counts for every body, an empty one.
        """
        mine = sent.stream
        for sent_body in (sent.sent_body, self._sent_bodies.get((mine.receiver, b""))):
            if sent_body is not None and sent_body.delivered_total:
                streams = (other.stream for other in sent_body.sends)
                if any(other.sender == mine.sender and other.process != mine.process for other in streams):
                    return True
        return False

    def _name(self, sent: Sent) -> str:
        stream = sent.stream
        return f"message {sent.ordinal} of node {stream.sender} to node {stream.receiver} (token {sent.token})"

    # Receiving.

    def delivered(self, node: int, peer: Peer, identity: int | str, body: bytes, kind: str) -> bool:
        """Note a message that a machine delivered; return whether it came from a node of the run."""
        sent_body = self._sent_bodies.get((node, body))
        sender = self._owners.get(peer.address)
        if sent_body is None or sender is None or not self._sent_by(sent_body, sender):
            if sender is None or sender not in self._processes:
                self.foreign += 1
                return False
            self.accuse("only what was sent", f"node {node} got {len(body)} bytes (id {identity}) that nobody sent it")
            return False
        self.delivered_total += 1
        sent_body.delivered_total += 1
        if sent_body.delivered_total == 1:
            self.measures.received(sender, sent_body.sends[0].accepted_us, len(body), self._now_us())
        self._count_once(node, peer, identity, sent_body)
        if sent_body.refused and sent_body.delivered_total == 1 and sent_body.refused == len(sent_body.sends):
            self.accuse("refused means not delivered", self._name(sent_body.sends[0]))
        if self.promises.ordered or (self.promises.sequenced and kind == PLAIN):
            self._ordered(node, peer, identity, sent_body)
        return True

    def _sent_by(self, sent_body: SentBody, sender: int) -> bool:
        sends = sent_body.sends
        return sends[0].stream.sender == sender or any(sent.stream.sender == sender for sent in sends)

    def _scope(self, node: int, peer: Peer) -> Scope:
        return self._processes[node].number, peer.address if self.promises.by_address else None

    def _count_once(self, node: int, peer: Peer, identity: int | str, sent_body: SentBody) -> None:
        scope = self._scope(node, peer)
        count = sent_body.delivered[scope] = sent_body.delivered.get(scope, 0) + 1
        for (process, address), committed in sent_body.committed.items() if sent_body.committed else ():
            same_lineage = self._lineage_of[node, process] == self._processes[node].lineage
            if same_lineage and process < scope[0] and address == scope[1]:
                count += committed
        if count > len(sent_body.sends):
            self.accuse("nothing twice", f"node {node} got {self._name(sent_body.sends[0])} (id {identity}) again")

    def _ordered(self, node: int, peer: Peer, identity: int | str, sent_body: SentBody) -> None:
        key = (node, self._processes[node].number, peer)
        arrivals = self._arrivals.get(key)
        if arrivals is None:
            if len(sent_body.sends) > 1:
                # Several were sent with this body: which one this is shows when one arrives that is the only one.
                self._undecided.setdefault(key, []).append((identity, sent_body))
                return
            arrivals = self._arrivals[key] = Arrivals(sent_body.sends[0].stream)
            for earlier_identity, earlier in self._undecided.pop(key, ()):
                if self.promises.ordered and self.promises.deferred:
                    arrivals.offset = int(identity) - sent_body.sends[0].ordinal
                    self._ids_in_order(arrivals, int(earlier_identity), earlier)
        sends = arrivals.stream.sends
        if self.promises.sequenced:
            self._never_back(arrivals, sent_body)
        elif self.promises.deferred:
            self._ids_in_order(arrivals, int(identity), sent_body)
        else:
            expected = sends[arrivals.next_ordinal] if arrivals.next_ordinal < len(sends) else None
            if expected is None or expected.sent_body is not sent_body:
                self.accuse("order", f"node {node} got {self._name(sent_body.sends[0])}, not {arrivals.next_ordinal}")
            arrivals.next_ordinal += 1

    def _never_back(self, arrivals: Arrivals, sent_body: SentBody) -> None:
        newest = max(sent.ordinal for sent in sent_body.sends)
        if newest < arrivals.next_ordinal:
            self.accuse("order", f"{self._name(sent_body.sends[0])} came after {arrivals.next_ordinal - 1}")
        if len(sent_body.sends) == 1:
            arrivals.next_ordinal = newest + 1

    def _ids_in_order(self, arrivals: Arrivals, identity: int, sent_body: SentBody) -> None:
        if arrivals.offset is None:
            arrivals.offset = identity - sent_body.sends[0].ordinal
        ordinal = identity - arrivals.offset
        sends = arrivals.stream.sends
        if not 0 <= ordinal < len(sends) or sends[ordinal].sent_body is not sent_body:
            self.accuse("order", f"id {identity} is not the place of {self._name(sent_body.sends[0])}")

    def committed(self, node: int, peer: Peer, body: bytes, process: int) -> None:
        """Note that a message is safely stored by the receiving application."""
        sent_body = self._sent_bodies.get((node, body))
        if sent_body is None:
            return
        scope = (process, peer.address if self.promises.by_address else None)
        if sent_body.committed is None:
            sent_body.committed = {}
        sent_body.committed[scope] = sent_body.committed.get(scope, 0) + 1
        sent_body.committed_total += 1

    def responded(self, node: int, token: int, body: bytes) -> None:
        """Note the response to a request; a response is its request's body backwards."""
        sent = self.settled(node, token, "response")
        if sent is None:
            return
        if sent.kind != REQUEST:
            self.accuse("outcomes", f"{self._name(sent)} is a {sent.kind} and got a response")
        elif sent.sent_body.body[::-1] != body:
            self.accuse("only what was sent", f"the response to {self._name(sent)} is not the one that was given")

    # Endings.

    def closed(self, node: int, peer: Peer) -> None:
        """Note the end of a conversation: by then each of its tokens has had its outcome."""
        key = (node, self._processes[node].number, peer)
        arrivals = self._arrivals.get(key)
        if arrivals is not None:
            arrivals.stream.closed = True
        stream = self._streams.get(key)
        if stream is None:
            return
        if stream.open_tokens and stream.process == self._processes[node].number:
            self.accuse("outcomes before Closed", f"{stream.open_tokens} tokens of node {node} are open at {peer}")
        stream.closed = True

    def open_tokens(self, node: int) -> int:
        """Count the tokens of a node's present process that have no outcome yet."""
        return len(self._tokens[node]) + len(self._other_tokens[node])

    def open_towards(self, node: int, peer: Peer) -> int:
        """Count the sends of a node to one peer that have no outcome yet."""
        stream = self._streams.get((node, self._processes[node].number, peer))
        return 0 if stream is None else stream.open_tokens

    def finish(self, lives: dict[int, int]) -> None:
        """Judge what can be judged only at the end; `lives` has how often each node was started."""

        def steady(sent: Sent) -> bool:
            """Return whether a message was acknowledged in a conversation that neither side has left."""
            stream = sent.stream
            lived = not stream.closed and lives[stream.receiver] == lives[stream.sender] == 1
            return lived and sent.outcome == "delivered"

        for node, tokens in self._tokens.items():
            for token, sent in tokens.items():
                self.accuse("everything has an outcome", f"{self._name(sent)} has none ({sent.kind} {token})")
            for token, kind in self._other_tokens[node].items():
                self.accuse("everything has an outcome", f"{kind} token {token} of node {node} has none")
        for sent in self._kept:
            # A sender that died cannot fill the gap, nor a receiver that died keep what it had.
            if sent.sent_body.delivered_total < sum(map(steady, sent.sent_body.sends)) and steady(sent):
                self.accuse("acknowledged means kept", f"{self._name(sent)} was never delivered")
        if self.promises.all_arrive:
            self._all_arrived()

    def _all_arrived(self) -> None:
        for stream in self._all_streams:
            for sent in stream.sends:
                if sent.kind == RELIABLE and sent.outcome != "delivered":
                    self.accuse("mild faults lose nothing", f"{self._name(sent)} ended as {sent.outcome}")
