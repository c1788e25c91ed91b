"""`fairway ca`: certificates for gateways and devices."""

from __future__ import annotations

from datetime import UTC, datetime
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from fairway.cli import options
from fairway.cli.options import argument, option

if TYPE_CHECKING:
    from fairway.dtls.authority import Authority

ca = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

DAYS_MAX = 36_500
_DIR = argument(..., "DIR", "The CA's folder.")


def _authority(folder: Path) -> Authority:
    from fairway.dtls.errors import require_packages

    require_packages()
    from fairway.dtls.authority import Authority

    return Authority(folder)


@ca.command()
def init(
    folder: Path = _DIR,
    name: str = option("fairway-ca", "--name", help="Name of the CA."),
    days: int = option(3_650, "--days", min=1, max=DAYS_MAX, help="How long the CA is valid."),
) -> None:
    """Make a certificate authority in a folder. Keep its key off the gateway.

    \b
    Example:
      fairway ca init ca
    """
    _authority(folder).create(name, days, datetime.now(UTC))
    from fairway.dtls.authority import CERTIFICATE

    print(f"{folder / CERTIFICATE}: the CA {name}, valid for {days} days")


@ca.command()
def issue(
    folder: Path = _DIR,
    name: str = argument(..., "NAME", "The device, or the gateway's host name."),
    gateway: bool = option(False, "--gateway", help="For a gateway, not for a device."),
    days: int = option(365, "--days", min=1, max=DAYS_MAX, help="How long it is valid."),
    out: Path = option(..., "--out", metavar="FILE", help="The identity file; it must not exist yet."),
) -> None:
    """Issue a key and a certificate: one file for `identity=`, which only its owner may read.

    \b
    Example:
      fairway ca issue ca gateway.example --gateway --out gateway.pem
      fairway ca issue ca sensor-17 --days 730 --out sensor-17.pem
    """
    issued = _authority(folder).issue(name, "gateway" if gateway else "device", days, out, datetime.now(UTC))
    print(f"{out}: the {issued.role} {name}, serial {issued.serial:x}, until {issued.ends}")


@ca.command("list")
def list_(folder: Path = _DIR, json: bool = options.json()) -> None:
    """Show what was issued, and what is revoked or expired.

    \b
    Example:
      fairway ca list ca
    """
    today = f"{datetime.now(UTC):%Y-%m-%d}"
    for one in _authority(folder).issued():
        state = "revoked" if one.revoked else "expired" if one.ends < today else "valid"
        row = {"name": one.name, "role": one.role, "serial": f"{one.serial:x}", "until": one.ends, "state": state}
        if json:
            print(dumps(row))
        else:
            print(f"{state:8}{one.role:8} {one.ends}  {one.serial:>40x}  {one.name}")


@ca.command()
def revoke(folder: Path = _DIR, which: str = argument(..., "NAME|SERIAL", "Whose certificates, or which one.")) -> None:
    """Revoke certificates: they are entered in DIR/revoked.txt, which gateways read (`revoked=`).

    \b
    Example:
      fairway ca revoke ca sensor-17
    """
    revoked = _authority(folder).revoke(which)
    from fairway.dtls.authority import REVOKED

    for one in revoked:
        print(f"revoked {one.serial:x} of {one.name}")
    if not revoked:
        print(f"{which} was revoked before")
    print(f"{folder / REVOKED} is what gateways must have")
