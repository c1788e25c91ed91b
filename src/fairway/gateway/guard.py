"""Who may speak, how fast, and with how many sessions: looked at before a machine sees a datagram.

A *prefix* is an IPv4 address or an IPv6 /64, which is what one subscriber has; an *address* is one host of it. Session
caps count the protocols with sessions (udpc, mrp): the others keep nothing open. What is refused is dropped without an
answer and counted, like anything that a machine refuses, so that a sender repeats it.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Sequence

from fairway import protocols
from fairway.core.errors import MalformedDatagram
from fairway.core.events import Address, Peer
from fairway.core.machine import Buffer
from fairway.gateway.settings import Network, Settings

HOSTS_MAX = 65_536
"""Hosts that are remembered; beyond it those without sessions are forgotten, and judged anew when they come back."""
HALF_OPEN_US = 5_000_000
IPV6_PREFIX_BITS = 64
BURST_S = 0.25
"""How much of a second's datagrams may come at once."""

CALLS = {"udpc": ("Syn", 13), "mrp": ("Connect", 8)}
"""The packet that asks for a session, and its size."""


class Prefix:
    """What is known of a prefix."""

    __slots__ = ("half_open", "refilled_us", "sessions", "tokens")

    def __init__(self, now_us: int, tokens: float) -> None:
        self.sessions = 0
        self.tokens = tokens
        self.refilled_us = now_us
        self.half_open: dict[Address, int] = {}
        """Addresses that called and have no session yet, with the time of their first call, oldest first."""


class Host:
    """What is known of one address, whatever its ports."""

    __slots__ = ("allowed", "prefix", "sessions")

    def __init__(self, allowed: bool, prefix: Prefix) -> None:
        self.allowed = allowed
        self.prefix = prefix
        self.sessions = 0


class Guard:
    """Judges what arrives at all endpoints of a gateway; caps and rates are over all of them."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._hosts: dict[str, Host] = {}
        self._prefixes: dict[str, Prefix] = {}
        self._sessions: Counter[Address] = Counter()
        self._addresses: dict[Peer, Address] = {}
        self.refused: Counter[tuple[str, str]] = Counter()
        """Datagrams, by protocol and reason."""

    def admits(
        self, protocol: str, data: Buffer, address: Address, now_us: int, segment_bytes: int | None = None
    ) -> bool:
        """Tells whether a datagram, or super-buffer of them, may pass."""
        count = 1 if not segment_bytes else -(-len(data) // segment_bytes)
        reason = self._refusal(protocol, data, address, now_us, segment_bytes or len(data), count)
        if reason:
            self.refused[protocol, reason] += count
        return not reason

    def _refusal(self, protocol: str, data: Buffer, address: Address, now_us: int, size: int, count: int) -> str:
        host = self._host(address, now_us)
        if not host.allowed:
            return "denied"
        if self._settings.datagrams_per_second and not self._within_rate(host.prefix, count, now_us):
            return "rate"
        call = CALLS.get(protocol)
        if call is None or (address in self._sessions and not (size == call[1] and self._has_call(protocol, data))):
            return ""
        return self._call_refusal(host, address, now_us)

    def _has_call(self, protocol: str, data: Buffer) -> bool:
        """Tells whether one of the datagrams asks for a session."""
        name, size = CALLS[protocol]
        wire = protocols.wire(protocol)
        for start in range(0, len(data), size):
            try:
                if type(wire.decode(data[start : start + size])).__name__ == name:
                    return True
            except MalformedDatagram:
                continue
        return False

    def _call_refusal(self, host: Host, address: Address, now_us: int) -> str:
        settings, prefix = self._settings, host.prefix
        if 0 < settings.sessions_per_address_max <= host.sessions:
            return "address_full"
        if 0 < settings.sessions_per_prefix_max <= prefix.sessions:
            return "prefix_full"
        half_open = prefix.half_open
        if address in half_open or not settings.half_open_per_prefix_max:
            return ""
        while half_open and next(iter(half_open.values())) <= now_us - HALF_OPEN_US:
            del half_open[next(iter(half_open))]
        if len(half_open) >= settings.half_open_per_prefix_max:
            return "half_open_full"
        if address not in self._sessions:
            half_open[address] = now_us
        return ""

    def _within_rate(self, prefix: Prefix, count: int, now_us: int) -> bool:
        """Takes tokens of a bucket that fills at the rate."""
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
        self._hosts = {name: host for name, host in self._hosts.items() if host.sessions}
        kept = {id(host.prefix) for host in self._hosts.values()}
        self._prefixes = {key: prefix for key, prefix in self._prefixes.items() if id(prefix) in kept}

    # Sessions.

    def opened(self, peer: Peer, now_us: int) -> None:
        """Takes note of a session."""
        if peer.session is None:
            return
        host = self._host(peer.address, now_us)
        host.sessions += 1
        host.prefix.sessions += 1
        host.prefix.half_open.pop(peer.address, None)
        self._sessions[peer.address] += 1
        self._addresses[peer] = peer.address

    def moved(self, peer: Peer, address: Address, now_us: int) -> None:
        """Takes note that a session goes on at another address."""
        self.closed(peer, now_us)
        self.opened(peer._replace(address=address), now_us)
        self._addresses.pop(peer._replace(address=address), None)
        self._addresses[peer] = address

    def closed(self, peer: Peer, now_us: int) -> None:
        """Takes note that a session is over."""
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
