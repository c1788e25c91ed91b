"""The scripts behind `make`: they find what is missing and report what fails."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fairway.protocols import NAMES
from scripts import require, soak, which_protocol


def test_a_soak_deals_its_seeds_over_all_protocols() -> None:
    dealt = list(soak.runs(10, 40))
    assert [run.seed for run in dealt] == list(range(10, 50))
    for protocol in NAMES:
        assert sum(run.protocol == protocol for run in dealt) == 10


def test_a_soak_prints_how_to_replay_what_failed(capsys: pytest.CaptureFixture[str]) -> None:
    good = soak.Finding(soak.Run("mrp", 5), 100, None)
    bad = soak.Finding(soak.Run("udpc", 6), 20, "nothing twice: message 3")
    assert soak.soak([good, bad, good], 3, 1_000) == 1
    out = capsys.readouterr().out
    assert "FAILED fairway sim --protocol udpc --swarm --seed 6\n    nothing twice: message 3\n" in out
    assert "3 runs (mrp 2, udpc 1), 220 datagrams, 1 failed" in out


def test_a_soak_gives_up_after_many_failures(capsys: pytest.CaptureFixture[str]) -> None:
    bad = soak.Finding(soak.Run("udpc", 6), 20, "wrong")
    assert soak.soak([bad] * 100, 100, 1_000) == soak.FAILURES_MAX


def test_an_exception_in_a_run_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(protocol: str, seed: int) -> None:
        raise KeyError(f"{protocol} {seed}")

    monkeypatch.setattr(soak, "run_seed", broken)
    assert soak.look_at(soak.Run("rup", 3)) == soak.Finding(soak.Run("rup", 3), 0, "KeyError: 'rup 3'")


@pytest.mark.parametrize(
    ("said", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_392"', 8),
        ('version "21" 2023', 21),
        ("?", 0),
    ],
)
def test_the_version_of_java_is_read(tmp_path: Path, said: str, version: int) -> None:
    java = tmp_path / "java"
    java.write_text(f"#!/bin/sh\necho '{said}' >&2\n")
    java.chmod(0o755)
    assert require.java_version(str(java)) == version


def test_the_java_of_the_environment_goes_before_the_one_on_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for home, version in (("old", 11), ("new", 17)):
        java = tmp_path / home / "bin" / "java"
        java.parent.mkdir(parents=True)
        java.write_text(f"#!/bin/sh\necho 'version \"{version}.0.1\"' >&2\n")
        java.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "new" / "bin"), prepend=":")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert require.find_java() == str(tmp_path / "new" / "bin" / "java")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    assert require.find_java() is None


def test_what_is_missing_is_named_with_its_remedy(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    program = require.Program("a program", lambda: None, "its-package")
    monkeypatch.setattr(require, "PROGRAMS", {"tool": program})
    monkeypatch.setattr(require, "install", lambda package: False)
    assert require.main(["tool"]) == 1
    said = "Fairway needs a program: install it (Debian: apt-get install its-package), then try again.\n"
    assert capsys.readouterr().err == said


def test_the_tables_of_which_protocol_are_means_over_seeds(tmp_path: Path) -> None:
    runs = [
        {
            "variant": "udpc", "messages": 200, "size_bytes": 200, "interval_ms": 10.0, "reorder": 0.0, "loss": 0.05,
            "burst_length": 1.0, "delay_ms": 50.0, "flows": 1, "passed": passed, "datagrams": 400, "failed": 0,
            "latency_p50_us": latency_us, "latency_p99_us": 2 * latency_us, "goodput_bytes_per_s": 1.0,
            "bytes_per_message": 230.0, "datagrams_per_message": 2.0, "fairness": 1.0,
        }
        for latency_us, passed in ((1_000_000, True), (2_000_000, False))
    ]  # fmt: skip
    (tmp_path / "runs").mkdir()
    pq.write_table(pa.Table.from_pylist(runs), tmp_path / "runs" / "chunk-000000.parquet")
    printed = which_protocol.tables(tmp_path)
    assert printed[0] == "2 runs, 800 datagrams, 1 runs broke a rule"
    assert "| 50.0 | 0.05 | 1,500 / 3,000 | None | None | None |" in printed
