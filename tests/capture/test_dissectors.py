"""Wireshark, taught by our dissectors, reads our traces as we do."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import fields
from pathlib import Path
from random import Random
from typing import Any

import pytest

from fairway.capture.dissectors import DESCRIPTIONS, FILE_NAME
from fairway.capture.pcapng import PcapngWriter
from fairway.cli import run
from fairway.cli.wireshark import lua
from fairway.core.errors import MalformedDatagram
from fairway.protocols import NAMES, wire
from fairway.protocols.mrp import wire as mrp
from fairway.protocols.pydevts import wire as pydevts
from fairway.protocols.rup import wire as rup
from fairway.protocols.udpc import wire as udpc
from fairway.sim.configuration import RunOptions, case
from fairway.sim.run import run as simulate
from fairway.sim.trace import tracer
from tests.conftest import Tshark

PORTS = "5000,9000"
"""Of the simulated clients and server. Both are named: Wireshark knows other protocols on the lower one."""
DESCRIBED = {description.protocol: description for description in DESCRIPTIONS}


def simulated(folder: Path, protocol: str, **more: object) -> Path:
    """Write the trace of a short run over a bad link."""
    options: dict[str, object] = {"messages": 30, "size": 2_000, "loss": 0.1, "duplicate": 0.05, "two_way": True}
    path = folder / f"{protocol}.pcapng"
    with path.open("wb") as file:
        run_options = RunOptions(protocol=protocol, **(options | more))  # type: ignore[arg-type]
        simulate(case(run_options), 3, trace=tracer(file.write, ["server", "client", "hostile"]))
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


def kind_of(packet: object) -> str:
    """Return the kind of a decoded packet: where it does not say, its class in small letters."""
    name: str = getattr(packet, "kind", type(packet).__name__).removeprefix("Stamped").removeprefix("Piggyback")
    return re.sub(r"(?<!^)([A-Z])", r"_\1", name).lower()


LAYOUTS = {"StampedData": "stamped", "PiggybackData": "piggyback"}


def packet_of(protocol: str, datagram: bytes, layout: str | None) -> Any:
    """Return what the protocol's own decoder reads, of mrp's data what it is in a layout, or None if it is malformed.

    Where the capture does not hold the beginning, data is read as stamped if it can be.
    """
    try:
        packet = wire(protocol).decode(datagram)
    except MalformedDatagram:
        return None
    if not isinstance(packet, mrp.Data):
        return packet
    stamped, piggyback = packet.as_stamped(), packet.as_piggyback()
    return {"stamped": stamped, "piggyback": piggyback}.get(layout or "", stamped or piggyback)


def compare(protocol: str, rows: list[dict[str, str]], layout: str | None = None) -> set[str]:
    """Compare every field of every frame with the protocol's own decoder, and return the kinds that were seen."""
    for row in rows:
        if not row["payload"]:
            assert not row["kind"], "Wireshark hands no empty datagram over"
            continue
        packet = packet_of(protocol, bytes.fromhex(row["payload"]), layout)
        if packet is None:
            assert row["kind"] == "malformed", row
            continue
        assert row["kind"] == kind_of(packet), row
        assert row["layout"] == LAYOUTS.get(type(packet).__name__, "")
        for field in fields(packet):
            value = getattr(packet, field.name)
            if field.name == "body":
                assert int(row["body_bytes"]) == len(value)
            else:
                assert (row[field.name] if isinstance(value, str) else int(row[field.name], 0)) == value, row
    return {row["kind"] for row in rows}


def written(path: Path, payloads: Iterable[bytes]) -> Path:
    """Write datagrams to the port 41,000, each from another one: none begins a conversation for another."""
    with path.open("wb") as file:
        trace = PcapngWriter(file.write, ("here",))
        for port, payload in enumerate(payloads, 42_000):
            trace.datagram(10**18, ("10.0.0.1", port), ("10.0.0.2", 41_000), payload)
    return path


ID = "0123456789abcdef" * 2
SAMPLES = {
    "udpc": [
        udpc.datagram(7, 0x0A0B0C0D, 3, flag, b"" if flag in udpc.CONTROL_FLAGS else b"hi")
        for flag in udpc.KIND_OF_FLAG
    ],
    "mrp": [
        mrp.encode(mrp.Ignore(body=b"?")),
        mrp.encode(mrp.Connect(ver=1, cl_conid=65_536)),
        mrp.encode(mrp.ConReply(stat=mrp.ACCEPT, cl_conid=1, sv_conid=7, fill=9)),
        mrp.encode(mrp.ConReply(stat=mrp.REJECT, cl_conid=1, sv_conid=0)),
        mrp.encode(mrp.StampedData(dest_conid=70_000, from_conid=1, sequence=2, stamp=0xBEEF, body=b"hi")),
        mrp.encode(mrp.PiggybackData(from_conid=1, dest_conid=7, sequence=2, from_seq=3, body=b"hi")),
        mrp.encode(mrp.PiggybackData(from_conid=1, dest_conid=7, sequence=2, from_seq=3, body=b"")),
        mrp.encode(mrp.Ack(dest_conid=1, from_conid=7, sequence=2, stamp=5)),
    ],
    "rup": [
        rup.encode(rup.Data(start=True, id=ID, position=0, total=8_150, body=b"hello")),
        rup.encode(rup.Data(start=False, id=ID, position=rup.UINT_MAX, total=rup.UINT_MAX, body=b"")),
        rup.encode(rup.Request(id=ID, position=1_024)),
        rup.encode(rup.Confirm(id=ID, position=4_096)),
    ],
    "pydevts": [
        pydevts.encode(pydevts.Packet(success=1, message_id=0x1234, crc=0x3610A686, body=b"hello")),
        pydevts.encode(pydevts.Ack(success=0, message_id=1, crc=2)),
        pydevts.encode(pydevts.Close(success=0, message_id=1, crc=2)),
    ],
}


def mutated(samples: list[bytes], count: int) -> Iterator[bytes]:
    """Yield samples with a few bytes changed, cut or with some more."""
    random = Random(3)
    for _ in range(count):
        datagram = bytearray(random.choice(samples))
        for _ in range(random.randrange(4)):
            datagram[random.randrange(len(datagram))] = random.randrange(256)
        yield bytes(datagram[: random.choice([60, random.randrange(60)])]) + bytes(random.choice([0, 0, 3]))


@pytest.mark.usefixtures("tshark")
@pytest.mark.parametrize("protocol", NAMES)
def test_tshark_reads_every_kind_of_packet_and_judges_damaged_ones_as_the_decoder_does(
    protocol: str, tmp_path: Path
) -> None:
    payloads = [*SAMPLES[protocol], *mutated(SAMPLES[protocol], 2_000)]
    rows = dissected(written(tmp_path / "x.pcapng", payloads), protocol, f"{protocol}.ports:41000")
    assert compare(protocol, rows) - {""} == set(wire(protocol).KINDS)
    assert 100 < sum(row["kind"] == "malformed" for row in rows) < len(rows)


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
    path = written(tmp_path / "bad.pcapng", map(bytes.fromhex, MALFORMED[protocol]))
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
