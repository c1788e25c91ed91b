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


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Fleet:
    made = Fleet(tmp_path_factory.mktemp("fleet"))
    made.file("gateway", "gateway")
    made.file("sensor-1")
    return made


@pytest.fixture(scope="module")
def urls(fleet: Fleet) -> Iterator[tuple[str, str]]:
    """The URLs of a listener: one with DTLS, one without."""
    secure = f"udpc+dtls://{own_host()}:0?identity={fleet.file('gateway', 'gateway')}"
    command = [sys.executable, "-m", "fairway", "listen", secure, f"udpc://{own_host()}:0", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment())
    try:
        assert process.stderr is not None
        first, second = (process.stderr.readline().split()[1] for _ in range(2))
        yield first, second
    finally:
        process.kill()
        process.communicate()


def test_a_message_is_acknowledged(urls: tuple[str, str], fleet: Fleet, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["send", f"{urls[0]}?name=gateway&identity={fleet.file('sensor-1')}", "hello"]) == 0
    assert "1 acknowledged" in capfd.readouterr().out


def test_a_plain_caller_at_a_dtls_port_and_the_reverse_get_a_hint(
    urls: tuple[str, str], fleet: Fleet, capfd: pytest.CaptureFixture[str]
) -> None:
    secure, plain = urls
    assert run(["send", f"{secure.replace('+dtls', '')}?connect_timeout=500ms", "hello"]) == 3
    assert "or the port is for DTLS (udpc+dtls://)" in capfd.readouterr().err
    called = plain.replace("udpc", "udpc+dtls")
    assert run(["send", f"{called}?connect_timeout=500ms&identity={fleet.file('sensor-1')}", "hello"]) == 3
    assert "or the port is plain (udpc://)" in capfd.readouterr().err


def test_a_body_that_fits_no_record_is_refused(
    urls: tuple[str, str], fleet: Fleet, capfd: pytest.CaptureFixture[str]
) -> None:
    url = f"{urls[0]}?name=gateway&identity={fleet.file('sensor-1')}"
    assert run(["send", url, "x" * 1_151]) == 4
    assert "udpc carries up to 1,150 here" in capfd.readouterr().err
    assert run(["send", url, "x" * 1_150]) == 0


def test_the_wrong_gateway_is_named_in_one_line(
    urls: tuple[str, str], fleet: Fleet, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(["send", f"{urls[0]}?name=other&identity={fleet.file('sensor-1')}", "hello"]) == 3
    said = capfd.readouterr().err
    assert said.count("\n") == 1
    assert "the gateway's certificate is for another name; name= says which one is expected" in said


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
