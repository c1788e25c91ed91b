"""Wireshark, taught by our dissectors, reads our traces as we do."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from fairway.capture.dissectors import DESCRIPTIONS, FILE_NAME
from fairway.capture.pcapng import PcapngWriter
from fairway.cli import run
from fairway.cli.wireshark import lua
from fairway.sim.configuration import RunOptions, case
from fairway.sim.run import run as simulate
from fairway.sim.trace import tracer
from tests.capture.described import read
from tests.conftest import Tshark

PORTS = "5000,9000"
"""Of the simulated clients and server. Both are named: Wireshark knows other protocols on the lower one."""
DESCRIBED = {description.protocol: description for description in DESCRIPTIONS}


def simulated(folder: Path, protocol: str, **wishes: object) -> Path:
    """Writes the trace of a short run over a bad link."""
    options: dict[str, object] = {"messages": 30, "size": 2_000, "loss": 0.1, "duplicate": 0.05, "two_way": True}
    path = folder / f"{protocol}.pcapng"
    with path.open("wb") as file:
        asked = RunOptions(protocol=protocol, **(options | wishes))  # type: ignore[arg-type]
        simulate(case(asked), 3, trace=tracer(file.write, ["server", "client", "hostile"]))
    return path


def dissected(path: Path, protocol: str, *preferences: str) -> list[dict[str, str]]:
    """Return all of a protocol's fields of every frame, as tshark with our plugin prints them."""
    plugin = path.with_name(FILE_NAME)
    plugin.write_text(lua())
    names = {field.name for form in DESCRIBED[protocol].forms for field in form.fields}
    fields = [f"{protocol}.{name}" for name in sorted(names | {"kind", "layout", "body_bytes"})]
    command = ["tshark", "-n", "-r", str(path), "-X", f"lua_script:{plugin}", "-T", "fields", "-E", "separator=/t"]
    for preference in preferences:
        command += ["-o", preference]
    for field in ("udp.payload", "_ws.col.Info", *fields):
        command += ["-e", field]
    printed = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "Lua" not in printed.stderr, printed.stderr
    short = ["payload", "info", *(field.partition(".")[2] for field in fields)]
    return [dict(zip(short, line.split("\t"), strict=True)) for line in printed.stdout.splitlines()]


def compare(protocol: str, rows: list[dict[str, str]], layout: str | None = None) -> set[str]:
    """Compares every field of every frame with our reading, and gives the kinds that were seen."""
    for row in rows:
        if not row["payload"]:
            assert not row["kind"], "Wireshark hands no empty datagram over"
            continue
        reading = read(DESCRIBED[protocol], bytes.fromhex(row["payload"]), layout)
        if reading is None:
            assert row["kind"] == "malformed"
            continue
        assert row["kind"] == reading.form.kind
        assert row["layout"] == reading.form.layout
        for name, value in reading.values.items():
            assert (row[name] if isinstance(value, str) else int(row[name], 0)) == value, name
        if reading.form.body:
            assert int(row["body_bytes"]) == len(reading.body)
    return {row["kind"] for row in rows}


@pytest.mark.usefixtures("tshark")
@pytest.mark.parametrize("protocol", ["udpc", "pydevts"])
def test_tshark_reads_a_trace_on_a_named_port_as_we_do(protocol: str, tmp_path: Path) -> None:
    path = simulated(tmp_path, protocol, corrupt=0.1)
    kinds = compare(protocol, dissected(path, protocol, f"{protocol}.ports:{PORTS}"))
    expected = {"udpc": {"syn", "syn_ack", "important", "important_ack"}, "pydevts": {"packet", "ack", "close"}}
    assert kinds >= expected[protocol]


@pytest.mark.usefixtures("tshark")
def test_tshark_recognises_rup_by_its_bytes(tmp_path: Path) -> None:
    rows = dissected(simulated(tmp_path, "rup"), "rup")
    assert compare("rup", rows) == {"data", "confirm", "request"}
    assert "data position=0 total=2000 body=1158" in {row["info"] for row in rows}


@pytest.mark.usefixtures("tshark")
@pytest.mark.parametrize("layout", ["stamped", "piggyback"])
def test_tshark_recognises_mrp_and_learns_its_layout_from_the_handshake(layout: str, tmp_path: Path) -> None:
    kinds = compare("mrp", dissected(simulated(tmp_path, "mrp", layout=layout), "mrp"), layout)
    assert kinds == {"connect", "con_reply", "data"} | ({"ack"} if layout == "stamped" else set())


MALFORMED = {
    "udpc": {
        "0000000700000005000000000a": "no packet of this protocol",
        "00000000000000050000000010": "index is 0",
        "0000000700000005000000000868": "longer than 13 bytes",
    },
    "mrp": {
        "4d52500100000000": "cl_conid is 0",
        "4d525007": "no packet of this protocol",
        "4d52500203000000010000007f": "longer than 12 bytes",
        "4d525002030000000100007f": "stat is 3",
    },
    "rup": {
        "72" + "61" * 32 + "00" + "ff000000": "position cannot be read",
        "72" + "41" * 32 + "00" + "00000000": "id cannot be read",
        "63" + "61" * 32 + "01" + "00000000": "separator is 1",
    },
    "pydevts": {"0002123400000000": "success is 2", "01001234000000": "shorter than 8 bytes"},
}


@pytest.mark.usefixtures("tshark")
@pytest.mark.parametrize("protocol", MALFORMED)
def test_a_malformed_datagram_on_a_named_port_says_what_is_wrong(protocol: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.pcapng"
    with path.open("wb") as file:
        trace = PcapngWriter(file.write, ("client", "server"))
        for payload in MALFORMED[protocol]:
            trace.datagram(10**18, ("10.0.0.1", 40_000), ("10.0.0.2", 41_000), bytes.fromhex(payload))
    rows = dissected(path, protocol, f"{protocol}.ports:41000")
    assert [row["info"] for row in rows] == [f"malformed: {wrong}" for wrong in MALFORMED[protocol].values()]
    assert compare(protocol, rows) == {"malformed"}


def test_an_installed_plugin_is_loaded_and_goes_when_told(
    tmp_path: Path, tshark: Tshark, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert run(["wireshark", "--install"]) == 0
    path = Path(capsys.readouterr().out.partition(":")[0])
    assert path.is_relative_to(tmp_path)
    assert path.read_text() == lua()
    known = subprocess.run(["tshark", "-G", "protocols"], env=os.environ, capture_output=True, text=True, check=True)
    assert set(DESCRIBED) <= {name for line in known.stdout.splitlines() for name in line.split("\t")}
    assert run(["wireshark", "--uninstall"]) == 0
    assert not path.exists()


def test_printing_and_another_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["wireshark", "--print"]) == 0
    assert capsys.readouterr().out == lua()
    assert run(["wireshark", "--install", "--folder", str(tmp_path / "new")]) == 0
    assert (tmp_path / "new" / FILE_NAME).read_text() == lua()


def test_it_wants_to_be_told_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["wireshark"]) == 2
    assert capsys.readouterr().err == "fairway: say one of --install, --uninstall and --print\n"
    assert run(["wireshark", "--install", "--print"]) == 2
