"""`fairway bench` prints what was measured, and passes the time to measure on."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

from fairway.cli import run
from fairway.cli.bench import load
from fairway.core.errors import FairwayError


@pytest.fixture(params=["columns", "simulator"])
def measured(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Replace what measures by something that returns what it was asked for."""
    name = str(request.param)
    module = ModuleType(f"benchmarks.{name}")
    module.__dict__["measure"] = lambda seconds: iter([{"protocol": "mrp", "rate": seconds * 1_000}])
    monkeypatch.setitem(sys.modules, f"benchmarks.{name}", module)
    return name


def test_rows_come_as_json(measured: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", measured, "--seconds", "3", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"protocol": "mrp", "rate": 3_000}


def test_rows_come_as_a_table(measured: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", measured]) == 0
    assert capsys.readouterr().out.splitlines()[-1].split() == ["mrp", "1,000"]


def test_without_a_checkout_one_sentence_says_where_the_benchmarks_are(tmp_path: Path) -> None:
    with pytest.raises(FairwayError, match="clone the repository, run `make setup` in it"):
        load(tmp_path)


def test_no_time_is_no_measurement(measured: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", measured, "--seconds", "0"]) == 2
    assert "--seconds" in capsys.readouterr().err
