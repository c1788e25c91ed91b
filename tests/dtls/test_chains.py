"""CAs between root and device: whoever of them is revoked takes along what it issued; and certificates that end."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from fairway.core.random_source import Seeded
from fairway.dtls import DtlsClient, DtlsGateway
from fairway.dtls.certificates import USAGES, Admission, Role
from fairway.dtls.cookies import Cookies
from fairway.dtls.identity import IdentityFiles, read_identity
from fairway.dtls.openssl import OpensslClientEngine, OpensslGatewayEngine
from tests.dtls.test_associations import A, B
from tests.dtls.world import GATEWAY, GATEWAY_NAME, NOW, SECOND_US, Fleet, World

DAY = timedelta(days=1)


def subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


class Holder:
    """A key and its certificate, issued by another or by itself."""

    def __init__(
        self,
        name: str,
        issuer: Holder | None,
        role: Role | None = None,
        *,
        days: int = 9,
        names: Sequence[x509.GeneralName] = (),
    ) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.above: list[Holder] = [] if issuer is None else [issuer, *issuer.above]
        signer = issuer or self
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject(name))
            .issuer_name(subject(name) if issuer is None else issuer.certificate.subject)
            .public_key(self.key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(NOW - DAY)
            .not_valid_after(NOW + days * DAY)
            .add_extension(x509.BasicConstraints(ca=role is None, path_length=None), critical=True)
        )
        if role is not None:
            builder = builder.add_extension(x509.ExtendedKeyUsage([USAGES[role]]), critical=False)
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        self.certificate: x509.Certificate = builder.sign(signer.key, SHA256())

    def pem(self) -> bytes:
        """Return an identity file: key, certificate, everything above."""
        key = self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        return key + b"".join(one.certificate.public_bytes(Encoding.PEM) for one in (self, *self.above))

    def crl(self, *revoked: Holder) -> bytes:
        builder = x509.CertificateRevocationListBuilder().issuer_name(self.certificate.subject)
        builder = builder.last_update(NOW - DAY).next_update(NOW + DAY)
        for one in revoked:
            entry = x509.RevokedCertificateBuilder().serial_number(one.certificate.serial_number)
            builder = builder.add_revoked_certificate(entry.revocation_date(NOW - DAY).build())
        return builder.sign(self.key, SHA256()).public_bytes(Encoding.PEM)


class Pki:
    """A root, two CAs below it, a device of each, and a gateway of the root's."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = Holder("root", None)
        self.plants = [Holder(f"plant-{number}", self.root) for number in (1, 2)]
        self.devices = [Holder(f"sensor-{number}", plant, "device") for number, plant in enumerate(self.plants, 1)]
        self._gateway = self.written("gateway.pem", Holder(GATEWAY_NAME, self.root, "gateway").pem())

    def written(self, name: str, data: bytes) -> str:
        path = self.folder / name
        path.touch(0o600)
        path.write_bytes(data)
        return str(path)

    def engine(self, **lists: str) -> OpensslGatewayEngine:
        files = IdentityFiles(identity=self._gateway, **lists)
        return OpensslGatewayEngine(read_identity(files, "gateway", NOW), Cookies(b"secret"))

    def client(self, device: Holder) -> DtlsClient:
        files = IdentityFiles(identity=self.written("device.pem", device.pem()))
        return DtlsClient(OpensslClientEngine(read_identity(files, "device", NOW), GATEWAY_NAME), GATEWAY, Seeded(1))

    def revoking(self, by: str) -> dict[str, str]:
        """Return the setting that revokes the first of the CAs."""
        plant = self.plants[0].certificate
        lines = {
            "name": "plant-1",
            "serial": f"serial:{plant.serial_number:x}",
            "fingerprint": f"sha256:{plant.fingerprint(SHA256()).hex()}",
        }
        if by == "crl":
            return {"crl": self.written("crl.pem", self.root.crl(self.plants[0]))}
        return {"revoked": self.written("revoked.txt", lines[by].encode())}


@pytest.mark.parametrize("by", ["name", "serial", "fingerprint", "crl"])
def test_a_revoked_ca_takes_along_every_device_below_it_and_no_other(by: str, tmp_path: Path) -> None:
    pki = Pki(tmp_path)
    world = World(DtlsGateway(pki.engine()))
    for address, device in zip((A, B), pki.devices, strict=True):
        world.add(pki.client(device), address)
        world.say(address, b"hello")
    world.run(SECOND_US)
    assert len(world.gateway.associations()) == 2
    world.gateway.replace_engine(pki.engine(**pki.revoking(by)), world.now_us)
    world.settle()
    for _ in range(100):
        world.say(A, b"refused")
        world.say(B, b"taken")
        world.run(50_000)
    assert world.of(A, "sensor-1") == [b"hello"]
    assert world.of(B, "sensor-2") == [b"hello", *[b"taken"] * 100]
    assert world.gateway.counters.dropped["association_revoked"] == 1
    assert set(world.gateway.counters.failed) == {"revoked"}
    assert world.clients[B].counters.renewals == 0


