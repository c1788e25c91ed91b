"""DTLS 1.2 between socket and machine: datagrams and a time in; datagrams, plaintexts and a deadline out.

`DtlsGateway` and `DtlsClient` know states, timers and bounds; an engine does the cryptography: OpenSSL's (`openssl.py`,
the extra `dtls`) or, in tests in virtual time, a fake. Nothing here needs the extra until it is asked for keys.
"""

from fairway.dtls.client import DtlsClient
from fairway.dtls.engine import PLAINTEXT_BYTES_MAX, Limits, PeerIdentity, Plaintext
from fairway.dtls.errors import BadIdentity, DtlsError, DtlsMissing, require_packages
from fairway.dtls.gateway import DtlsGateway
from fairway.dtls.outputs import DtlsCounters
from fairway.dtls.records import OVERHEAD_BYTES

__all__ = [
    "OVERHEAD_BYTES",
    "PLAINTEXT_BYTES_MAX",
    "BadIdentity",
    "DtlsClient",
    "DtlsCounters",
    "DtlsError",
    "DtlsGateway",
    "DtlsMissing",
    "Limits",
    "PeerIdentity",
    "Plaintext",
    "require_packages",
]
