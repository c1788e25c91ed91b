"""DTLS URLs on the command line: what works, and one sentence with the right exit code for what does not."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairway.cli import run
from tests.dtls.world import Fleet
from tests.examples import environment
from tests.loopback import own_host

Urls = dict[str, str]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Fleet:
    made = Fleet(tmp_path_factory.mktemp("fleet"))
    made.file("gateway", "gateway")
    made.file("sensor-1")
    return made


@pytest.fixture(scope="module")
def identities(fleet: Fleet, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A device, one that was stolen, a stranger's, and a stranger's that trusts our CA."""
    strangers = Fleet(tmp_path_factory.mktemp("strangers"))
    half = tmp_path_factory.mktemp("half") / "half-stranger.pem"
    half.touch(0o600)
    half.write_text(strangers.file("half-stranger").read_text() + (fleet.folder / "ca" / "ca.pem").read_text())
    stolen = fleet.file("stolen")
    fleet.authority.revoke("stolen")
    return {
        "sensor-1": fleet.file("sensor-1"),
        "stolen": stolen,
        "stranger": strangers.file("stranger"),
        "half-stranger": half,
    }


@pytest.fixture(scope="module")
def urls(fleet: Fleet, identities: dict[str, Path]) -> Iterator[Urls]:
    """The URLs of a listener by scheme: two with DTLS, one without."""
    files = f"identity={fleet.file('gateway', 'gateway')}&revoked={fleet.folder / 'ca' / 'revoked.txt'}"
    served = [*(f"{protocol}+dtls://{own_host()}:0?{files}" for protocol in ("udpc", "rup")), f"udpc://{own_host()}:0"]
    command = [sys.executable, "-m", "fairway", "listen", *served, "--json"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment())
    try:
        assert process.stderr is not None
        said = [process.stderr.readline().split()[1] for _ in served]
        yield {url.partition("://")[0]: url for url in said}
    finally:
        process.kill()
        process.communicate()


def test_a_plain_caller_at_a_dtls_port_and_the_reverse_get_a_hint(
    urls: Urls, fleet: Fleet, capfd: pytest.CaptureFixture[str]
) -> None:
    secure, plain = urls["udpc+dtls"], urls["udpc"]
    assert run(["send", f"{secure.replace('+dtls', '')}?connect_timeout=500ms", "hello"]) == 3
    assert "or the port is for DTLS (udpc+dtls://)" in capfd.readouterr().err
    called = plain.replace("udpc", "udpc+dtls")
    assert run(["send", f"{called}?connect_timeout=500ms&identity={fleet.file('sensor-1')}", "hello"]) == 3
    assert "or the port is plain (udpc://)" in capfd.readouterr().err


@pytest.mark.parametrize("protocol", ["udpc", "rup"])
@pytest.mark.parametrize(
    ("expected", "device", "why"),
    [
        ("other", "sensor-1", "the gateway's certificate is for another name; name= says which one is expected"),
        ("gateway", "stranger", "the gateway's certificate is not signed by a CA of our identity"),
        ("gateway", "half-stranger", "the gateway does not trust the CA of our certificate"),
        ("gateway", "stolen", "the gateway refuses our certificate: it is revoked, or not that of a device"),
    ],
)
def test_a_refused_handshake_is_a_no_and_named_in_one_line(
    protocol: str,
    expected: str,
    device: str,
    why: str,
    urls: Urls,
    identities: dict[str, Path],
    capfd: pytest.CaptureFixture[str],
) -> None:
    url = f"{urls[f'{protocol}+dtls']}?name={expected}&identity={identities[device]}"
    assert run(["send", url, "hello"]) == 4
    said = capfd.readouterr().err
    assert said.count("\n") == 1
    assert f"the DTLS handshake failed: {why}" in said


def test_a_bad_identity_is_named_and_nothing_is_served_or_sent(
    fleet: Fleet, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    bad = tmp_path / "bad.pem"
    bad.write_text(fleet.file("sensor-1").read_text())
    bad.chmod(0o644)
    for verb in (["send"], ["listen"], ["gateway", "--lake", str(tmp_path / "lake"), "--check"]):
        more = ["hello"] if verb == ["send"] else []
        assert run([verb[0], f"udpc+dtls://127.0.0.1:9?identity={bad}", *verb[1:], *more]) == 1
        assert f"run: chmod 600 {bad}" in capfd.readouterr().err
    assert run(["send", "udpc+dtls://127.0.0.1:9", "hello"]) == 2
    assert "DTLS needs identity=FILE" in capfd.readouterr().err
