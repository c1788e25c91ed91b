"""DTLS on a socket: what a URL says about it, and the layer between socket and machine.

The machine sees plaintexts, from addresses that hold the device's name; the socket sees records. Files are looked at
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
from typing import TYPE_CHECKING, Protocol

from fairway.core.addresses import with_device
from fairway.core.errors import BadOption
from fairway.core.events import Address
from fairway.core.machine import Transmit
from fairway.dtls import OVERHEAD_BYTES, BadIdentity, DtlsClient, DtlsGateway, require_packages
from fairway.dtls.engine import DATAGRAM_BYTES_MAX
from fairway.dtls.reasons import explained
from fairway.net.chance import Cryptographic
from fairway.net.counters import SocketCounters
from fairway.net.link import Link
from fairway.net.mmsg import Receive
from fairway.net.urls import DTLS_FILES, Setting

if TYPE_CHECKING:
    from fairway.dtls.certificates import Role
    from fairway.dtls.identity import Identity, IdentityFiles
    from fairway.dtls.openssl import OpensslClientEngine, OpensslGatewayEngine

LOOK_S = 2.0
"""How often files are looked at."""
HANDSHAKE_FAILED = "the DTLS handshake failed"
KEY_LOG = "SSLKEYLOGFILE"

_log = logging.getLogger("fairway.dtls")


def budget_bytes(datagram_bytes_max: int) -> int:
    """Return what a machine may put into a datagram whose record leaves within the budget."""
    return min(datagram_bytes_max, DATAGRAM_BYTES_MAX) - OVERHEAD_BYTES


def take_settings(settings: dict[str, Setting], role: Role, host: str) -> Security:
    """Take the settings of DTLS out of those of a URL; files are read, so that a bad one is named at once."""
    require_packages()
    from fairway.dtls.identity import IdentityFiles

    files = {name: os.fspath(str(settings.pop(name))) for name in DTLS_FILES if name in settings}
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
        from fairway.dtls.identity import read_identity

        return read_identity(self.files, self.role, datetime.now(UTC))

    def stamps(self) -> tuple[tuple[int, int] | None, ...]:
        """Return what changes when a file does."""
        return tuple(_stamp(path) for path in self.files.paths)

    def inner_address(self, remote: Address) -> Address:
        """Return the address under which a client's machine knows its gateway."""
        return with_device(remote, self.expects)

    def gateway_engine(self, secret: bytes) -> OpensslGatewayEngine:
        """Return what makes the associations of a gateway."""
        from fairway.dtls.cookies import Cookies
        from fairway.dtls.openssl import OpensslGatewayEngine

        return OpensslGatewayEngine(self.read(), Cookies(secret), keylog=os.environ.get(KEY_LOG))

    def client_engine(self) -> OpensslClientEngine:
        """Return what makes the associations of a client."""
        from fairway.dtls.openssl import OpensslClientEngine

        return OpensslClientEngine(self.read(), self.expects, keylog=os.environ.get(KEY_LOG))


