"""The emulated link carries, delays and loses as it is told, and every peer is measured on it alike."""

from __future__ import annotations

import json
import os
import socket
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from benchmarks.frame import Key, Results, measured
from benchmarks.links.emulator import ways
from benchmarks.links.peers import ROWS, Link
from benchmarks.links.rounds import choose, goals
from fairway.cli import run as command_line
from fairway.core.random_source import Seeded
from fairway.demo.relay import now_us
from fairway.sim.pipe import Faults, Pipe

PACKETS = 20_000


def pairs() -> list[tuple[socket.socket, socket.socket]]:
    return [socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in range(2)]


def test_packets_leave_in_order_when_they_are_due_and_not_before() -> None:
    (left, device_a), (right, device_b) = both = pairs()
    for device in (device_a, device_b):
        device.setblocking(False)
    there, back = ways([Faults(delay_us=50_000), Faults()], 1, [device_a.fileno(), device_b.fileno()])
    for number in range(10):
        left.send(bytes([number]))
    began_us = now_us()
    there.take()
    assert there.deliver(began_us) >= began_us + 50_000
    right.setblocking(False)
    with pytest.raises(BlockingIOError):
        right.recv(1)
    there.deliver(now_us() + 60_000)
    assert [right.recv(10)[0] for _ in range(10)] == list(range(10))
    assert (there.happened["packets"], there.happened["delivered"], back.happened["packets"]) == (10, 10, 0)
    for pair in both:
        for end in pair:
            end.close()


@pytest.mark.parametrize("bursts", [False, True])
def test_a_link_loses_the_share_that_its_row_says_in_bursts_or_not(bursts: bool) -> None:
    row = Link(name="x", title="x", rate_mbit=1_000, round_trip_ms=1, loss=0.05, bursts=bursts)
    pipe = Pipe(row.faults(), Seeded(7), Counter(), None)
    arrived = sum(len(pipe.carry(b"x", 1_000 * number)) for number in range(PACKETS))
    assert 0.04 < 1 - arrived / PACKETS < 0.06
    assert bool(pipe.happened["burst"]) is bursts


def test_goals_compare_with_the_link_with_the_peers_and_with_the_latest_message() -> None:
    results = Results(1, 1.0)
    rate = ROWS["lte"].bytes_per_s
    for peer, share, late in (("tcp-bbr", 0.9, 100.0), ("kcp", 0.5, 300.0), ("rup", 0.86, 0.0), ("udpc", 0.7, 200.0)):
        results.cells[Key("lte", "bulk", peer)] = [{"rate": share * rate}]
        results.cells[Key("lte", "trickle", peer)] = [{"rate": late / 2, "p99": late}] if late else [None]
    judged = measured(goals(choose("lte"), results))
    assert {(one.goal, one.against): (round(one.values[0], 2), one.met) for one in judged} == {
        ("LTE: rup, bulk", "the link"): (0.86, True),
        ("LTE: rup, bulk", "tcp-bbr"): (0.96, True),
        ("LTE: rup, bulk", "kcp"): (1.72, True),
        ("LTE: udpc, small messages, p99", "tcp-bbr"): (2.0, False),
        ("LTE: udpc, small messages, p99", "kcp"): (0.67, True),
    }


def test_the_command_measures_on_a_real_link(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["bench", "links", "--only", "lan,udpc,tcp-cubic", "--rounds", "1", "--seconds", "0.5"]
    code = command_line([*words, "--out", str(tmp_path)])
    printed = capsys.readouterr()
    if os.geteuid() != 0:
        assert code == 1
        assert "links need network namespaces and TUN devices" in printed.err
        return
    assert code == 0, printed
    written: dict[str, Any] = json.loads((tmp_path / "links.json").read_text())
    assert {(cell["load"], cell["peer"]) for cell in written["cells"]} == {
        ("bulk", "tcp-cubic"),
        ("bulk", "udpc"),
        ("message", "tcp-cubic"),
        ("trickle", "tcp-cubic"),
        ("trickle", "udpc"),
        ("request", "tcp-cubic"),
        ("request", "udpc"),
    }
    assert all(cell["rounds"][0]["rate"] > 0 for cell in written["cells"])
    assert written["tables"]["The emulator"][0]["link"] == "LAN"
    drawn = (tmp_path / "links.svg").read_text()
    assert all(f"<title>LAN, {peer}: " in drawn for peer in ("TCP CUBIC", "udpc"))


def test_two_flows_share_one_link(tmp_path: Path) -> None:
    words = ["bench", "links", "--only", "lan,rup,tcp-bbr,shared", "--rounds", "1", "--seconds", "0.5"]
    code = command_line([*words, "--out", str(tmp_path)])
    assert code == (0 if os.geteuid() == 0 else 1)
    if code == 0:
        rows = json.loads((tmp_path / "links.json").read_text())["tables"]["Two flows at once"]
        assert [row["flows"] for row in rows] == ["rup, rup", "rup, TCP BBR"]
        assert all(0.5 <= float(row["Jain's index"]) <= 1 for row in rows)
