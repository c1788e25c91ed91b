"""Who may speak, how fast, and with how many sessions: checked before a machine sees a datagram.

A *prefix* is an IPv4 address or an IPv6 /64, which is what one subscriber has; an *address* is one host of it. Session
caps count the protocols with sessions (udpc, mrp): the others keep nothing open. What is refused is dropped without an
answer and counted, like anything that a machine refuses, so that a sender repeats it.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from fairway import protocols
from fairway.core.events import Address, Peer
from fairway.core.machine import Buffer
from fairway.gateway.settings import Network, Settings

HOSTS_MAX = 65_536
"""Hosts that are remembered; beyond it those without sessions are forgotten, and judged anew when they come back."""
HALF_OPEN_US = 5_000_000
IPV6_PREFIX_BITS = 64
BURST_S = 0.25
"""How much of a second's datagrams may come at once."""

CALL_BYTES = {"udpc": 13, "mrp": 8}
"""The size of the packet that asks for a session; nothing else is checked."""

Call = tuple[Address, int]


@dataclass(slots=True, eq=False)
class Prefix:
    refilled_us: int
    tokens: float
    sessions: int = 0
    half_open: dict[Call, tuple[int, Host]] = field(default_factory=dict)
    """Calls that have no session yet, with the time of the first and who called, oldest first."""


@dataclass(slots=True, eq=False)
class Host:
    """What is known of one address, whatever its ports."""

    allowed: bool
    prefix: Prefix
    sessions: int = 0
    half_open: int = 0
    calls: dict[Address, list[int]] = field(default_factory=dict)
    """What is half open, by its port, oldest first."""

    def begin(self, call: Call, now_us: int) -> None:
        address, number = call
        self.half_open += 1
        self.calls.setdefault(address, []).append(number)
        self.prefix.half_open[call] = (now_us, self)

    def end(self, call: Call) -> None:
        """Forget a call that has become a session, or was given up."""
        address, number = call
        del self.prefix.half_open[call]
        self.half_open -= 1
        self.calls[address].remove(number)
        if not self.calls[address]:
            del self.calls[address]


