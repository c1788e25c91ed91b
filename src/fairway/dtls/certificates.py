"""Whom Fairway accepts: names, role and fingerprint of a certificate, and who is revoked.

A list of the revoked has names, serial numbers and fingerprints; the CRLs of a PKI are read, too.

    # one a line; what follows a # is a comment
    sensor-17                        every certificate of that name, those of the future too
    serial:4f2a...                   one certificate, its serial number in hexadecimal
    sha256:9b1c...                   one certificate, by its fingerprint

`fairway ca revoke` writes serial numbers, so that a device that was replaced can be issued its name again.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from cryptography import x509
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fairway.dtls.engine import PeerIdentity
from fairway.dtls.errors import BadIdentity

NAME = re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Revoked:
    """What is revoked. Empty, it revokes nobody."""

    names: frozenset[str] = frozenset()
    serials: frozenset[int] = frozenset()
    fingerprints: frozenset[str] = frozenset()
    by_issuer: frozenset[tuple[str, int]] = frozenset()
    """Issuer and serial number, from CRLs."""

    def holds(self, peer: PeerIdentity) -> bool:
        """Return whether a peer is revoked."""
        return (
            peer.name in self.names
            or peer.serial in self.serials
            or peer.fingerprint in self.fingerprints
            or (peer.issuer, peer.serial) in self.by_issuer
        )

    def __or__(self, other: Revoked) -> Revoked:
        return Revoked(
            self.names | other.names,
            self.serials | other.serials,
            self.fingerprints | other.fingerprints,
            self.by_issuer | other.by_issuer,
        )


def parse_list(text: str, source: str) -> Revoked:
    """Read a list; raises `BadIdentity` with the line that cannot be read: whoever it names must not slip through."""
    names: list[str] = []
    serials: list[int] = []
    fingerprints: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        word = line.partition("#")[0].strip()
        kind, _, value = word.partition(":")
        digits = value.replace(":", "").lower()
        if not word:
            continue
        if NAME.fullmatch(word):
            names.append(word)
        elif kind == "serial" and _is_hexadecimal(digits):
            serials.append(int(digits, 16))
        elif kind == "sha256" and _is_hexadecimal(digits) and len(digits) == 64:
            fingerprints.append(digits)
        else:
            raise BadIdentity(f"{source}, line {number}: {word!r} is no name, serial:HEX or sha256:HEX")
    return Revoked(frozenset(names), frozenset(serials), frozenset(fingerprints))


def _is_hexadecimal(text: str) -> bool:
    return bool(text) and all(digit in "0123456789abcdef" for digit in text)


def parse_crl(pem: bytes, authorities: Sequence[x509.Certificate], source: str) -> Revoked:
    """Read a PKI's CRL, which one of the authorities must have signed."""
    try:
        crl = x509.load_pem_x509_crl(pem)
    except ValueError as error:
        raise BadIdentity(f"{source} is no CRL in PEM: {error}") from error
    signers = [one.public_key() for one in authorities if one.subject == crl.issuer]
    if not any(crl.is_signature_valid(key) for key in signers):  # type: ignore[arg-type]  # a CA's key can sign
        raise BadIdentity(f"{source} is not signed by a CA of this identity")
    issuer = crl.issuer.rfc4514_string()
    return Revoked(by_issuer=frozenset((issuer, one.serial_number) for one in crl))


Role = Literal["device", "gateway"]
USAGES = {"device": ExtendedKeyUsageOID.CLIENT_AUTH, "gateway": ExtendedKeyUsageOID.SERVER_AUTH}
USAGE_WORDS = {"device": "clientAuth", "gateway": "serverAuth"}


def common_name(certificate: x509.Certificate) -> str | None:
    """Return the name of a certificate's holder: its CN, or without one its first DNS name; None if that is no name."""
    found = [str(one.value) for one in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    name = (found or sorted(_alternatives(certificate, x509.DNSName)) or [""])[0]
    return name if NAME.fullmatch(name) else None


def all_names(certificate: x509.Certificate) -> frozenset[str]:
    """Return every name and address that a gateway's certificate stands for, in lower case."""
    found = [str(one.value) for one in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    found += _alternatives(certificate, x509.DNSName)
    found += [str(one) for one in _alternatives(certificate, x509.IPAddress)]
    return frozenset(name.lower() for name in found)


def _alternatives(certificate: x509.Certificate, kind: type[x509.DNSName] | type[x509.IPAddress]) -> list[str]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return []
    return [str(name) for name in names.get_values_for_type(kind)]


def may_be(certificate: x509.Certificate, role: Role) -> bool:
    """Return whether the certificate was issued for the role (extended key usage)."""
    try:
        usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except (x509.ExtensionNotFound, ValueError):
        return False
    return USAGES[role] in usage


def is_authority(certificate: x509.Certificate) -> bool:
    """Return whether the certificate may issue others."""
    try:
        return bool(certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca)
    except (x509.ExtensionNotFound, ValueError):
        return False


def identity_of(certificate: x509.Certificate, suite: str) -> PeerIdentity:
    """Return who holds a certificate."""
    return PeerIdentity(
        common_name(certificate) or "",
        certificate.serial_number,
        certificate.fingerprint(SHA256()).hex(),
        certificate.issuer.rfc4514_string(),
        suite,
    )


@dataclass(frozen=True, slots=True)
class Admission:
    """Whom an end accepts, beyond what the library verifies (signatures, dates)."""

    role: Role
    """What the peer must be."""
    expected: str = ""
    """A client's gateway: one of its names must be this."""
    revoked: Revoked = field(default_factory=Revoked)

    def refusal(self, certificate: x509.Certificate) -> str:
        """Return why the holder of a certificate is not accepted, or an empty string."""
        if not may_be(certificate, self.role):
            return "wrong_role"
        if self.role == "gateway" and self.expected.lower() not in all_names(certificate):
            return "wrong_name"
        if self.role == "device" and common_name(certificate) is None:
            return "no_name"
        return "revoked" if self.revoked.holds(identity_of(certificate, "")) else ""
