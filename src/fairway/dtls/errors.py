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


def require_packages() -> None:
    """Raise `DtlsMissing` unless the packages are installed that DTLS needs."""
    for package, name in (("OpenSSL", "pyOpenSSL"), ("cryptography", "cryptography")):
        if find_spec(package) is None:
            raise DtlsMissing(f"the package {name} is missing: pip install 'fairway[dtls]'")
