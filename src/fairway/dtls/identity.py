"""Identity files: private key, certificate chain, and the CA certificates to trust.

All in one PEM file, as HAProxy takes it, or in three. The order of the blocks does not matter: the certificate is the
one that belongs to the key, a CA certificate that signed itself is trusted, other CA certificates are sent along.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from OpenSSL import crypto

from fairway.core.errors import BadOption
from fairway.dtls.certificates import (
    USAGE_WORDS,
    Revoked,
    Role,
    common_name,
    is_authority,
    may_be,
    parse_crl,
    parse_list,
)
from fairway.dtls.errors import BadIdentity

_BLOCK = re.compile(rb"-----BEGIN ([A-Z0-9 ]+)-----.*?-----END \1-----", re.DOTALL)
OTHERS_MODE = 0o077


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentityFiles:
    """Where an identity lies: `identity`, or all of `cert`, `key` and `ca`; and who is revoked."""

    identity: str = ""
    cert: str = ""
    key: str = ""
    ca: str = ""
    revoked: str = ""
    crl: str = ""

    def __post_init__(self) -> None:
        separate = (self.cert, self.key, self.ca)
        if self.identity and any(separate):
            raise BadOption("identity is given, and cert, key or ca too: give one file, or three")
        if not self.identity and not all(separate):
            raise BadOption("DTLS needs identity=FILE, or cert=FILE, key=FILE and ca=FILE")

    @property
    def paths(self) -> tuple[str, ...]:
        """The files that are there."""
        return tuple(path for path in (self.identity, self.cert, self.key, self.ca, self.revoked, self.crl) if path)


@dataclass(frozen=True, slots=True, repr=False)
class Identity:
    """An end's key, certificates and trust. It has no representation: a key is never printed."""

    name: str
    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate
    chain: tuple[x509.Certificate, ...]
    """Other certificates to send along."""
    authorities: tuple[x509.Certificate, ...]
    revoked: Revoked


def read_identity(files: IdentityFiles, role: Role, now: datetime) -> Identity:
    """Read and check an identity: `BadIdentity` names the file, what is wrong with it, and what helps."""
    key_path = files.identity or files.key
    key_pem = _read(key_path, secret=True)
    cert_pem = key_pem if files.identity else _read(files.cert)
    key = _key(key_pem, key_path)
    certificates = _certificates(cert_pem, files.identity or files.cert)
    mine = [one for one in certificates if one.public_key() == key.public_key()]
    if not mine:
        raise BadIdentity(_no_match(files, key_path, certificates))
    others = [one for one in certificates if one is not mine[0]]
    if files.identity:
        authorities = [one for one in others if is_authority(one) and one.issuer == one.subject]
        if not authorities:
            raise BadIdentity(
                f"{files.identity} holds no CA certificate to trust; append the CA's: cat ca.pem >> {files.identity}"
            )
    else:
        authorities = _certificates(_read(files.ca), files.ca)
    chain = [one for one in others if one not in authorities]
    identity = Identity(common_name(mine[0]) or "", key, mine[0], tuple(chain), tuple(authorities), Revoked())
    _check(identity, role, files.identity or files.cert, now)
    return read_revoked(files, identity)


def read_revoked(files: IdentityFiles, identity: Identity) -> Identity:
    """Return an identity with the lists of the revoked as they are now."""
    revoked = Revoked()
    if files.revoked:
        revoked |= parse_list(_read(files.revoked).decode(errors="replace"), files.revoked)
    if files.crl:
        lists = _blocks(_read(files.crl), "X509 CRL", files.crl)
        if not lists:
            raise BadIdentity(f"{files.crl} holds no CRL in PEM")
        for one in lists:
            revoked |= parse_crl(one, [*identity.authorities, *identity.chain], files.crl)
    return replace(identity, revoked=revoked)


def _read(path: str, *, secret: bool = False) -> bytes:
    try:
        mode = Path(path).stat().st_mode
        data = Path(path).read_bytes()
    except OSError as error:
        raise BadIdentity(f"{path}: {error.strerror}") from error
    if secret and mode & OTHERS_MODE and b"PRIVATE KEY-----" in data:
        raise BadIdentity(f"{path} holds a private key that others may read; run: chmod 600 {path}")
    return data


