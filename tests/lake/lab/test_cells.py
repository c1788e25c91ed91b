"""A cell is a function of what it consists of."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fairway.core.tables import RUNS
from fairway.lake.lab.cells import Cell, Link, Traffic, measured
from fairway.protocols import NAMES

LOSSY = Link(loss=0.1, delay_ms=20)


def test_a_cell_survives_the_way_to_a_file_and_keeps_its_key() -> None:
    cell = Cell(protocol="mrp", options={"layout": "piggyback", "window": 4}, link=LOSSY, seed=9)
    again = Cell.from_plain(cell.plain())
    assert again == cell
    assert again.key == cell.key
    assert replace(cell, seed=10).key != cell.key


@pytest.mark.parametrize("protocol", NAMES)
def test_a_row_has_the_columns_of_the_table_and_is_the_same_each_time(protocol: str) -> None:
    cell = Cell(protocol=protocol, link=LOSSY, load=Traffic(messages=40, interval_ms=5), seed=3)
    row = measured(cell, 7)
    assert tuple(row) == RUNS.names
    assert row == measured(cell, 7)
    assert row["passed"] is True
    assert (row["cell"], row["delivered"], row["failed"]) == (7, 40, 0)
    assert row["retransmissions"] > 0  # type: ignore[operator]
    assert row["latency_p50_us"] >= 20_000  # type: ignore[operator]


def test_bursts_keep_the_average_and_change_how_losses_lie() -> None:
    faults = Link(loss=0.05, burst_length=8).faults()
    stay_bad = 1_000_000 / faults.burst_leave
    share = faults.burst_enter / (faults.burst_enter + faults.burst_leave)
    assert stay_bad == 8
    assert share == pytest.approx(0.05, rel=1e-4)
    assert faults.loss == 0


def test_fairness_is_measured_where_flows_share_a_link() -> None:
    load = Traffic(messages=150, size=1_000, flows=2)
    cell = Cell(protocol="udpc", link=Link(bandwidth=200_000), load=load)
    fairness = measured(cell, 0)["fairness"]
    assert isinstance(fairness, float)
    assert 0.5 <= fairness <= 1
    assert measured(Cell(protocol="udpc"), 0)["fairness"] is None
