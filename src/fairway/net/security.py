"""DTLS on a socket: what a URL says about it, and the layer between socket and machine.

The machine sees plaintexts, from addresses that hold the device's name; the socket sees records. Files are checked
now and then: a new key, CA or list of the revoked is in use a few seconds after it was written, and a bad one is named
in the log while the old one stays in use.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from fairway.core.addresses import with_device
from fairway.core.errors import BadOption
from fairway.core.events import Address
from fairway.core.machine import Buffer, Transmit
from fairway.dtls import OVERHEAD_BYTES, BadIdentity, DtlsClient, DtlsCounters, DtlsGateway
from fairway.dtls.certificates import Role
from fairway.dtls.cookies import Cookies
from fairway.dtls.engine import DATAGRAM_BYTES_MAX
from fairway.dtls.errors import HANDSHAKE_FAILED, explained
from fairway.dtls.identity import Identity, IdentityFiles, read_identity, read_revoked
from fairway.dtls.openssl import OpensslClientEngine, OpensslGatewayEngine
from fairway.net.layers import Link, LinkEvents, Receive, Screen
from fairway.net.randomness import Cryptographic
from fairway.net.urls import DTLS_FILES, Setting

LOOK_US = 2_000_000
"""How often files are checked."""
KEY_LOG = "SSLKEYLOGFILE"

_log = logging.getLogger("fairway.dtls")


def take_settings(settings: dict[str, Setting], role: Role, host: str) -> Security:
    """Take the settings of DTLS out of those of a URL; files are read, so that a bad one is named at once."""
    files = {name: os.fspath(str(settings.pop(name))) for name in DTLS_FILES if name in settings}
    if role == "gateway" and "name" in settings:
        raise BadOption("name= says which gateway a client expects; a gateway's own name is in its certificate")
    name = str(settings.pop("name", host))
    if role == "device" and not name:
        raise BadOption("the URL names no host, so name= must say which gateway is expected")
    return Security(IdentityFiles(**files), role, name)


@dataclass(frozen=True, slots=True)
class Security:
    """Who we are, by which files, and whom a client expects."""

    files: IdentityFiles
    role: Role
    expects: str

    def read(self) -> Identity:
        """Read the files; raises `BadIdentity`."""
        return read_identity(self.files, self.role, datetime.now(UTC))

    def budget_bytes(self, datagram_bytes_max: int) -> int:
        """Return what a machine may put into a datagram whose record leaves within the budget."""
        return min(datagram_bytes_max, DATAGRAM_BYTES_MAX) - OVERHEAD_BYTES

    def stamps(self) -> tuple[tuple[int, int] | None, ...]:
        """Return what changes when a file does."""
        return tuple(_stamp(path) for path in self.files.paths)

    def inner_address(self, remote: Address) -> Address:
        """Return the address under which a client's machine knows its gateway."""
        return with_device(remote, self.expects)

    def link(self, link: Link, remote: Address | None) -> SecureLink:
        """Return the layer around a socket's link."""
        return SecureLink(self, link, remote)


