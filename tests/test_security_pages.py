"""The pages about DTLS do what they say: every command on them runs, in order, and every byte is what it is called."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fairway.dtls import DtlsCounters, Limits
from fairway.net.urls import DTLS_SETTINGS
from fairway.protocols.udpc import wire
from tests.conftest import ROOT
from tests.examples import blocks, run_shell
from tests.gateway.world import landed

FLAGS = {"ACK": 0x01, "SYN": 0x08, "IMP": 0x10, "FIN": 0x20}
OPERATORS, DEVELOPERS = ROOT / "docs" / "security.md", ROOT / "docs" / "devices.md"


@pytest.mark.parametrize("block", blocks(OPERATORS, "sh"))
def test_every_block_of_the_operators_page_runs(block: str, tmp_path: Path) -> None:
    run_shell(block, tmp_path)


def test_a_device_of_openssl_alone_gets_its_message_into_the_table(tmp_path: Path) -> None:
    [script], [block] = blocks(DEVELOPERS, "python"), blocks(DEVELOPERS, "sh")
    (tmp_path / "device.py").write_text(script)
    run_shell(block, tmp_path)
    assert [(row["device"], row["body"]) for row in landed(tmp_path / "lake")] == [("sensor-17", b"21.5 degrees")]


def test_the_bytes_on_the_developers_page_are_the_packets_that_they_are_called() -> None:
    rows = re.findall(r"^\| (?:device|gateway) \| `([0-9a-f ]+)` \| ([A-Z+]+)", DEVELOPERS.read_text(), re.MULTILINE)
    assert len(rows) == 6
    for digits, name in rows:
        data = bytes.fromhex(digits.replace(" ", ""))
        packet = wire.decode(data)
        assert wire.encode(packet) == data
        assert data[12] == sum(FLAGS[one] for one in name.split("+"))


def test_every_setting_and_bound_and_metric_on_the_operators_page_exists() -> None:
    text = OPERATORS.read_text()
    settings = text.split("| in a URL |")[1].split("\n\n")[0]
    rows = re.findall(r"^\| (`.*?) \|", settings, re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", " ".join(rows))) == {*DTLS_SETTINGS}
    limits = Limits()
    for bound in (limits.up_max, limits.half_open_max, limits.handshakes_per_second, limits.per_turn_max):
        assert f"{bound:,}" in text
    metrics = text.split("| metric |")[1].split("\n\n")[0]
    named = re.findall(r"`(\w+)`", " ".join(re.findall(r"^\| (`.*?) \|", metrics, re.MULTILINE)))
    assert named
    assert {name.removesuffix("_total") for name in named} <= set(DtlsCounters.__dataclass_fields__)
