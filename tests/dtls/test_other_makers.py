"""Devices and gateways of other makers, with certificates on both sides, over loopback: OpenSSL, GnuTLS, mbed TLS."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fairway.core.machine import Transmit
from fairway.core.random_source import Seeded
from fairway.dtls import DtlsClient
from fairway.dtls.openssl import OpensslClientEngine
from tests.conftest import ROOT
from tests.dtls.pump import Pump
from tests.dtls.world import GATEWAY_NAME, Fleet

SUITES = (
    "ECDHE-ECDSA-AES128-GCM-SHA256",
    "ECDHE-ECDSA-AES256-GCM-SHA384",
    "ECDHE-ECDSA-CHACHA20-POLY1305",
    "ECDHE-ECDSA-AES128-CCM",
)


def bound() -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind(("127.0.0.1", 0))
    return sock


@contextmanager
def running(*command: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command with pipes, and end it."""
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def say(process: subprocess.Popen[bytes], line: bytes) -> None:
    assert process.stdin is not None
    process.stdin.write(line)
    process.stdin.flush()


def read_until(process: subprocess.Popen[bytes], wanted: bytes) -> bytes:
    """Return what the command printed, up to the wanted bytes."""
    assert process.stdout is not None
    printed = b""
    while wanted not in printed:
        more = process.stdout.read1(4_096)  # type: ignore[attr-defined]
        assert more, printed
        printed += more
    return printed


def with_identity(path: Path, fleet: Fleet) -> list[str]:
    authority = str(fleet.folder / "ca" / "ca.pem")
    return ["-cert", str(path), "-key", str(path), "-CAfile", authority, "-verify_return_error"]


@pytest.mark.parametrize("suite", SUITES)
def test_openssl_s_client_is_a_device(suite: str, fleet: Fleet) -> None:
    sock = bound()
    connect = ["-connect", f"127.0.0.1:{sock.getsockname()[1]}", "-cipher", suite]
    identity = with_identity(fleet.file("sensor-1"), fleet)
    with Pump(fleet.gateway(), sock, lambda body: b"echo " + body) as pump:
        with running("openssl", "s_client", "-dtls1_2", "-quiet", *connect, *identity) as process:
            say(process, b"hello\n")
            read_until(process, b"echo hello\n")
            pump.wait(lambda: bool(pump.received))
        assert [(bytes(one.data), one.device) for one in pump.received] == [(b"hello\n", "sensor-1")]
        [association] = pump.layer.associations()  # type: ignore[union-attr]
        assert association.peer.suite == suite


def test_openssl_s_client_without_a_certificate_is_refused(fleet: Fleet) -> None:
    sock = bound()
    authority = str(fleet.folder / "ca" / "ca.pem")
    connect = ["-connect", f"127.0.0.1:{sock.getsockname()[1]}", "-CAfile", authority]
    with Pump(fleet.gateway(), sock) as pump, running("openssl", "s_client", "-dtls1_2", "-quiet", *connect) as process:
        read_until(process, b"alert handshake failure")
        pump.wait(lambda: pump.layer.counters.failed.total() > 0)
        assert set(pump.layer.counters.failed) == {"peer_did_not_return_a_certificate"}


def test_openssl_s_server_is_a_gateway(fleet: Fleet) -> None:
    with bound() as free:
        port = free.getsockname()[1]
    serve = ["-accept", f"127.0.0.1:{port}", "-mtu", "1200", "-Verify", "1"]
    identity = with_identity(fleet.file(GATEWAY_NAME, "gateway"), fleet)
    engine = OpensslClientEngine(fleet.identity("sensor-1"), GATEWAY_NAME)
    client = DtlsClient(engine, ("127.0.0.1", port), Seeded(1))
    with running("openssl", "s_server", "-dtls1_2", *serve, *identity) as process:
        read_until(process, b"ACCEPT")
        with Pump(client, bound()) as pump:
            pump.send(Transmit(client.inner, b"hello\n"))
            read_until(process, b"hello\n")
            say(process, b"welcome\n")
            pump.wait(lambda: bool(pump.received))
            assert [(bytes(one.data), one.device) for one in pump.received] == [(b"welcome\n", GATEWAY_NAME)]


@pytest.mark.long
@pytest.mark.parametrize("cipher", ["AES-128-GCM", "AES-256-GCM", "CHACHA20-POLY1305", "AES-128-CCM"])
def test_gnutls_cli_is_a_device(cipher: str, fleet: Fleet) -> None:
    require("gnutls-cli")
    sock, identity = bound(), str(fleet.file("sensor-1"))
    command = [
        "gnutls-cli",
        "--udp",
        "-p",
        str(sock.getsockname()[1]),
        f"--verify-hostname={GATEWAY_NAME}",
        "127.0.0.1",
    ]
    command += ["--x509certfile", identity, "--x509keyfile", identity]
    command += ["--x509cafile", str(fleet.folder / "ca" / "ca.pem"), "--priority", f"NORMAL:-CIPHER-ALL:+{cipher}"]
    with Pump(fleet.gateway(), sock, lambda body: b"echo " + body) as pump, running(*command) as process:
        read_until(process, b"Simple Client Mode")
        say(process, b"hello\n")
        read_until(process, b"echo hello\n")
        assert [(bytes(one.data), one.device) for one in pump.received] == [(b"hello\n", "sensor-1")]


@pytest.mark.long
def test_a_c_program_with_mbed_tls_is_a_device(fleet: Fleet, tmp_path: Path) -> None:
    require("cc", "mbedtls")
    source, program = Path(__file__).with_name("mbedtls_client.c"), str(tmp_path / "client")
    libraries = ["-lmbedtls", "-lmbedx509", "-lmbedcrypto"]
    subprocess.run(["cc", "-Wall", "-Werror", str(source), "-o", program, *libraries], check=True)
    sock = bound()
    authority = str(fleet.folder / "ca" / "ca.pem")
    port = str(sock.getsockname()[1])
    for device, taken in ((str(fleet.file("sensor-1")), True), (str(fleet.file("stray", "gateway")), False)):
        with Pump(fleet.gateway(), sock.dup(), lambda body: b"echo " + body) as pump:
            command = [program, "127.0.0.1", port, GATEWAY_NAME, device, authority]
            done = subprocess.run(command, capture_output=True, check=False, timeout=60)
            assert (done.returncode == 0, done.stdout) == (taken, b"echo hello\n" if taken else b""), done.stderr
            assert [one.device for one in pump.received] == ["sensor-1"] * taken
    sock.close()


def require(*names: str) -> None:
    """Have Debian's packages installed if they are missing; never skipped."""
    subprocess.run([sys.executable, ROOT / "scripts" / "require.py", *names], check=True)
