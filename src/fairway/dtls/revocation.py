"""Who is no longer accepted: a list of names, serial numbers and fingerprints, and the CRLs of a PKI.

    # one a line; what follows a # is a comment
    sensor-17                        every certificate of that name, those of the future too
    serial:4f2a...                   one certificate, its serial number in hexadecimal
    sha256:9b1c...                   one certificate, by its fingerprint

`fairway ca revoke` writes serial numbers, so that a device that was replaced can be issued its name again.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fairway.dtls.engine import PeerIdentity
from fairway.dtls.errors import BadIdentity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cryptography import x509


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
    from cryptography import x509

    try:
        crl = x509.load_pem_x509_crl(pem)
    except ValueError as error:
        raise BadIdentity(f"{source} is no CRL in PEM: {error}") from error
    signers = [one.public_key() for one in authorities if one.subject == crl.issuer]
    if not any(crl.is_signature_valid(key) for key in signers):  # type: ignore[arg-type]  # a CA's key can sign
        raise BadIdentity(f"{source} is not signed by a CA of this identity")
    issuer = crl.issuer.rfc4514_string()
    return Revoked(by_issuer=frozenset((issuer, one.serial_number) for one in crl))