def _blocks(pem: bytes, kind: str, path: str) -> list[bytes]:
    if pem.count(b"-----BEGIN ") != len(found := list(_BLOCK.finditer(pem))):
        raise BadIdentity(f"{path} is truncated: a PEM block begins and does not end")
    return [block[0] for block in found if block[1].decode().endswith(kind)]


def _key(pem: bytes, path: str) -> ec.EllipticCurvePrivateKey:
    blocks = _blocks(pem, "PRIVATE KEY", path)
    if len(blocks) != 1:
        count = "no private key" if not blocks else f"{len(blocks)} private keys"
        raise BadIdentity(f"{path} holds {count}; it must hold one, in PEM")
    try:
        key = load_pem_private_key(blocks[0], password=None)
    except TypeError as error:
        raise BadIdentity(f"the key in {path} is encrypted; decrypt it: openssl pkey -in {path} -out NEW") from error
    except ValueError as error:
        raise BadIdentity(f"the key in {path} cannot be read: it is damaged or of an unknown kind") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise BadIdentity(f"the key in {path} is no EC key; make one: openssl ecparam -name prime256v1 -genkey -noout")
    return key


def _certificates(pem: bytes, path: str) -> list[x509.Certificate]:
    blocks = _blocks(pem, "CERTIFICATE", path)
    if not blocks:
        raise BadIdentity(f"{path} holds no certificate in PEM")
    try:
        certificates = [x509.load_pem_x509_certificate(block) for block in blocks]
        for one in certificates:
            # Now is the time to find out: a gateway that reads its files again must not end by them.
            _ = one.public_key(), one.subject, one.issuer
    except (ValueError, UnsupportedAlgorithm) as error:
        raise BadIdentity(f"a certificate in {path} is damaged or of an unknown kind: {error}") from error
    return certificates


def _no_match(files: IdentityFiles, key_path: str, certificates: Sequence[x509.Certificate]) -> str:
    if files.identity:
        return f"no certificate in {key_path} belongs to its key: the key is another's, or the certificate is missing"
    names = ", ".join(common_name(one) or "?" for one in certificates)
    return f"no certificate in {files.cert} belongs to the key in {key_path}: it holds {names}"


def _check(identity: Identity, role: Role, path: str, now: datetime) -> None:
    name, certificate, authorities = identity.name, identity.certificate, identity.authorities
    if not name:
        raise BadIdentity(f"the certificate in {path} has no name of 1 to 64 letters, digits, '.', '_' and '-'")
    _check_dates(certificate, f"the certificate of {name} in {path}", now)
    if not any(one.not_valid_before_utc <= now <= one.not_valid_after_utc for one in authorities):
        # Of several, one that was replaced may have ended, and nobody has taken it away yet.
        _check_dates(authorities[0], f"the CA certificate {common_name(authorities[0]) or ''}".strip(), now)
    if not may_be(certificate, role):
        raise BadIdentity(
            f"the certificate of {name} in {path} is not for a {role}: it lacks the usage {USAGE_WORDS[role]}"
        )
    store = crypto.X509Store()
    store.set_flags(crypto.X509StoreFlags.PARTIAL_CHAIN)
    store.set_time(now.astimezone(UTC).replace(tzinfo=None))
    for authority in authorities:
        store.add_cert(crypto.X509.from_cryptography(authority))
    between = [crypto.X509.from_cryptography(one) for one in identity.chain]
    try:
        crypto.X509StoreContext(store, crypto.X509.from_cryptography(certificate), between).verify_certificate()
    except crypto.X509StoreContextError as error:
        raise BadIdentity(f"the certificate of {name} in {path} is not signed by the CA beside it: {error}") from error


def _check_dates(certificate: x509.Certificate, what: str, now: datetime) -> None:
    if certificate.not_valid_after_utc < now:
        raise BadIdentity(f"{what} expired on {certificate.not_valid_after_utc:%Y-%m-%d}; issue a new one")
    if certificate.not_valid_before_utc > now:
        raise BadIdentity(f"{what} is valid from {certificate.not_valid_before_utc:%Y-%m-%d} on; is the clock right?")
