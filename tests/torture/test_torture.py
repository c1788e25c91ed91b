"""Everything is killed, and nothing that was acknowledged is missing or double."""

from __future__ import annotations

from pathlib import Path

from tests.torture.run import Torture

KILLS = 12
SEED = 8
"""Its plan: the gateway ten times, the stream in the middle of a commit, a compaction; a pause and a full disk."""


def test_whatever_is_killed_what_was_acknowledged_is_in_the_table_once(tmp_path: Path) -> None:
    said: list[str] = []
    verdict = Torture(KILLS, SEED, tmp_path, said.append).run()
    assert verdict.kept, "\n".join([*said, *verdict.lines()])
    assert sum(verdict.kills.values()) >= KILLS
    assert verdict.kills["stream"] >= 1
    assert verdict.disk_fills >= 1
    assert verdict.pauses >= 1
    assert set(verdict.looks) == {"delta-rs", "DuckDB", "Polars", "Spark", "reconcile"}
    assert verdict.judgement is not None
    assert verdict.judgement.acknowledged > 500
