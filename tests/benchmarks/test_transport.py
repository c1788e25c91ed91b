"""The benchmark measures, verifies, judges and shows, here with a few hundred kilobytes and without optional peers."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any

import pytest

from benchmarks.frame import CellFailed, Goal, Key, Results, measured
from benchmarks.transport import pair, peers
from benchmarks.transport.environments import LOOPBACK, RelayEnvironment
from benchmarks.transport.loads import LOADS
from benchmarks.transport.pair import Cell, run_cell
from benchmarks.transport.peers import PEERS, PLAIN
from benchmarks.transport.rounds import Plan, goals, run, show
from fairway.cli import run as command_line
from fairway.demo.services import process
from tests.conftest import ROOT

BUILT_IN = [peer for peer in PEERS.values() if peer.needs is None]


def test_a_quick_run_measures_every_built_in_peer_and_writes_everything(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    only = ",".join([*(peer.name for peer in BUILT_IN if not peer.name.endswith("-newreno")), "bulk", "ping-pong"])
    code = command_line(["bench", "transport", "--quick", "--only", only, "--out", str(tmp_path)])
    printed = capsys.readouterr().out
    assert code == 0, printed
    assert "Goals" in printed
    written: dict[str, Any] = json.loads((tmp_path / "transport.json").read_text())
    assert written["failures"] == []
    found = {(cell["load"], cell["peer"]): cell["rounds"] for cell in written["cells"]}
    assert all(rounds[0]["rate"] > 0 for rounds in found.values())
    assert {peer for load, peer in found if load == "ping-pong"} == {
        "raw", "tcp", *(f"{name}{dtls}" for name in PLAIN for dtls in ("", "-dtls"))
    }  # fmt: skip
    assert {"raw-gso", "rup-mmsg", "rup-portable"} <= {peer for load, peer in found if load == "bulk"}
    assert {goal["verdict"] for goal in written["tables"]["Goals"]} <= {"met", "missed"}
    assert len(written["tables"]["Goals"]) >= 10
    assert "| rup, eager |" in (tmp_path / "transport.md").read_text()


@pytest.mark.parametrize("load", ["awaited-64", "batches-1024"])
@pytest.mark.parametrize("peer", ["tcp", "udpc", "mrp-newreno", "pydevts"])
def test_exactly_the_messages_asked_for_arrive(peer: str, load: str) -> None:
    result = run_cell(Cell(PEERS[peer], LOADS[load], LOOPBACK), 1.0, 1, units=1_000)
    assert result["units"] == result["total_units"] == 1_000
    assert result["sender_peak_mb"] > 1
    assert result["receiver_peak_mb"] > 1
    assert result["cpu_s_per_gb"] > 0


def test_a_relay_stands_between_the_sides_and_loses_what_it_was_told_to() -> None:
    way = RelayEnvironment("relay", 5.0, datagrams_only=True)
    run_cell(Cell(PEERS["rup"], LOADS["bulk"], way), 1.0, 1, units=2 * 262_139)
    assert way.done[0]["forth"]["loss"] > 5
    assert "duplicate" not in way.done[0]["forth"]


def test_a_receiver_that_finds_a_wrong_byte_fails_the_cell(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # The sender's process alone reads another pattern.
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "if 'sender' in ''.join(getattr(sys, 'orig_argv', [])):\n"
        "    import benchmarks.transport.pattern as pattern\n"
        "    pattern.BLOCK = bytes([pattern.BLOCK[0] ^ 1]) + pattern.BLOCK[1:]\n"
    )
    path = [str(tmp_path), str(ROOT), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, path)))
    with pytest.raises(CellFailed, match="Corrupt"):
        run_cell(Cell(PEERS["tcp"], LOADS["bulk"], LOOPBACK), 0.05, 1)


def test_a_cell_that_takes_too_long_fails_and_leaves_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    children: list[Popen[bytes]] = []

    @contextmanager
    def remembered(command: Sequence[str]) -> Iterator[Popen[bytes]]:
        with process(command) as child:
            children.append(child)
            yield child

    monkeypatch.setattr(pair, "process", remembered)
    with pytest.raises(CellFailed, match="took too long"):
        run_cell(Cell(PEERS["udpc"], LOADS["bulk"], LOOPBACK), 60.0, 1, limit_s=4.0)
    assert [child.returncode is not None for child in children] == [True, True]


def judged(rates: Mapping[tuple[str, str, str], Sequence[float | None]]) -> list[Goal]:
    results = Results(1, 1.0)
    for key, values in rates.items():
        results.cells[Key(*key)] = [{"rate": value} if value is not None else None for value in values]
    return measured(goals(results))


def test_a_goal_is_judged_by_the_median_of_the_ratios_of_each_round() -> None:
    (goal,) = judged(
        {
            ("loopback", "bulk", "rup"): [100.0, 300.0, 200.0],
            ("loopback", "bulk", "tcp"): [100.0, 150.0, None],
        }
    )
    assert (goal.against, goal.values, goal.met) == ("asyncio TCP", [1.0, 2.0], True)
    assert goal.row()["found"] == "1.5 (1..2)"


def test_every_goal_can_be_judged_where_every_cell_was_measured() -> None:
    titles = ("loopback", "veth, 0 % loss", "veth, 1 % loss", "veth, 5 % loss")
    every = {(title, load, peer.name): [1.0] for title in titles for peer in PEERS.values() for load in peer.loads}
    assert len(judged(every)) == len(list(goals(Results(1, 1.0)))) > 30


def test_what_is_not_installed_is_named_with_the_remedy_and_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "find_spec", lambda name: None)
    plan = Plan(rounds=1, peers=["aioquic", "kcp"], loads=["bulk"], losses=())
    results = Results(1, 0.5)
    run(plan, results, lambda *_: None)
    assert results.cells == {}
    remedy = "is missing, install: pip install --require-hashes -r requirements/bench.txt"
    assert show(plan, results).remarks[-2:] == [f"aioquic {remedy}", f"kcp {remedy}"]


@pytest.mark.parametrize(("option", "value"), [("--only", "carrier-pigeon"), ("--loss", "much"), ("--loss", "100")])
def test_a_wrong_option_is_a_sentence(option: str, value: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line(["bench", "transport", option, value]) == 2
    assert value in capsys.readouterr().err


def test_ctrl_c_ends_the_processes_and_shows_what_was_measured(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "fairway", "bench", "transport", "--only", "udpc,ping-pong", "--seconds", "60"]
    with Popen([*command, "--loss", "0", "--out", str(tmp_path)], stdout=PIPE, text=True) as run_of_it:
        children = Path(f"/proc/{run_of_it.pid}/task/{run_of_it.pid}/children")
        until = time.monotonic() + 120
        while len(sides := children.read_text().split()) < 2 and time.monotonic() < until:
            time.sleep(0.05)
        run_of_it.send_signal(signal.SIGINT)
        printed, _ = run_of_it.communicate(timeout=120)
    assert len(sides) == 2
    assert run_of_it.returncode == 130
    assert "stopped before its end" in printed
    assert not [pid for pid in sides if Path(f"/proc/{pid}").exists()]
