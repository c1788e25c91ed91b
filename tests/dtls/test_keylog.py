"""A key log lets tshark read a capture: the handshake, and what was inside."""

from __future__ import annotations

import logging
import subprocess
from pathlib import Path

import pytest

from fairway.capture.pcapng import PcapngWriter
from fairway.core.random_source import Seeded
from fairway.dtls import DtlsClient
from fairway.dtls.openssl import OpensslClientEngine
from tests.dtls.test_associations import A
from tests.dtls.world import GATEWAY, GATEWAY_NAME, SECOND_US, Fleet, World


def test_a_key_log_that_cannot_be_written_is_no_secret_until_somebody_misses_it(fleet: Fleet, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        OpensslClientEngine(fleet.identity("sensor-1"), GATEWAY_NAME, keylog=str(tmp_path / "none" / "keys.log"))


@pytest.mark.usefixtures("tshark")
def test_tshark_reads_a_capture_with_the_key_log(
    fleet: Fleet, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    keys, capture = tmp_path / "keys.log", tmp_path / "run.pcapng"
    caplog.set_level(logging.WARNING, "fairway.dtls")
    engine = OpensslClientEngine(fleet.identity("sensor-1"), GATEWAY_NAME, keylog=str(keys))
    world = World(fleet.gateway())
    world.add(DtlsClient(engine, GATEWAY, Seeded(1)), A)
    world.say(A, b"read me in the capture")
    assert world.run(SECOND_US, lambda: A in world.answers)
    assert "whoever reads" in caplog.text
    assert keys.read_text().startswith("CLIENT_RANDOM ")
    assert keys.stat().st_mode & 0o777 == 0o600
    with capture.open("wb") as file:
        writer = PcapngWriter(file.write, ("test",))
        for number, (source, destination, datagram) in enumerate(world.carried):
            writer.datagram(number * 1_000_000, source, destination, datagram)  # type: ignore[arg-type]
    for more, seen in (([], False), (["-o", f"tls.keylog_file:{keys}"], True)):
        command = ["tshark", "-r", str(capture), "-d", f"udp.port=={GATEWAY[1]},dtls", *more, "-x"]  # type: ignore[index]
        printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert ("Decrypted DTLS" in printed) == seen
