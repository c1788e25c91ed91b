"""Identity files: every bad one is refused in a sentence that names the file and what helps."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from fairway.core.errors import BadOption
from fairway.dtls.authority import Authority
from fairway.dtls.errors import BadIdentity
from fairway.dtls.identity import IdentityFiles, read_identity
from fairway.dtls.openssl import OpensslClientEngine
from tests.dtls.world import NOW, Fleet


def read(path: Path, **files: str) -> str:
    """Return the name of the device whose identity a file is."""
    return read_identity(IdentityFiles(identity=str(path), **files), "device", NOW).name


@pytest.fixture
def mine(fleet: Fleet, tmp_path: Path) -> Path:
    """A good identity file, to be spoilt."""
    path = tmp_path / "mine.pem"
    path.write_bytes(fleet.file("sensor-1").read_bytes())
    path.chmod(0o600)
    return path


def blocks(path: Path) -> list[str]:
    """Return key, certificate and CA certificate."""
    return [f"-----BEGIN{block}" for block in path.read_text().split("-----BEGIN")[1:]]


def test_the_order_of_the_blocks_does_not_matter(mine: Path) -> None:
    key, certificate, authority = blocks(mine)
    for order in ((key, certificate, authority), (authority, certificate, key), (certificate, key, authority)):
        mine.write_text("a comment\n" + "".join(order))
        assert read(mine) == "sensor-1"


def test_three_files_do_as_well_as_one(mine: Path, tmp_path: Path) -> None:
    for name, block in zip(("key", "cert", "ca"), blocks(mine), strict=True):
        (tmp_path / name).write_text(block)
    (tmp_path / "key").chmod(0o600)
    files = IdentityFiles(cert=str(tmp_path / "cert"), key=str(tmp_path / "key"), ca=str(tmp_path / "ca"))
    assert read_identity(files, "device", NOW).name == "sensor-1"
    (tmp_path / "key").chmod(0o644)
    with pytest.raises(BadIdentity, match="chmod 600"):
        read_identity(files, "device", NOW)


def test_one_file_and_three_are_not_mixed() -> None:
    with pytest.raises(BadOption, match="one file, or three"):
        IdentityFiles(identity="a", ca="b")
    with pytest.raises(BadOption, match="needs identity=FILE"):
        IdentityFiles(cert="a", key="b")


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (lambda own: "".join(own[1:]), "holds no private key; it must hold one"),
        (lambda own: "".join([own[0], *own]), "holds 2 private keys"),
        (lambda own: "".join(own)[:-40], "is truncated"),
        (lambda own: "".join([own[0], own[2]]), "no certificate .* belongs to its key"),
        (lambda own: own[0] + own[1], "holds no CA certificate to trust; append"),
        (lambda own: own[0], "holds no certificate in PEM"),
        (lambda own: "".join([own[0], own[1].replace("MI", "AA", 1), own[2]]), "a certificate in .* is damaged or of"),
        (lambda own: "".join([own[0].replace("MI", "AA", 1), *own[1:]]), "cannot be read: it is damaged"),
        (lambda own: "", "holds no private key"),
    ],
)
def test_a_spoilt_file_is_refused_in_a_sentence(spoil: Callable[[list[str]], str], sentence: str, mine: Path) -> None:
    secret = blocks(mine)[0].splitlines()[1]
    mine.write_text(spoil(blocks(mine)))
    with pytest.raises(BadIdentity, match=sentence) as caught:
        read(mine)
    assert str(mine) in str(caught.value)
    assert secret not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_key_of_another_certificate_is_refused(mine: Path, fleet: Fleet) -> None:
    mine.write_text("".join([blocks(fleet.file("sensor-2"))[0], *blocks(mine)[1:]]))
    with pytest.raises(BadIdentity, match="belongs to its key: the key is another's"):
        read(mine)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644])
def test_a_file_that_others_may_read_is_refused_with_the_command_that_helps(mode: int, mine: Path) -> None:
    mine.chmod(mode)
    with pytest.raises(BadIdentity, match=f"chmod 600 {mine}"):
        read(mine)
    mine.chmod(0o400)
    assert read(mine) == "sensor-1"


def test_a_file_without_a_key_is_not_said_to_hold_one_that_others_may_read(mine: Path) -> None:
    mine.write_text("".join(blocks(mine)[1:]))
    mine.chmod(0o644)
    with pytest.raises(BadIdentity, match="holds no private key"):
        read(mine)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadIdentity, match=r"none\.pem: No such file or directory"):
        read(tmp_path / "none.pem")


def test_an_encrypted_key_and_one_of_another_kind_are_refused(mine: Path, tmp_path: Path) -> None:
    for command, sentence in (
        (f"pkcs8 -topk8 -in {mine} -passout pass:secret", "is encrypted; decrypt it: openssl pkey"),
        ("genpkey -algorithm ed25519", "is no EC key; make one"),
    ):
        key = subprocess.run(["openssl", *command.split()], capture_output=True, text=True, check=True).stdout
        other = tmp_path / "other.pem"
        other.write_text("".join([key, *blocks(mine)[1:]]))
        other.chmod(0o600)
        with pytest.raises(BadIdentity, match=sentence):
            read(other)


def test_a_ca_of_a_kind_that_nobody_reads_is_refused(mine: Path, tmp_path: Path) -> None:
    """A gateway that reads its files again must not end by it."""
    for command in ("genpkey -algorithm SM2 -out k", "req -x509 -new -key k -sm3 -subj /CN=sm2 -days 9 -out ca.pem"):
        subprocess.run(["openssl", *command.split()], cwd=tmp_path, check=True, capture_output=True)
    mine.write_text(mine.read_text() + (tmp_path / "ca.pem").read_text())
    with pytest.raises(BadIdentity, match=r"a certificate in .* is damaged or of an unknown kind"):
        read(mine)


def test_what_has_expired_or_is_not_yet_valid_is_refused(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca")
    authority.create("ca", 5, NOW - timedelta(days=20))
    old, new = tmp_path / "old.pem", tmp_path / "new.pem"
    authority.issue("old", "device", 2, old, NOW - timedelta(days=20))
    authority.issue("new", "device", 50, new, NOW - timedelta(days=18))
    with pytest.raises(BadIdentity, match=r"the certificate of old in .* expired on"):
        read(old)
    with pytest.raises(BadIdentity, match="the CA certificate ca expired on"):
        read(new)
    files = IdentityFiles(identity=str(new))
    assert read_identity(files, "device", NOW - timedelta(days=17)).name == "new"
    with pytest.raises(BadIdentity, match="is the clock right"):
        read_identity(files, "device", NOW - timedelta(days=19))


def test_a_certificate_of_another_ca_and_one_for_another_role_are_refused(
    mine: Path, fleet: Fleet, tmp_path: Path
) -> None:
    other = Authority(tmp_path / "ca")
    other.create("other", 5, NOW)
    key, certificate, _ = blocks(mine)
    mine.write_text(key + certificate + (tmp_path / "ca" / "ca.pem").read_text())
    with pytest.raises(BadIdentity, match="is not signed by the CA beside it"):
        read(mine)
    with pytest.raises(BadIdentity, match="is not for a gateway: it lacks the usage serverAuth"):
        fleet.identity("sensor-1", "gateway")


def test_a_key_that_openssl_finds_too_small_is_refused(
    fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairway.dtls.authority.ec.SECP256R1", ec.SECP192R1)
    fleet.authority.issue("small", "device", 5, tmp_path / "small.pem", NOW)
    identity = read_identity(IdentityFiles(identity=str(tmp_path / "small.pem")), "device", NOW)
    with pytest.raises(BadIdentity, match="the certificate of small cannot be used: ee key too small"):
        OpensslClientEngine(identity, "gateway")


def test_an_identity_never_shows_its_key(fleet: Fleet) -> None:
    assert "sensor" not in repr(fleet.identity("sensor-1"))


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("serial:xyz", "line 2: 'serial:xyz' is no name"),
        ("two words", "line 2"),
        ("sha256:00", "line 2"),
        ("\ufeffsensor-1", "line 2"),
        ("sensor-1,sensor-2", "line 2"),
    ],
)
def test_a_list_of_the_revoked_that_cannot_be_read_is_refused(
    line: str, sentence: str, fleet: Fleet, tmp_path: Path
) -> None:
    listed = tmp_path / "revoked.txt"
    listed.write_text(f"# nobody yet\n{line}\n")
    with pytest.raises(BadIdentity, match=sentence):
        read(fleet.file("sensor-1"), revoked=str(listed))


def test_the_crl_of_a_pki_revokes_its_own_and_must_be_signed_by_it(fleet: Fleet, tmp_path: Path) -> None:
    def openssl(command: str) -> None:
        subprocess.run(["openssl", *command.split()], cwd=tmp_path, check=True, capture_output=True)

    (tmp_path / "index.txt").touch()
    (tmp_path / "crlnumber").write_text("01\n")
    (tmp_path / "ca.cnf").write_text(
        "[ca]\ndefault_ca=x\n[x]\ndatabase=index.txt\ncrlnumber=crlnumber\ndefault_md=sha256\ndefault_crl_days=30\n"
        "[req]\ndistinguished_name=dn\nx509_extensions=ca_ext\n[dn]\n"
        "[ca_ext]\nbasicConstraints=critical,CA:true\nkeyUsage=keyCertSign,cRLSign\n"
        "[device]\nextendedKeyUsage=clientAuth\n"
    )
    openssl("ecparam -name prime256v1 -genkey -noout -out ca.key")
    openssl("req -x509 -config ca.cnf -key ca.key -subj /CN=pki -days 30 -out ca.pem")
    openssl("ecparam -name prime256v1 -genkey -noout -out d.key")
    openssl("req -new -config ca.cnf -key d.key -subj /CN=sensor-9 -out d.csr")
    openssl("x509 -req -in d.csr -CA ca.pem -CAkey ca.key -days 9 -extfile ca.cnf -extensions device -out d.pem")
    openssl("ca -config ca.cnf -gencrl -keyfile ca.key -cert ca.pem -out before.pem")
    openssl("ca -config ca.cnf -revoke d.pem -keyfile ca.key -cert ca.pem")
    openssl("ca -config ca.cnf -gencrl -keyfile ca.key -cert ca.pem -out crl.pem")
    (tmp_path / "d.key").chmod(0o600)
    files = {name: str(tmp_path / path) for name, path in (("cert", "d.pem"), ("key", "d.key"), ("ca", "ca.pem"))}
    # A PKI with CAs below its root has several, which may stand in one file.
    (tmp_path / "all.pem").write_text((tmp_path / "before.pem").read_text() + (tmp_path / "crl.pem").read_text())
    for crl in ("crl.pem", "all.pem"):
        identity = read_identity(IdentityFiles(**files, crl=str(tmp_path / crl)), "device", datetime.now(UTC))
        assert identity.revoked.by_issuer == {("CN=pki", identity.certificate.serial_number)}
    with pytest.raises(BadIdentity, match="is not signed by a CA of this identity"):
        read(fleet.file("sensor-1"), crl=str(tmp_path / "crl.pem"))
