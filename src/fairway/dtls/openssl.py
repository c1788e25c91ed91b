"""DTLS 1.2 by OpenSSL, through pyOpenSSL's memory BIOs. What OpenSSL knows of time and randomness stays in here.

Rules that experiments taught: a BIO is a stream, so one datagram is fed at a time and drained before the next; records
above the MTU are written without complaint, so lengths are checked before; `send(b"")` raises; after an error the alert
is still in the BIO; an object that is freed without a shutdown mark spoils its session; a context in use is never
changed, but replaced.

Records are written and read by OpenSSL's own functions: pyOpenSSL's methods take as long again for each record. What
these do not take is asked of the methods once more, which raise the reason.
"""

from __future__ import annotations

import logging
import os
from functools import cache, partial
from itertools import repeat
from time import time
from typing import TYPE_CHECKING

from cryptography.hazmat.bindings.openssl.binding import Binding
from OpenSSL import SSL, crypto

from fairway.core.events import Address
from fairway.core.machine import Buffer
from fairway.dtls.certificates import Admission, identity_of
from fairway.dtls.cookies import Cookies
from fairway.dtls.engine import (
    DATAGRAM_BYTES_MAX,
    INPUT_BYTES_MAX,
    PLAINTEXT_BYTES_MAX,
    AssociationClosed,
    HandshakeFailed,
    PeerIdentity,
)
from fairway.dtls.errors import BadIdentity
from fairway.dtls.identity import Identity
from fairway.dtls.records import is_run, is_single_data, pack

if TYPE_CHECKING:
    from collections.abc import Callable

SUITES = (
    b"ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-ECDSA-AES256-GCM-SHA384:ECDHE-ECDSA-CHACHA20-POLY1305:ECDHE-ECDSA-AES128-CCM"
)
OPTIONS = (
    SSL.OP_NO_QUERY_MTU
    | SSL.OP_NO_COMPRESSION
    | SSL.OP_NO_RENEGOTIATION
    | SSL.OP_NO_TICKET
    | SSL.OP_CIPHER_SERVER_PREFERENCE
)
DTLS_1_2 = 0xFEFD
INSTANCE = b"fairway-instance-"
READ_BYTES = 1 << 12
RUN_BYTES_MAX = 16_000
"""Records that are fed together: beyond 16.7 KB OpenSSL loses some."""
_ffi, _lib = Binding.ffi, Binding.lib
_allocate = _ffi.new_allocator(should_clear_after_alloc=False)
BOTH_SHUT = SSL.SENT_SHUTDOWN | SSL.RECEIVED_SHUTDOWN

VERIFY_REASONS = {
    9: "not_yet_valid",
    10: "expired",
    2: "unknown_ca",
    18: "unknown_ca",
    19: "unknown_ca",
    20: "unknown_ca",
    21: "unknown_ca",
    26: "wrong_role",
}
"""Short names for OpenSSL's numbers (`X509_V_ERR_...`)."""

_log = logging.getLogger("fairway.dtls")


def make_context(
    identity: Identity, admission: Admission, *, gateway: OpensslGatewayEngine | None = None, keylog: str | None = None
) -> SSL.Context:
    """Return a context of a client, or of a gateway, which has cookies."""
    context = SSL.Context(SSL.DTLS_CLIENT_METHOD if gateway is None else SSL.DTLS_SERVER_METHOD)
    context.set_min_proto_version(DTLS_1_2)
    context.set_max_proto_version(DTLS_1_2)
    context.set_cipher_list(SUITES)
    context.set_options(OPTIONS)
    context.set_mode(SSL.MODE_RELEASE_BUFFERS)
    context.set_session_cache_mode(SSL.SESS_CACHE_OFF)
    try:
        context.use_certificate(identity.certificate)
        for certificate in identity.chain:
            context.add_extra_chain_cert(certificate)
        context.use_privatekey(identity.key)
    except SSL.Error as error:
        why = _reason(error).replace("_", " ")
        raise BadIdentity(f"the certificate of {identity.name} cannot be used: {why}") from error
    store = context.get_cert_store()
    assert store is not None
    store.set_flags(crypto.X509StoreFlags.PARTIAL_CHAIN)
    for authority in identity.authorities:
        store.add_cert(crypto.X509.from_cryptography(authority))
    context.set_verify(SSL.VERIFY_PEER | SSL.VERIFY_FAIL_IF_NO_PEER_CERT, _verifier(admission))
    if gateway is not None:
        assert SSL.OP_COOKIE_EXCHANGE is not None
        context.set_options(SSL.OP_COOKIE_EXCHANGE)
        context.set_cookie_generate_callback(gateway.make_cookie)
        context.set_cookie_verify_callback(gateway.is_cookie)
        context.set_alpn_select_callback(_note_instance)
    if keylog:
        context.set_keylog_callback(_key_logger(keylog))
    return context