def _stamp(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino


class Owner(Protocol):
    """What the layer tells the driver above it."""

    def now_us(self) -> int: ...

    def readable(self) -> None: ...

    def unreachable(self, address: Address | None, number: int) -> None: ...

    def refused(self, address: Address, reason: str) -> None: ...

    def path_limited(self, datagram_bytes: int, *, fragments: bool) -> None: ...


class SecureLink:
    """Seals what is sent and opens what is received: a link to the driver, an owner to the socket's link."""

    def __init__(self, security: Security, owner: Owner, remote: Address | None) -> None:
        self._security = security
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self._stamps = security.stamps()
        self._layer, self._renew = self._build(remote)
        self.dtls = self._layer.counters
        self._timer: asyncio.TimerHandle | None = None
        self._timer_us = 0
        self._looking = self._loop.call_later(LOOK_S, self._look)
        self._link: Link
        self.counters: SocketCounters
        self.local: Address

    def _build(self, remote: Address | None) -> tuple[DtlsGateway | DtlsClient, Callable[[], None]]:
        """Return the layer, and what gives it the keys that the files hold now."""
        security, chance = self._security, Cryptographic()
        if remote is not None:
            client = DtlsClient(security.client_engine(), remote, chance)
            return client, lambda: client.replace_engine(security.client_engine())
        secret = chance.bits(256).to_bytes(32, "big")
        gateway = DtlsGateway(security.gateway_engine(secret))
        return gateway, lambda: gateway.replace_engine(security.gateway_engine(secret), self._owner.now_us())

    def attach(self, link: Link) -> SecureLink:
        """Take the socket's link. Called once, right after it is opened."""
        self._link, self.counters, self.local = link, link.counters, link.local
        return self

    # The driver's side.

    def drain(self, receive: Receive, now_us: int) -> int:
        """Open what has arrived and pass it on; return the number of receives."""
        layer = self._layer
        received = self._link.drain(layer.receive, now_us)
        for data, address, _, segment_bytes in layer.plaintexts():
            receive(data, address, now_us, segment_bytes)
        self._flush()
        return received

    def send(self, transmits: list[Transmit]) -> None:
        """Seal and send, or wait for the handshake."""
        self._layer.send(transmits, self._owner.now_us())
        self._flush()

    def _flush(self) -> None:
        """Send what the layer wants sent, say what failed, and set the timer."""
        transmits = self._layer.transmits()
        if transmits:
            self._link.send(transmits)
        if isinstance(self._layer, DtlsClient):
            for reason in self._layer.failures():
                self._owner.refused(self._layer.inner, f"{HANDSHAKE_FAILED}: {explained(reason)}")
        due_us = self._layer.next_deadline_us()
        # A timer that rings too early is left alone: moving it costs more than an idle ring.
        if due_us is None or (self._timer is not None and self._timer_us <= due_us):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_us = due_us
        self._timer = self._loop.call_at(due_us / 1_000_000, self._ring)

    def _ring(self) -> None:
        self._timer = None
        now_us = self._owner.now_us()
        due_us = self._layer.next_deadline_us()
        if due_us is not None and due_us <= now_us:
            self._layer.wake(now_us)
        self._flush()

    def _look(self) -> None:
        self._looking = self._loop.call_later(LOOK_S, self._look)
        stamps = self._security.stamps()
        if stamps == self._stamps:
            return
        self._stamps = stamps
        try:
            self._renew()
        except BadIdentity as error:
            _log.error("%s; the keys and lists from before stay in use", error)
        else:
            _log.info("the files of %s were read again", ", ".join(self._security.files.paths))
        self._flush()

    def pause(self) -> None:
        """Stop reading."""
        self._link.pause()

    def resume(self) -> None:
        """Read again."""
        self._link.resume()

    def close(self) -> None:
        """Tell all peers, and close the socket. Twice is fine."""
        self._looking.cancel()
        if self._timer is not None:
            self._timer.cancel()
        self._layer.close()
        transmits = self._layer.transmits()
        if transmits:
            self._link.send(transmits)
        self._link.close()

    def refresh(self) -> None:
        """Bring the counters up to date that the kernel keeps."""
        self._link.refresh()

    def expect_errors(self, wanted: bool) -> None:
        """Ask for ICMP errors, or no longer."""
        self._link.expect_errors(wanted)

    # The socket's side.

    def readable(self) -> None:
        """Something has arrived."""
        self._owner.readable()

    def unreachable(self, address: Address | None, number: int) -> None:
        """An ICMP error came back."""
        if isinstance(self._layer, DtlsClient):
            self._owner.unreachable(self._layer.inner, number)
        elif (inner := self._layer.inner_address(address)) is not None:
            self._owner.unreachable(inner, number)

    def path_limited(self, datagram_bytes: int, *, fragments: bool) -> None:
        """The path takes no larger datagrams than this."""
        self._owner.path_limited(max(datagram_bytes - OVERHEAD_BYTES, 1), fragments=fragments)