def _stamp(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    # The time of a change, not of a write: a file that others could read and that a chmod mended has changed, too.
    return found.st_ctime_ns, found.st_ino


class SecureLink:
    """Seals what is sent and opens what is received: a link around that of the socket."""

    def __init__(self, security: Security, link: Link, remote: Address | None) -> None:
        self._security = security
        self._link = link
        self._loop = asyncio.get_running_loop()
        self._above: LinkEvents | None = None
        self._screen: Screen | None = None
        self._stamps = security.stamps()
        self._now_us = 0
        self._identity = security.read()
        self._layer, self._renew = self._build(remote)
        self._look_us = self._time_us() + LOOK_US
        self.counters = link.counters
        self.dtls: DtlsCounters | None = self._layer.counters
        self.local = link.local

    def _build(self, remote: Address | None) -> tuple[DtlsGateway | DtlsClient, Callable[[Identity], None]]:
        """Return the layer, and what gives it another identity."""
        random_source, keylog = Cryptographic(), os.environ.get(KEY_LOG)
        cookies = Cookies(random_source.bits(256).to_bytes(32, "big"))

        def calling(identity: Identity) -> OpensslClientEngine:
            return OpensslClientEngine(identity, self._security.expects, keylog=keylog)

        def called(identity: Identity) -> OpensslGatewayEngine:
            return OpensslGatewayEngine(identity, cookies, keylog=keylog)

        if remote is not None:
            client = DtlsClient(calling(self._identity), remote, random_source)
            return client, lambda identity: client.replace_engine(calling(identity))
        gateway = DtlsGateway(called(self._identity))
        return gateway, lambda identity: gateway.replace_engine(called(identity), self._now_us)

    def _time_us(self) -> int:
        """Read the loop's clock, which is the driver's; it never goes back."""
        self._now_us = max(self._now_us, int(self._loop.time() * 1_000_000))
        return self._now_us

    # From above.

    @property
    def deadline_us(self) -> int | None:
        """When something is due: a retransmission, a renewal, a check of the files."""
        due_us = self._layer.next_deadline_us()
        return self._look_us if due_us is None else min(due_us, self._look_us)

    def start(self, above: LinkEvents, screen: Screen | None = None) -> None:
        self._above = above
        self._screen = screen
        self._link.start(self)

    def drain(self, receive: Receive) -> int:
        """Open what has arrived and pass it on; return the number of receives."""
        received = self._link.drain(self._open)
        for data, address, _, segment_bytes in self._layer.plaintexts():
            receive(data, address, segment_bytes)
        self._flush()
        return received

    def _open(self, data: Buffer, address: Address, segment_bytes: int | None) -> None:
        now_us = self._time_us()
        if self._screen is None or self._screen(data, address, now_us, segment_bytes):
            self._layer.receive(data, address, now_us, segment_bytes)

    def send(self, transmits: list[Transmit]) -> None:
        """Seal and send, or wait for the handshake."""
        self._layer.send(transmits, self._time_us())
        self._flush()

    def wake(self, now_us: int) -> None:
        self._now_us = max(self._now_us, now_us)
        if self._now_us >= self._look_us:
            self._look_us = self._now_us + LOOK_US
            self._look()
        due_us = self._layer.next_deadline_us()
        if due_us is not None and due_us <= self._now_us:
            self._layer.wake(self._now_us)
        self._flush()

    def _flush(self) -> None:
        transmits = self._layer.transmits()
        if transmits:
            self._link.send(transmits)
        if isinstance(self._layer, DtlsClient) and self._above is not None:
            for reason in self._layer.failures():
                self._above.unreachable(self._layer.inner, f"{HANDSHAKE_FAILED}: {explained(reason)}")

    def _look(self) -> None:
        """Read the files again if one of them has changed."""
        stamps = self._security.stamps()
        if stamps == self._stamps:
            return
        self._stamps = stamps
        try:
            self._use(self._security.read())
        except BadIdentity as error:
            _log.error("%s; the keys from before stay in use", error)
            self._use_lists()

    def _use(self, identity: Identity) -> None:
        self._renew(identity)
        self._identity = identity
        _log.info("the files of %s were read again", ", ".join(self._security.files.paths))

    def _use_lists(self) -> None:
        """Use the lists alone: whoever is revoked must go, though our own certificate may have ended."""
        try:
            self._use(read_revoked(self._security.files, self._identity))
        except BadIdentity as error:
            _log.error("%s; the lists of the revoked from before stay in use", error)

    def pause(self) -> None:
        self._link.pause()

    def resume(self) -> None:
        self._link.resume()

    def expect_errors(self, wanted: bool) -> None:
        self._link.expect_errors(wanted)

    def refresh(self) -> None:
        self._link.refresh()

    def close(self) -> None:
        """Tell all peers, and close the socket. Twice is fine."""
        self._layer.close()
        transmits = self._layer.transmits()
        if transmits:
            self._link.send(transmits)
        self._link.close()

    # From the socket's link.

    def readable(self) -> None:
        if self._above is not None:
            self._above.readable()

    def unreachable(self, address: Address | None, why: int | str) -> None:
        """An ICMP error came back: report it for who is at that address, if anybody is."""
        layer = self._layer
        inner = layer.inner if isinstance(layer, DtlsClient) else layer.inner_address(address)
        if inner is not None and self._above is not None:
            self._above.unreachable(inner, why)

    def path_limited(self, datagram_bytes: int, *, fragments: bool) -> None:
        if self._above is not None:
            self._above.path_limited(max(datagram_bytes - OVERHEAD_BYTES, 1), fragments=fragments)