def _note_instance(connection: SSL.Connection, protocols: list[bytes]) -> SSL._NoOverlappingProtocols:
    """Remember what a client calls itself. It says so where TLS has the names of protocols, which nobody else minds."""
    association = connection.get_app_data()
    named = [one.removeprefix(INSTANCE) for one in protocols if one.startswith(INSTANCE)]
    if named and isinstance(association, OpensslAssociation):
        association.instance = named[0]
    return SSL.NO_OVERLAPPING_PROTOCOLS


def _verifier(admission: Admission) -> Callable[[SSL.Connection, crypto.X509, int, int, int], bool]:
    """Return the callback that judges each certificate of a chain; it refuses whatever it cannot judge."""

    def verify(connection: SSL.Connection, certificate: crypto.X509, number: int, depth: int, ok: int) -> bool:
        association = connection.get_app_data()
        try:
            reason = "" if ok else VERIFY_REASONS.get(number, f"verify_{number}")
            if not reason:
                # Above the peer are the CAs, the root first: revoked, they take along whatever they have issued.
                judge = admission.revocation if depth else admission.refusal
                reason = judge(certificate.to_cryptography())
        except Exception:
            _log.exception("a certificate cannot be judged")
            reason = "unreadable_certificate"
        if reason and isinstance(association, OpensslAssociation):
            association.refused = reason
        return not reason

    return verify


@cache
def _key_logger(path: str) -> Callable[[SSL.Connection, bytes], None]:
    private = partial(os.open, mode=0o600)
    # Now, and not in the first handshake, is the time to say that it cannot be written.
    with open(path, "ab", opener=private):
        _log.warning("SSLKEYLOGFILE is set: whoever reads %s can decrypt everything", path)

    def write(connection: SSL.Connection, line: bytes) -> None:
        with open(path, "ab", opener=private) as log:
            log.write(line + b"\n")

    return write