class Guard:
    """Judges what arrives at all endpoints of a gateway; caps and rates are over all of them."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.has_lists = bool(settings.allow or settings.deny)
        """Whether some addresses may speak and others not."""
        self._hosts: dict[str, Host] = {}
        self._prefixes: dict[str, Prefix] = {}
        self._sessions: Counter[Address] = Counter()
        self._addresses: dict[Peer, Address] = {}
        self.refused: Counter[tuple[str, str]] = Counter()
        """Datagrams, by protocol and reason."""

    def admits(
        self, protocol: str, data: Buffer, address: Address, now_us: int, segment_bytes: int | None = None
    ) -> bool:
        """Return whether a datagram, or super-buffer of them, may pass."""
        count = 1 if not segment_bytes else -(-len(data) // segment_bytes)
        reason = self._refusal(protocol, data, address, now_us, segment_bytes or len(data), count)
        if reason:
            self.refused[protocol, reason] += count
        return not reason

    def lets_in(
        self, protocol: str, data: Buffer, address: Address, now_us: int, segment_bytes: int | None = None
    ) -> bool:
        """Return whether an address may speak at all, which must be known before it gets an answer of any layer.

        Rates and sessions count what is inside the records, as on a plain port."""
        allowed = self._host(address, now_us).allowed
        if not allowed:
            self.refused[protocol, "denied"] += 1 if not segment_bytes else -(-len(data) // segment_bytes)
        return allowed

    def _refusal(self, protocol: str, data: Buffer, address: Address, now_us: int, size: int, count: int) -> str:
        host = self._host(address, now_us)
        if not host.allowed:
            return "denied"
        if self._settings.datagrams_per_second and not self._within_rate(host.prefix, count, now_us):
            return "rate"
        if protocol in CALL_BYTES:
            for number in self._calls(protocol, data, size):
                reason = self._call_refusal(host, (address, number), now_us)
                if reason:
                    return reason
        return ""

    def _calls(self, protocol: str, data: Buffer, size: int) -> list[int]:
        """Return the numbers of the calls among the datagrams; the last of these may be shorter than the others."""
        if CALL_BYTES[protocol] not in {size, len(data) % size if size else 0}:
            return []
        caller_id = protocols.wire(protocol).caller_id
        numbers = [caller_id(data[start : start + size]) for start in range(0, len(data), size)]
        return [number for number in numbers if number is not None]

    def _call_refusal(self, host: Host, call: Call, now_us: int) -> str:
        """Judge a call. What is half open counts as a session already, or many calls at once would all become one."""
        settings, prefix = self._settings, host.prefix
        half_open = prefix.half_open
        if call in half_open:
            return ""
        while half_open and next(iter(half_open.values()))[0] <= now_us - HALF_OPEN_US:
            given_up, (_, caller) = next(iter(half_open.items()))
            caller.end(given_up)
        if 0 < settings.sessions_per_address_max <= host.sessions + host.half_open:
            return "address_full"
        if 0 < settings.sessions_per_prefix_max <= prefix.sessions + len(half_open):
            return "prefix_full"
        if 0 < settings.half_open_per_prefix_max <= len(half_open):
            return "half_open_full"
        host.begin(call, now_us)
        return ""

    def _within_rate(self, prefix: Prefix, count: int, now_us: int) -> bool:
        """Take tokens of a bucket that fills at the rate."""
        rate = self._settings.datagrams_per_second
        filled = prefix.tokens + (now_us - prefix.refilled_us) * rate / 1e6
        prefix.tokens, prefix.refilled_us = min(filled, max(1.0, rate * BURST_S)), now_us
        if prefix.tokens <= 0:
            return False
        # A batch may overdraw: it arrived as one, and what it took too much is missing afterwards.
        prefix.tokens -= count
        return True

    # Who is who.

    def _host(self, address: Address, now_us: int) -> Host:
        name = str(address[0]) if isinstance(address, tuple) else str(address)
        host = self._hosts.get(name)
        if host is None:
            if len(self._hosts) >= HOSTS_MAX:
                self._forget_quiet()
            host = self._hosts[name] = self._judge(name, now_us)
        return host

    def _judge(self, name: str, now_us: int) -> Host:
        settings = self._settings
        found = ipaddress.ip_address(name.partition("%")[0])
        key = name
        if found.version == 6:
            key = str(ipaddress.ip_network((found, IPV6_PREFIX_BITS), strict=False))
        allowed = not _within(found, settings.deny) and (not settings.allow or _within(found, settings.allow))
        prefix = self._prefixes.get(key)
        if prefix is None:
            prefix = self._prefixes[key] = Prefix(now_us, max(1.0, settings.datagrams_per_second * BURST_S))
        return Host(allowed, prefix)

    def _forget_quiet(self) -> None:
        self._hosts = {name: host for name, host in self._hosts.items() if host.sessions or host.half_open}
        kept = {id(host.prefix) for host in self._hosts.values()}
        self._prefixes = {key: prefix for key, prefix in self._prefixes.items() if id(prefix) in kept}

    # Sessions.

    def opened(self, peer: Peer, now_us: int) -> None:
        if peer.session is None:
            return
        host = self._host(peer.address, now_us)
        host.sessions += 1
        host.prefix.sessions += 1
        calls = host.calls.get(peer.address)
        if calls:
            host.end((peer.address, calls[0]))
        self._sessions[peer.address] += 1
        self._addresses[peer] = peer.address

    def moved(self, peer: Peer, address: Address, now_us: int) -> None:
        """Note that a session goes on at another address."""
        self.closed(peer, now_us)
        self.opened(peer._replace(address=address), now_us)
        self._addresses.pop(peer._replace(address=address), None)
        self._addresses[peer] = address

    def closed(self, peer: Peer, now_us: int) -> None:
        address = self._addresses.pop(peer, None)
        if address is None:
            return
        host = self._host(address, now_us)
        host.sessions -= 1
        host.prefix.sessions -= 1
        self._sessions[address] -= 1
        if not self._sessions[address]:
            del self._sessions[address]


def _within(address: ipaddress.IPv4Address | ipaddress.IPv6Address, networks: Sequence[Network]) -> bool:
    return any(address.version == network.version and address in network for network in networks)
