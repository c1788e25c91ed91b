"""What Fairway reads in a certificate: names, the role, the fingerprint; and whom it accepts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from cryptography import x509
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fairway.dtls.engine import PeerIdentity
from fairway.dtls.revocation import NAME, Revoked

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