class OpensslAssociation:
    """One handshake by OpenSSL, and what follows it."""

    def __init__(self, context: SSL.Context, admission: Admission, instance: bytes | None = None) -> None:
        """Begin as the client that calls itself `instance`, or without one as a gateway."""
        self.established = False
        self.instance = instance or b""
        self.refused = ""
        """Why our own rules refused the peer's certificate."""
        self._admission = admission
        self._connection = SSL.Connection(context, None)
        self._connection.set_ciphertext_mtu(DATAGRAM_BYTES_MAX)
        self._connection.set_app_data(self)
        if instance is not None:
            self._connection.set_alpn_protos([INSTANCE + instance])
            self._connection.set_connect_state()
        else:
            self._connection.set_accept_state()
        self._overhead_bytes = 0
        self._answer = b""
        """What OpenSSL wants sent since the handshake, for `flight`."""

    def listen(self, datagram: bytes) -> bool:
        """Check a hello; return whether its cookie is valid. Raises `HandshakeFailed`."""
        self._connection.bio_write(datagram)
        try:
            self._connection.DTLSv1_listen()
        except SSL.WantReadError:
            return False
        except SSL.Error as error:
            raise HandshakeFailed(_reason(error)) from error
        return True

    def advance(self, datagram: bytes | None = None) -> None:
        if datagram is not None:
            self._connection.bio_write(datagram)
        try:
            self._connection.do_handshake()
        except SSL.WantReadError:
            return
        except SSL.Error as error:
            raise HandshakeFailed(self.refused or _reason(error)) from error
        self.established = True

    def flight(self) -> list[bytes]:
        """Return what OpenSSL wants sent, as datagrams."""
        stream, self._answer = self._answer + self._drained(), b""
        return pack(stream, DATAGRAM_BYTES_MAX)

    def _drained(self) -> bytes:
        stream = b""
        try:
            while len(stream) % READ_BYTES == 0:
                stream += self._connection.bio_read(READ_BYTES)
        except SSL.WantReadError:
            return stream
        return stream

    def timeout_us(self) -> int | None:
        """Return in how long OpenSSL's retransmission timer rings."""
        seconds = self._connection.DTLSv1_get_timeout()
        return None if seconds is None else int(seconds * 1_000_000)

    def ring(self) -> None:
        """Have OpenSSL retransmit, if its clock says so."""
        try:
            self._connection.DTLSv1_handle_timeout()
        except SSL.Error as error:
            raise HandshakeFailed("timeout") from error

    def peer(self) -> PeerIdentity | None:
        """Return who is there, judged once more: a callback alone would not see a resumed session."""
        chain = self._connection.get_verified_chain(as_cryptography=True)
        if not chain or self._admission.refusal(*chain):
            return None
        return identity_of(chain, self._connection.get_cipher_name() or "")

    def open(self, data: bytes, step: int) -> list[bytes]:
        size = len(data)
        if size <= step:
            return self._opened(data, is_single_data(data), [])
        plaintexts: list[bytes] = []
        together = max(1, RUN_BYTES_MAX // step) * step
        for start in range(0, size, together):
            # A few datagrams are cheaper to feed at once; the last of all may be shorter.
            end = min(start + together, size)
            whole = end - (end - start) % step
            if is_run(data[start:whole], step):
                self._opened(data[start:whole], (whole - start) // step, plaintexts)
            else:
                whole = start
            for offset in range(whole, end, step):
                plaintexts += self.open(data[offset : min(offset + step, end)], step)
        return plaintexts

    def _opened(self, data: bytes, count: int, plaintexts: list[bytes]) -> list[bytes]:
        """Add the plaintexts of so many records of one size to a list, or with 0 of all that there are."""
        connection = self._connection
        size = len(data) // count if count else INPUT_BYTES_MAX
        # Of its own for each call: other threads read while OpenSSL works.
        buffer = _allocate("char[]", size)
        ssl, read, opened = connection._ssl, _lib.SSL_read, _ffi.buffer(buffer)
        try:
            if data and _lib.BIO_write(connection._into_ssl, data, len(data)) != len(data):
                raise MemoryError("OpenSSL has no room for a datagram")
            # To look for more behind a single record, and find nothing, would double the cost.
            for _ in range(count) if count else repeat(None):
                length = read(ssl, buffer, size)
                plaintexts.append(opened[:length] if length > 0 else connection.recv(size))
        except SSL.WantReadError:
            # What came before one that is not accepted stays in the list.
            pass
        except SSL.Error as error:
            raise AssociationClosed(_reason(error)) from error
        if not count:
            # A late Finished, or a wish to renegotiate, has an answer: it must not lie where `seal` reads its records.
            self._answer = self._drained()
        return plaintexts

    def seal(self, data: Buffer, segment_bytes: int | None) -> tuple[bytes, int | None]:
        """Return records: the datagrams of one size become records of one size."""
        connection, size = self._connection, len(data)
        step = segment_bytes or size
        assert 0 < step <= PLAINTEXT_BYTES_MAX
        ssl, write, count, start = connection._ssl, _lib.SSL_write, -(-size // step), _ffi.from_buffer(data)
        try:
            for offset in range(0, size, step):
                length = step if offset + step <= size else size - offset
                if write(ssl, start + offset, length) <= 0:
                    connection.send(data[offset : offset + length])
            sealed_bytes = size + count * self._overhead_bytes
            if self._overhead_bytes:
                buffer = _allocate("char[]", sealed_bytes)
                length = _lib.BIO_read(connection._from_ssl, buffer, sealed_bytes)
                sealed = _ffi.buffer(buffer, length)[:] if length > 0 else connection.bio_read(sealed_bytes)
            else:
                # The first records tell what the suite adds to each.
                sealed = self._drained()
                self._overhead_bytes = (len(sealed) - size) // count
        except SSL.Error as error:
            raise AssociationClosed(_reason(error)) from error
        return sealed, step + self._overhead_bytes if count > 1 else None

    def close(self, *, notify: bool) -> list[bytes]:
        """End it; the peer's own close_notify is not waited for."""
        datagrams: list[bytes] = []
        if notify and self.established:
            try:
                self._connection.shutdown()
                datagrams = self.flight()
            except SSL.Error:
                _log.debug("no close_notify: the association was unusable")
        self._connection.set_shutdown(BOTH_SHUT)
        self._connection.set_app_data(None)
        return datagrams


class OpensslGatewayEngine:
    """Makes a gateway's associations. New keys or a new list of the revoked need a new engine with the old cookies."""

    def __init__(
        self, identity: Identity, cookies: Cookies, *, keylog: str | None = None, clock: Callable[[], float] = time
    ) -> None:
        self._cookies = cookies
        self._asking: tuple[Address, int] = None, 0
        """Whose hello is being checked, and when: the callbacks know a connection, not an address."""
        self._clock = clock
        """The time of day, which OpenSSL reads by itself."""
        self._admission = Admission("device", revoked=identity.revoked)
        self._context = make_context(identity, self._admission, gateway=self, keylog=keylog)
        self._listener: OpensslAssociation | None = None

    def make_cookie(self, connection: SSL.Connection) -> bytes:
        return self._cookies.make(*self._asking)

    def is_cookie(self, connection: SSL.Connection, cookie: bytes) -> bool:
        return self.knows(cookie, *self._asking)

    def knows(self, cookie: bytes, address: Address, now_us: int) -> bool:
        return bool(cookie) and self._cookies.valid(cookie, address, now_us)

    def listen(self, datagram: bytes, address: Address, now_us: int) -> tuple[list[bytes], OpensslAssociation | None]:
        self._asking = address, now_us
        association = self._listener or OpensslAssociation(self._context, self._admission)
        # One object checks all hellos. It becomes the association of the first that is accepted; an error spoils it.
        self._listener = None
        if association.listen(datagram):
            return [], association
        self._listener = association
        return association.flight(), None

    def refusal(self, peer: PeerIdentity) -> str:
        if self._admission.revoked.holds(peer):
            return "revoked"
        # A device need not renew: without this it would stay for as long as it sends.
        return "expired" if self._clock() > peer.ends_s else ""


class OpensslClientEngine:
    """Makes a client's associations with the gateway of one name."""

    def __init__(self, identity: Identity, name: str, *, keylog: str | None = None) -> None:
        self.name = name
        self._admission = Admission("gateway", name, identity.revoked)
        self._context = make_context(identity, self._admission, keylog=keylog)

    def call(self, instance: bytes) -> OpensslAssociation:
        return OpensslAssociation(self._context, self._admission, instance)


def _reason(error: SSL.Error) -> str:
    """Return a short name for what OpenSSL says."""
    if isinstance(error, SSL.ZeroReturnError):
        return "closed_by_peer"
    entries = error.args[0] if error.args and isinstance(error.args[0], list) else []
    text = str(entries[-1][-1]) if entries else type(error).__name__
    before, alert, after = text.partition("alert ")
    return "_".join((alert + after if alert else before).lower().split()) or "unknown"
