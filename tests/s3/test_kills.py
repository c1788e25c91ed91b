"""Gateway, stream and compaction are killed while the lake is in an object store, and nothing is missing or double."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.torture.run import Torture

KILLS = 6
SEED = 2
"""Its plan: the gateway four times, gateway and stream at once, a compaction that keeps its claim."""


@pytest.mark.long
def test_whatever_is_killed_what_was_acknowledged_is_in_the_store_once(address: str, tmp_path: Path) -> None:
    said: list[str] = []
    verdict = Torture(KILLS, SEED, tmp_path, said.append, stream_kills=2, lake=address).run()
    assert verdict.kept, "\n".join([*said, *verdict.lines()])
    assert sum(verdict.kills.values()) >= KILLS
    assert {"delta-rs", "Polars", "Spark", "reconcile"} <= set(verdict.looks)
    assert verdict.judgement is not None
    assert verdict.judgement.acknowledged > 200
