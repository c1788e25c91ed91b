"""A CA in a folder, the identities of a gateway and its devices, and URLs that name them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from fairway.dtls import require_packages

if TYPE_CHECKING:
    from fairway.dtls.certificates import Role

GATEWAY = "gateway"
DAYS = 30


@dataclass(frozen=True, slots=True)
class Keys:
    """The identity files in a folder, each issued when it is first wanted; the gateway's first."""

    folder: Path

    def gateway_url(self, url: str) -> str:
        """Return a URL to serve."""
        identity = self._file(GATEWAY, "gateway")
        return f"{url}{'&' if '?' in url else '?'}identity={identity}&revoked={self.folder / 'ca' / 'revoked.txt'}"

    def device_url(self, url: str, device: str) -> str:
        """Return a URL for a device to call."""
        return f"{url}{'&' if '?' in url else '?'}identity={self._file(device, 'device')}&name={GATEWAY}"

    def _file(self, name: str, role: Role) -> Path:
        require_packages()
        from fairway.dtls.authority import Authority

        authority, now = Authority(self.folder / "ca"), datetime.now(UTC)
        path = self.folder / f"{name}.pem"
        if not authority.folder.exists():
            authority.create("ca", DAYS, now)
        if not path.exists():
            authority.issue(name, role, DAYS, path, now)
        return path
