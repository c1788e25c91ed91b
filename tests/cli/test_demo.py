"""The demo carries messages over every protocol and says so."""

from __future__ import annotations

import dataclasses
import json

import pytest

from fairway.cli import run


def test_every_protocol_delivers_everything(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["demo", "--json", "--messages", "40"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["protocol"] for row in rows] == ["udpc", "mrp", "rup", "pydevts"]
    for row in rows:
        assert row["arrived"] == row["messages"] == (5 if row["protocol"] == "rup" else 41)
        assert row["repeated"] > 0
        assert row["broken"] == 0


def test_the_same_seed_prints_the_same_and_another_does_not(capsys: pytest.CaptureFixture[str]) -> None:
    printed = []
    for seed in ("3", "3", "4"):
        run(["demo", "--messages", "10", "--seed", seed])
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1] != printed[2]


def test_the_table_fits_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    run(["demo", "--messages", "10"])
    out = capsys.readouterr().out
    assert "…" not in out
    assert max(len(line) for line in out.splitlines()) <= 80


def test_a_broken_rule_fails_the_demo(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that is cut off before anything could arrive breaks the promise that everything does."""
    from fairway.cli import demo

    whole = demo.configuration

    def cut_off(protocol: str, messages: int) -> object:
        return dataclasses.replace(whole(protocol, messages), fault_us=1_000, heal_us=1_000)

    monkeypatch.setattr(demo, "configuration", cut_off)
    assert run(["demo", "--messages", "10"]) == 1
    assert len(capsys.readouterr().out.splitlines()) > 7
