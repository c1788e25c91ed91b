"""Prints the tables of docs/which-protocol.md from a sweep of the standard grid.

python scripts/which_protocol.py out/standard
"""

from __future__ import annotations

import sys
from pathlib import Path

import duckdb

STEADY = "messages = 200 AND size_bytes = 200 AND interval_ms = 10 AND reorder = 0"
PLAIN = ("udpc", "mrp", "rup", "pydevts")
CONTROLLERS = ("model", "newreno", "eager")
FAST = ("pydevts", *(f"{name} controller={how}" for how in CONTROLLERS for name in ("udpc", "mrp", "rup")))
LAYOUTS = tuple(f"mrp controller={how} layout={layout}" for how in CONTROLLERS for layout in ("stamped", "piggyback"))
MS = "format('{{:,}}', CAST(round(avg({}) / 1000) AS BIGINT))"
TABLES = (
    (
        "small messages at a steady rate, ms, p50 / p99",
        f"{STEADY} AND burst_length = 1",
        "delay_ms, loss",
        f"{MS.format('latency_p50_us')} || ' / ' || {MS.format('latency_p99_us')}",
        PLAIN,
    ),
    (
        "the same, mrp's layouts and the controllers",
        f"{STEADY} AND burst_length = 1",
        "delay_ms, loss",
        f"{MS.format('latency_p50_us')} || ' / ' || {MS.format('latency_p99_us')}",
        LAYOUTS,
    ),
    (
        "as much as goes, kB/s",
        "messages = 2000 AND size_bytes = 1000",
        "delay_ms, loss",
        MS.format("goodput_bytes_per_s"),
        FAST,
    ),
    (
        "bytes / datagrams of a message",
        f"{STEADY} AND burst_length = 1",
        "loss",
        "printf('%.0f / %.2f', avg(bytes_per_message), avg(datagrams_per_message))",
        PLAIN,
    ),
    (
        "messages of 200 without an acknowledgement, losses in bursts of 8",
        f"{STEADY} AND burst_length = 8",
        "loss",
        "printf('%.2f', avg(failed))",
        PLAIN,
    ),
    (
        "one message of 1 MB, ms",
        "messages = 1 AND size_bytes = 1000000",
        "delay_ms, loss",
        MS.format("latency_p50_us"),
        ("rup part_bytes=0", "rup part_bytes=500"),
    ),
    (
        "two flows, Jain's index",
        "flows = 2",
        "delay_ms",
        "printf('%.3f', avg(fairness))",
        tuple(name for name in FAST if name != "pydevts"),
    ),
)
"""Title, which runs, the rows, what stands in a cell, the columns."""


def tables(folder: Path) -> list[str]:
    """Return the lines to print."""
    ask = duckdb.connect().execute
    runs = f"read_parquet('{folder / 'runs' / '*.parquet'}')"
    counted = f"SELECT count(*), CAST(sum(datagrams) AS BIGINT), count_if(NOT passed) FROM {runs}"
    [(number, datagrams, broken)] = ask(counted).fetchall()
    lines = [f"{number:,} runs, {datagrams:,} datagrams, {broken:,} runs broke a rule"]
    for title, chosen, rows, cell, columns in TABLES:
        lines += ["", title, f"| {rows.replace(', ', ' | ')} | {' | '.join(columns)} |"]
        asked = ", ".join(f"max(said) FILTER (variant = '{name}')" for name in columns)
        inner = f"SELECT {rows}, variant, {cell} AS said FROM {runs} WHERE {chosen} GROUP BY {rows}, variant"
        found = ask(f"SELECT {rows}, {asked} FROM ({inner}) GROUP BY {rows} ORDER BY {rows}").fetchall()
        lines += [f"| {' | '.join(str(value) for value in row)} |" for row in found]
    return lines


if __name__ == "__main__":
    print("\n".join(tables(Path(sys.argv[1]))))
