"""`fairway ca`: what it issues works, what it prints holds no secret, and mistakes get one sentence."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from threading import Barrier

import pytest

from fairway.cli import run
from fairway.dtls.authority import Authority
from fairway.dtls.errors import BadIdentity
from tests.conftest import ROOT
from tests.dtls.world import NOW


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    """A folder with a CA that has issued to a gateway and a device."""
    monkeypatch.chdir(tmp_path)
    assert run("ca init ca --name fleet".split()) == 0
    assert run("ca issue ca gateway.test --gateway --out gateway.pem".split()) == 0
    assert run("ca issue ca sensor-1 --days 9 --out sensor-1.pem".split()) == 0
    printed = capsys.readouterr()
    for name in ("ca/ca.key", "gateway.pem", "sensor-1.pem"):
        secret = (tmp_path / name).read_text().splitlines()[1]
        assert len(secret) == 64
        assert secret not in printed.out + printed.err
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o600
    return tmp_path


def listed(capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    """Return the state of each certificate by name."""
    capsys.readouterr()
    assert run("ca list ca --json".split()) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    return {line["name"]: line["state"] for line in lines}


def test_what_is_issued_is_listed_and_verified_by_the_openssl_command(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert listed(capsys) == {"gateway.test": "valid", "sensor-1": "valid"}
    for name, purpose in (("gateway", "sslserver"), ("sensor-1", "sslclient")):
        verify = ["openssl", "verify", "-purpose", purpose, "-CAfile", "ca/ca.pem", f"{name}.pem"]
        assert subprocess.run(verify, cwd=folder, capture_output=True, text=True, check=True).stdout.endswith("OK\n")
        wrong = [*verify[:3], "sslclient" if purpose == "sslserver" else "sslserver", *verify[4:]]
        assert subprocess.run(wrong, cwd=folder, capture_output=True, check=False).returncode != 0


@pytest.mark.usefixtures("folder")
def test_what_is_revoked_is_listed_so_and_can_be_issued_again(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("ca revoke ca sensor-1".split()) == 0
    said = capsys.readouterr().out
    assert "revoked.txt is what gateways must have" in said
    serial = said.split()[1]
    assert Path("ca/revoked.txt").read_text() == f"serial:{serial}  # sensor-1\n"
    assert listed(capsys) == {"gateway.test": "valid", "sensor-1": "revoked"}
    assert run(f"ca revoke ca {serial}".split()) == 0
    assert "was revoked before" in capsys.readouterr().out
    assert run("ca issue ca sensor-1 --out again.pem".split()) == 0
    assert listed(capsys) == {"gateway.test": "valid", "sensor-1": "valid"}
    assert run("ca list ca".split()) == 0
    assert capsys.readouterr().out.count("revoked ") == 1


@pytest.mark.usefixtures("folder")
def test_what_is_revoked_is_so_below_a_line_that_somebody_did_not_end(capsys: pytest.CaptureFixture[str]) -> None:
    Path("ca/revoked.txt").write_text("# written by hand")
    assert run("ca revoke ca sensor-1".split()) == 0
    assert listed(capsys) == {"gateway.test": "valid", "sensor-1": "revoked"}


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (
            "ca issue ca x --days 3000000 --out x.pem",
            2,
            (
                "Invalid value for '--days': 3000000 is not in the range 1<=x<=36500."
                " (fairway ca issue --help shows the usage)"
            ),
        ),
        ("ca init ca", 1, "ca holds a CA already; choose another folder"),
        ("ca issue none x --out x.pem", 1, "none holds no CA; make one: fairway ca init none"),
        ("ca issue ca sensor-1 --out sensor-1.pem", 1, "sensor-1.pem exists already; it is not overwritten"),
        ("ca issue ca two/words --out x.pem", 2, "'two/words' is no name: 1 to 64 letters, digits, '.', '_' and '-'"),
        ("ca revoke ca nobody", 1, "ca has issued nothing to, or with the serial number, 'nobody'"),
        ("ca list none", 1, "none holds no CA; make one: fairway ca init none"),
    ],
)
def test_mistakes_get_one_sentence(
    arguments: str, code: int, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments.split()) == code
    assert capsys.readouterr().err == f"fairway: {sentence}\n"


def test_a_damaged_ca_is_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "ca" / "ca.key").write_text((folder / "sensor-1.pem").read_text())
    assert run("ca issue ca x --out x.pem".split()) == 1
    assert capsys.readouterr().err == "fairway: ca/ca.key is not the key of ca/ca.pem\n"
    for damage in (b"damaged\n", b"serial\tdevice\tx\t2030-01-01\n", b"\xff\n"):
        (folder / "ca" / "issued.tsv").write_bytes(damage)
        assert run("ca list ca".split()) == 1
        assert "line 1 is damaged" in capsys.readouterr().err


def test_what_many_issue_and_revoke_at_once_is_all_there(tmp_path: Path) -> None:
    """Each reads a list, adds to it and writes it: without a lock most of what the others have added is lost."""
    Authority(tmp_path / "ca").create("ca", 9, NOW)
    names = [f"sensor-{number}" for number in range(12)]
    together = Barrier(len(names), timeout=60)

    def change(name: str) -> None:
        authority = Authority(tmp_path / "ca")
        together.wait()
        authority.issue(name, "device", 5, tmp_path / f"{name}.pem", NOW)
        together.wait()
        authority.revoke(name)

    with ThreadPoolExecutor(len(names)) as threads:
        list(threads.map(change, names))
    issued = Authority(tmp_path / "ca").issued()
    assert sorted(one.name for one in issued if one.revoked) == sorted(names)
    assert len((tmp_path / "ca" / "revoked.txt").read_text().splitlines()) == len(names)


def test_an_expired_ca_issues_nothing(tmp_path: Path) -> None:
    Authority(tmp_path / "ca").create("ca", 9, NOW - timedelta(days=20))
    with pytest.raises(BadIdentity, match=r"the CA in .* expired on .*; make another"):
        Authority(tmp_path / "ca").issue("x", "device", 5, tmp_path / "x.pem", NOW)


WITHOUT = "import sys; sys.modules['OpenSSL'] = None; sys.modules['cryptography'] = None; "


def test_without_the_extra_fairway_works_and_asking_for_dtls_names_it() -> None:
    script = (
        WITHOUT + "import fairway.net, fairway.dtls; from fairway.cli import run; sys.exit(run(['ca', 'init', 'x']))"
    )
    environment = {"PYTHONPATH": str(ROOT / "src"), "PATH": "/usr/bin:/bin"}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (
        1,
        "fairway: the package pyOpenSSL is missing: pip install 'fairway[dtls]'\n",
    )
