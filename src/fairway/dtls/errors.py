"""What keeps DTLS from starting, each said in one sentence with its remedy.

FairwayError
└── DtlsError
    ├── DtlsMissing         the packages of the extra `dtls` are not installed
    └── BadIdentity         a key, a certificate or a list of the revoked cannot be used
"""

from __future__ import annotations

from importlib.util import find_spec

from fairway.core.errors import FairwayError


class DtlsError(FairwayError):
    """DTLS cannot start."""


class DtlsMissing(DtlsError):
    """The packages of the extra `dtls` are not installed."""


class BadIdentity(DtlsError):
    """A key, a certificate or a list of the revoked cannot be used."""


HANDSHAKE_FAILED = "the DTLS handshake failed"

REASONS = {
    "wrong_name": "the gateway's certificate is for another name; name= says which one is expected",
    "wrong_role": "the certificate at the other end is not a gateway's",
    "unknown_ca": "the gateway's certificate is not signed by a CA of our identity",
    "expired": "the gateway's certificate has expired, or the clock of this machine is wrong",
    "not_yet_valid": "the gateway's certificate is not valid yet, or the clock of this machine is wrong",
    "alert_unknown_ca": "the gateway does not trust the CA of our certificate",
    "alert_certificate_expired": "the gateway says that our certificate has expired",
    "alert_internal_error": "the gateway refuses our certificate: it is revoked, or not that of a device",
    "alert_handshake_failure": "the gateway wants another certificate or another cipher suite",
    "revoked": "the gateway's certificate is revoked",
}
"""Why handshakes fail, by the short names that counters show, in words for whoever called a gateway."""


def explained(reason: str) -> str:
    """Return a sentence for a reason, or the reason itself."""
    return REASONS.get(reason, reason.replace("_", " "))


def require_packages() -> None:
    """Raise `DtlsMissing` unless the packages are installed that DTLS needs."""
    for package, name in (("OpenSSL", "pyOpenSSL"), ("cryptography", "cryptography")):
        if find_spec(package) is None:
            raise DtlsMissing(f"the package {name} is missing: pip install 'fairway[dtls]'")
