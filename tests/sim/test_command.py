"""`fairway sim` prints a run for people, for programs and for Wireshark, and refuses what cannot be in one sentence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fairway.cli import run as fairway
from fairway.protocols import NAMES
from fairway.sim.configuration import RunOptions, case
from fairway.sim.swarm import run_seed
from tests.capture.reading import read_capture

EXAMPLE = ["sim", "--protocol", "mrp", "--loss", "0.3", "--duplicate", "0.1", "--reorder", "0.2", "--seed", "7"]


def test_a_summary_tells_what_happened(capsys: pytest.CaptureFixture[str]) -> None:
    assert fairway(EXAMPLE) == 0
    out = capsys.readouterr().out
    assert out.startswith("mrp, seed 7: passed\n")
    for word in ("101 accepted", "101 delivered", "delivered 101", "loss", "ahead of a timer", "digest"):
        assert word in out
    assert max(len(line) for line in out.splitlines()) <= 120


@pytest.mark.parametrize("protocol", NAMES)
def test_every_protocol_runs_deferred_with_crashes_and_a_hostile_peer(
    protocol: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = "--deferred --crashes 2 --hostile 100 --loss 0.05 --corrupt 0.05 --burst 0.01 --jitter-ms 3 --messages 40"
    more = "--interval-ms 20 --window 16 --controller eager --clients 2 --two-way --bandwidth 1000000 --json"
    assert fairway(["sim", "--protocol", protocol, *words.split(), *more.split()]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["hostile_datagrams"] > 100
    assert result["command"].startswith(f"fairway sim --protocol {protocol} ")
    assert result["network"]["nobody"] > 0


def test_a_swarm_seed_is_replayed_by_its_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert fairway(["sim", "--protocol", "pydevts", "--swarm", "--seed", "12", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["digest"] == run_seed("pydevts", 12).digest


def test_a_trace_has_a_frame_for_every_datagram_sent_and_every_one_that_arrived(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run.pcapng"
    words = ["--messages", "20", "--size", "3000", "--loss", "0.1", "--seed", "3", "--json"]
    assert fairway(["sim", "--protocol", "rup", *words, "--trace", str(path)]) == 0
    result = json.loads(capsys.readouterr().out)
    frames = read_capture(path.read_bytes())
    assert len(frames) == 2 * result["datagrams"] - result["network"]["loss"]


def test_a_broken_promise_fails_and_prints_how_to_replay_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from fairway.core.serial import Seen

    monkeypatch.setattr(Seen, "__contains__", lambda self, number: False)
    assert fairway(["sim", "--protocol", "udpc", "--duplicate", "1", "--seed", "2"]) == 1
    out = capsys.readouterr().out
    assert "udpc, seed 2: BROKEN" in out
    assert "nothing twice" in out
    assert out.endswith("replay: fairway sim --protocol udpc --duplicate 1 --seed 2\n")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--protocol", "tcp"], "the protocol is 'tcp'; it must be one of udpc, mrp, rup, pydevts"),
        (["--protocol", "mrp", "--loss", "-0.1"], "loss is -0.1; it must be from 0 to 1"),
        (["--protocol", "mrp", "--loss", "1.5"], "loss is 1.5; it must be from 0 to 1"),
        (["--protocol", "mrp", "--delay-ms", "-3"], "delay-ms is -3; it must not be negative"),
        (["--protocol", "mrp", "--messages", "-1"], "messages is -1; it must not be negative"),
        (["--protocol", "mrp", "--window", "0"], "window is 0; it must be from 1 to"),
        (["--protocol", "mrp", "--clients", "0"], "clients is 0; it must be from 1 to 64"),
        (
            ["--protocol", "mrp", "--controller", "rude"],
            "controller is 'rude'; it must be one of model, newreno, eager",
        ),
        (["--protocol", "udpc", "--layout", "stamped"], "layout is stamped; only mrp has layouts"),
        (["--protocol", "mrp", "--layout", "round"], "layout is 'round'; it must be one of stamped, piggyback"),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(
    words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fairway(["sim", *words]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith(f"fairway: {sentence}")
    assert said.err.count("\n") == 1


def test_the_command_names_only_what_differs_from_the_defaults() -> None:
    run_options = RunOptions(protocol="rup", size=5_000, snapshot=False, two_way=True, delay_ms=2.5)
    assert (
        run_options.command(9)
        == "fairway sim --protocol rup --delay-ms 2.5 --no-snapshot --size 5000 --two-way --seed 9"
    )
    assert case(run_options).faults.delay_us == 2_500
