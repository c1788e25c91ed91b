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
from ipaddress import ip_address
from typing import Literal, TypeVar

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fairway.dtls.engine import PeerIdentity
from fairway.dtls.errors import BadIdentity

Extension = TypeVar("Extension", bound=x509.ExtensionType)
NAME = re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII)
HEXADECIMAL = re.compile(r"[0-9a-f]+")


@dataclass(frozen=True, slots=True)
class Revoked:
    """What is revoked. Empty, it revokes nobody."""

    names: frozenset[str] = frozenset()
    serials: frozenset[int] = frozenset()
    fingerprints: frozenset[str] = frozenset()
    by_issuer: frozenset[tuple[str, int]] = frozenset()
    """Issuer and serial number, from CRLs."""

    def holds(self, peer: PeerIdentity) -> bool:
        """Return whether a peer, or a CA above it, is revoked."""
        return any(
            one.name in self.names
            or one.serial in self.serials
            or one.fingerprint in self.fingerprints
            or (one.issuer, one.serial) in self.by_issuer
            for one in (peer, *peer.above)
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
        elif kind == "serial" and HEXADECIMAL.fullmatch(digits):
            serials.append(int(digits, 16))
        elif kind == "sha256" and HEXADECIMAL.fullmatch(digits) and len(digits) == 64:
            fingerprints.append(digits)
        else:
            raise BadIdentity(f"{source}, line {number}: {word!r} is no name, serial:HEX or sha256:HEX")
    return Revoked(frozenset(names), frozenset(serials), frozenset(fingerprints))


def parse_crl(pem: bytes, authorities: Sequence[x509.Certificate], source: str) -> Revoked:
    """Read a PKI's CRL, which one of the authorities must have signed."""
    try:
        crl = x509.load_pem_x509_crl(pem)
        signers = [one.public_key() for one in authorities if one.subject == crl.issuer]
        signed = any(crl.is_signature_valid(key) for key in signers)  # type: ignore[arg-type]  # a CA's key can sign
        issuer = crl.issuer.rfc4514_string()
        revoked = Revoked(by_issuer=frozenset((issuer, one.serial_number) for one in crl))
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise BadIdentity(f"{source} is no CRL in PEM, or of an unknown kind: {error}") from error
    if not signed:
        raise BadIdentity(f"{source} is not signed by a CA of this identity")
    return revoked


Role = Literal["device", "gateway"]
USAGES = {"device": ExtendedKeyUsageOID.CLIENT_AUTH, "gateway": ExtendedKeyUsageOID.SERVER_AUTH}
USAGE_WORDS = {"device": "clientAuth", "gateway": "serverAuth"}


def common_name(certificate: x509.Certificate) -> str | None:
    """Return the name of a certificate's holder: its CN, or without one its first DNS name; None if that is no name."""
    found = [str(one.value) for one in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    name = (found or sorted(_alternatives(certificate, x509.DNSName)) or [""])[0]
    return name if NAME.fullmatch(name) else None


def all_names(certificate: x509.Certificate) -> frozenset[str]:
    """Return every name and address that a gateway's certificate stands for; a wildcard stands for itself."""
    found = [str(one.value) for one in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    found += _alternatives(certificate, x509.DNSName)
    found += [str(one) for one in _alternatives(certificate, x509.IPAddress)]
    return frozenset(map(canonical, found))


def canonical(name: str) -> str:
    """Return a name in lower case, or an address as it is written shortest."""
    try:
        return str(ip_address(name))
    except ValueError:
        return name.lower()


def _alternatives(certificate: x509.Certificate, kind: type[x509.DNSName] | type[x509.IPAddress]) -> list[str]:
    names = _extension(certificate, x509.SubjectAlternativeName)
    return [] if names is None else [str(name) for name in names.get_values_for_type(kind)]


def may_be(certificate: x509.Certificate, role: Role) -> bool:
    """Return whether the certificate was issued for the role (extended key usage)."""
    return USAGES[role] in (_extension(certificate, x509.ExtendedKeyUsage) or ())


def is_authority(certificate: x509.Certificate) -> bool:
    """Return whether the certificate may issue others."""
    constraints = _extension(certificate, x509.BasicConstraints)
    return constraints is not None and constraints.ca


def _extension(certificate: x509.Certificate, kind: type[Extension]) -> Extension | None:
    """Return an extension; None if there is none, or none that can be read: that grants nothing."""
    try:
        return certificate.extensions.get_extension_for_class(kind).value
    except (x509.ExtensionNotFound, x509.DuplicateExtension, x509.UnsupportedGeneralNameType, ValueError):
        return None


def identity_of(chain: Sequence[x509.Certificate], suite: str) -> PeerIdentity:
    """Return who holds the first certificate of a chain."""
    certificate = chain[0]
    return PeerIdentity(
        common_name(certificate) or "",
        certificate.serial_number,
        certificate.fingerprint(SHA256()).hex(),
        certificate.issuer.rfc4514_string(),
        suite,
        min(one.not_valid_after_utc for one in chain).timestamp(),
        tuple(identity_of([one], "") for one in chain[1:]),
    )


@dataclass(frozen=True, slots=True)
class Admission:
    """Whom an end accepts, beyond what the library verifies (signatures, dates)."""

    role: Role
    """What the peer must be."""
    expected: str = ""
    """A client's gateway: one of its names must be this."""
    revoked: Revoked = field(default_factory=Revoked)

    def refusal(self, *chain: x509.Certificate) -> str:
        """Return why the holder of the first certificate of a chain is not accepted, or an empty string."""
        certificate = chain[0]
        if not may_be(certificate, self.role):
            return "wrong_role"
        if self.role == "gateway" and canonical(self.expected) not in all_names(certificate):
            return "wrong_name"
        if self.role == "device" and common_name(certificate) is None:
            return "no_name"
        return self.revocation(*chain)

    def revocation(self, *chain: x509.Certificate) -> str:
        """Return "revoked" if a certificate of a chain is, or an empty string."""
        return "revoked" if self.revoked.holds(identity_of(chain, "")) else ""
