"""A certificate authority in a folder: enough for a fleet without a PKI of its own.

    ca.key        the private key (mode 0600); keep it off the gateway
    ca.pem        the certificate that every identity file trusts
    issued.tsv    one line for each certificate that was issued: serial, role, name, end
    revoked.txt   what gateways are told to refuse (`revoked=`)

A certificate is entered in the list before it is written, so that none exists which cannot be revoked. Both lists are
written anew and renamed: a gateway, a copy and a full disk find the old one or the new one, never half of it.
"""

from __future__ import annotations

import fcntl
import ipaddress
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import NameOID

from fairway.core.errors import BadOption
from fairway.dtls.certificates import NAME, USAGES, Role, parse_list
from fairway.dtls.errors import BadIdentity

BACKDATED = timedelta(minutes=5)
"""Devices whose clocks are a little slow take a certificate at once."""

KEY, CERTIFICATE, ISSUED, REVOKED = "ca.key", "ca.pem", "issued.tsv", "revoked.txt"


@dataclass(frozen=True, slots=True)
class Issued:
    """A certificate that was issued."""

    serial: int
    role: str
    name: str
    ends: str
    revoked: bool = False


class Authority:
    """A CA in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def create(self, name: str, days: int, now: datetime) -> None:
        """Make the CA's key and certificate; a folder that has them is left alone."""
        _check_name(name)
        self.folder.mkdir(parents=True, exist_ok=True)
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _subject(name)
        certificate = (
            _builder(subject, subject, key.public_key(), days, now)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_key_usage(signs_certificates=True), critical=True)
            .sign(key, SHA256())
        )
        with self._locked():
            if (self.folder / KEY).exists() or (self.folder / CERTIFICATE).exists():
                raise BadIdentity(f"{self.folder} holds a CA already; choose another folder")
            _write_secret(self.folder / KEY, _key_pem(key))
            (self.folder / REVOKED).touch()
            self._write(CERTIFICATE, certificate.public_bytes(Encoding.PEM).decode())

    def issue(self, name: str, role: Role, days: int, out: Path, now: datetime) -> Issued:
        """Write an identity file for a device or a gateway: key, certificate, CA certificate, mode 0600."""
        _check_name(name)
        if out.exists():
            raise BadIdentity(f"{out} exists already; it is not overwritten")
        authority_key, authority = self._load()
        if (end := authority.not_valid_after_utc) <= now:
            raise BadIdentity(f"the CA in {self.folder} expired on {end:%Y-%m-%d}; make another")
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = (
            _builder(_subject(name), authority.subject, key.public_key(), days, now)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([USAGES[role]]), critical=False)
            .add_extension(x509.SubjectAlternativeName(_alternatives(name)), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False
            )
            .sign(authority_key, SHA256())
        )
        issued = Issued(certificate.serial_number, role, name, f"{certificate.not_valid_after_utc:%Y-%m-%d}")
        with self._locked():
            self._write(ISSUED, self._text(ISSUED) + f"{issued.serial:x}\t{role}\t{name}\t{issued.ends}\n")
        pem = certificate.public_bytes(Encoding.PEM) + authority.public_bytes(Encoding.PEM)
        _write_secret(out, _key_pem(key) + pem)
        return issued

    def issued(self) -> list[Issued]:
        """Return every certificate that was issued, and whether it is revoked."""
        self._load_certificate()
        path = self.folder / ISSUED
        revoked = parse_list(self._text(REVOKED), str(self.folder / REVOKED))
        found = []
        for number, line in enumerate(self._text(ISSUED).splitlines(), 1):
            try:
                digits, role, name, ends = line.split("\t")
                serial = int(digits, 16)
            except ValueError as error:
                raise BadIdentity(f"{path}, line {number} is damaged: it must be serial, role, name and end") from error
            found.append(Issued(serial, role, name, ends, serial in revoked.serials or name in revoked.names))
        return found

    def revoke(self, which: str) -> list[Issued]:
        """Revoke certificates of a name, or of a serial number in hexadecimal; return those that were valid."""
        self._load_certificate()
        with self._locked():
            chosen = [one for one in self.issued() if which in {one.name, f"{one.serial:x}"}]
            if not chosen:
                raise BadIdentity(f"{self.folder} has issued nothing to, or with the serial number, {which!r}")
            valid = [one for one in chosen if not one.revoked]
            lines = "".join(f"serial:{one.serial:x}  # {one.name}\n" for one in valid)
            text = self._text(REVOKED)
            self._write(REVOKED, text + ("\n" if text and not text.endswith("\n") else "") + lines)
        return valid

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Keep others from changing the folder: two that read, add and write at once would lose what one has added."""
        descriptor = os.open(self.folder, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
            os.fsync(descriptor)  # new names are there after a power cut, too
        finally:
            os.close(descriptor)

    def _text(self, name: str) -> str:
        path = self.folder / name
        return path.read_text(errors="surrogateescape") if path.exists() else ""

    def _write(self, name: str, text: str) -> None:
        """Write a file that is there whole or as it was before."""
        aside = self.folder / f"{name}.new"
        with aside.open("w", errors="surrogateescape") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(self.folder / name)

    def _load_certificate(self) -> x509.Certificate:
        path = self.folder / CERTIFICATE
        if not path.exists():
            raise BadIdentity(f"{self.folder} holds no CA; make one: fairway ca init {self.folder}")
        try:
            return x509.load_pem_x509_certificate(path.read_bytes())
        except ValueError as error:
            raise BadIdentity(f"{path} is damaged: {error}") from error

    def _load(self) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
        certificate = self._load_certificate()
        path = self.folder / KEY
        try:
            key = load_pem_private_key(path.read_bytes(), password=None)
        except (OSError, TypeError, ValueError) as error:
            raise BadIdentity(f"{path} cannot be read, and without it nothing can be issued") from error
        if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
            raise BadIdentity(f"{path} is not the key of {self.folder / CERTIFICATE}")
        return key, certificate


def _check_name(name: str) -> None:
    if not NAME.fullmatch(name):
        raise BadOption(f"{name!r} is no name: 1 to 64 letters, digits, '.', '_' and '-'")


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int, now: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True, content_commitment=False, key_encipherment=False, data_encipherment=False,
        key_agreement=False, key_cert_sign=signs_certificates, crl_sign=signs_certificates,
        encipher_only=False, decipher_only=False,
    )  # fmt: skip


def _alternatives(name: str) -> list[x509.GeneralName]:
    try:
        return [x509.DNSName(name), x509.IPAddress(ipaddress.ip_address(name))]
    except ValueError:
        return [x509.DNSName(name)]


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _write_secret(path: Path, data: bytes) -> None:
    """Write a new file that only its owner may read, from its first byte on."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
