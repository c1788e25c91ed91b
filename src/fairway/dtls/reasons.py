"""Why handshakes fail, in words for whoever called a gateway. The short names are what counters show."""

from __future__ import annotations

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


def explained(reason: str) -> str:
    """Return a sentence for a reason, or the reason itself."""
    return REASONS.get(reason, reason.replace("_", " "))