def test_a_client_refuses_a_gateway_whose_ca_is_revoked(tmp_path: Path) -> None:
    pki = Pki(tmp_path)
    below = pki.written("below.pem", Holder(GATEWAY_NAME, pki.plants[0], "gateway").pem())
    gateway = read_identity(IdentityFiles(identity=below), "gateway", NOW)
    device = IdentityFiles(identity=pki.written("device.pem", pki.devices[1].pem()), **pki.revoking("serial"))
    world = World(DtlsGateway(OpensslGatewayEngine(gateway, Cookies(b"secret"))))
    engine = OpensslClientEngine(read_identity(device, "device", NOW), GATEWAY_NAME)
    client = world.add(DtlsClient(engine, GATEWAY, Seeded(1)), A)
    world.say(A, b"secret")
    world.run(SECOND_US)
    assert not client.is_up
    assert set(client.counters.failed) == {"revoked"}


def test_an_association_ends_with_its_certificate_though_the_device_never_renews(fleet: Fleet) -> None:
    fleet.file("short-lived", days=1)
    now_s = NOW.timestamp()
    engine = OpensslGatewayEngine(fleet.identity(GATEWAY_NAME, "gateway"), Cookies(b"secret"), clock=lambda: now_s)
    world = World(DtlsGateway(engine))
    for address, name in ((A, "short-lived"), (B, "sensor-1")):
        world.add(fleet.client(name), address)
        world.say(address, b"hello")
    world.run(30 * SECOND_US)
    before = world.gateway.associations()
    assert [one.peer.name for one in before] == ["short-lived", "sensor-1"]
    del world.clients[A]
    now_s += DAY.total_seconds() + 60
    world.run(30 * SECOND_US)
    assert world.gateway.associations() == before[1:]
    assert world.gateway.counters.dropped == {"association_expired": 1}


def test_an_association_ends_with_a_ca_above_it(tmp_path: Path) -> None:
    pki = Pki(tmp_path)
    plant = Holder("plant-3", pki.root, days=2)
    world = World(DtlsGateway(pki.engine()))
    world.add(pki.client(Holder("sensor-3", plant, "device")), A)
    world.say(A, b"hello")
    world.run(SECOND_US)
    [up] = world.gateway.associations()
    assert [one.name for one in up.peer.above] == ["plant-3", "root"]
    assert up.peer.ends_s == plant.certificate.not_valid_after_utc.timestamp()


def test_a_ca_that_has_ended_is_no_hindrance_beside_one_that_took_its_place(tmp_path: Path) -> None:
    pki = Pki(tmp_path)
    ended = Holder("old", None, days=0).certificate.public_bytes(Encoding.PEM)
    files = IdentityFiles(identity=pki.written("both.pem", pki.devices[0].pem() + ended))
    assert read_identity(files, "device", NOW + timedelta(hours=1)).name == "sensor-1"


@pytest.mark.parametrize(
    ("expected", "reason"),
    [
        ("gateway.test", ""),
        ("GateWay.Test", ""),
        ("other.test", ""),
        ("2001:DB8:0::1", ""),
        ("192.0.2.1", ""),
        ("192.0.2.2", "wrong_name"),
        ("a.wild.test", "wrong_name"),
        ("test", "wrong_name"),
        ("gateway.test.", "wrong_name"),
        ("", "wrong_name"),
    ],
)
def test_a_gateway_is_known_by_whole_names_and_addresses_and_by_no_wildcard(expected: str, reason: str) -> None:
    names = [
        *map(x509.DNSName, ("Other.test", "*.wild.test")),
        *(x509.IPAddress(ip_address(one)) for one in ("2001:db8::1", "192.0.2.1")),
    ]
    gateway = Holder("gateway.test", None, "gateway", names=names)
    assert Admission("gateway", expected).refusal(gateway.certificate) == reason


def test_a_root_whose_key_was_stolen_is_revoked_by_its_fingerprint_as_openssl_prints_it(tmp_path: Path) -> None:
    pki = Pki(tmp_path)
    world = World(DtlsGateway(pki.engine()))
    world.add(pki.client(pki.devices[0]), A)
    world.say(A, b"hello")
    world.run(SECOND_US)
    assert len(world.gateway.associations()) == 1
    digits = pki.root.certificate.fingerprint(SHA256()).hex(":").upper()
    listed = pki.written("revoked.txt", f"sha256:{digits}\n".encode())
    world.gateway.replace_engine(pki.engine(revoked=listed), world.now_us)
    world.run(5 * SECOND_US)
    assert world.gateway.associations() == []
    assert set(world.gateway.counters.failed) == {"revoked"}
