"""The figures of one run: datagrams a second of each reader, how many times tshark that is, and the goals."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

GOALS = (
    ("decoded and grouped", "tshark", 20.0),
    ("decoded and grouped", "dpkt", 8.0),
    ("packets table", "tshark", 6.0),
    ("all tables", "tshark", 3.0),
)
"""A step on all cores, what it is compared with, and how many times that it must be (NUMBERS)."""
SCALING_GOAL = 0.8
"""From one core to two: at least this share of twice the rate."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One reader in one state."""

    reader: str
    cores: int
    state: str
    seconds: float
    datagrams: int

    @property
    def rate(self) -> float:
        """Datagrams a second."""
        return self.datagrams / self.seconds


def figures_of(answers: Iterable[dict[str, Any]], datagrams: int) -> list[Figure]:
    """Turns a worker's answers into figures: cold with the start of Spark, and the median of the warm rounds."""
    found: list[Figure] = []
    for answer in answers:
        step, cores = answer["step"], answer["cores"]
        if step == "decoded and grouped":
            found.append(Figure(step, cores, "cold", answer["session_s"] + answer["cold_s"], datagrams))
        found.append(Figure(step, cores, "steady", median(answer["warm_s"]), datagrams))
    return found


def rows(figures: Sequence[Figure]) -> list[dict[str, object]]:
    """Return the table: a row for each figure, beside the peers that were measured."""
    peers = {name: rate for name in ("tshark", "dpkt") if (rate := _rate(figures, name, 1)) is not None}
    return [
        {
            "reader": figure.reader,
            "cores": figure.cores,
            "state": figure.state,
            "seconds": round(figure.seconds, 3),
            "datagrams_per_s": round(figure.rate),
            **{f"times_{name}": round(figure.rate / rate, 2) for name, rate in peers.items()},
        }
        for figure in figures
    ]


def verdicts(figures: Sequence[Figure], cores: int) -> list[dict[str, object]]:
    """Judges the goals that were measured."""
    judged: list[dict[str, object]] = []
    for step, peer, goal in GOALS:
        own, other = _rate(figures, step, cores), _rate(figures, peer, 1)
        if own is not None and other is not None:
            judged.append(_verdict(f"{step}, times {peer}", goal, own / other))
    one, many = _rate(figures, "decoded and grouped", 1), _rate(figures, "decoded and grouped", cores)
    if one is not None and many is not None and cores > 1:
        judged.append(_verdict(f"decoded and grouped, {cores} cores of linear", SCALING_GOAL, many / one / cores))
    return judged


def _verdict(what: str, goal: float, found: float) -> dict[str, object]:
    return {"goal": what, "at_least": goal, "found": round(found, 2), "met": found >= goal}


def _rate(figures: Sequence[Figure], reader: str, cores: int) -> float | None:
    rates = [
        figure.rate for figure in figures if (figure.reader, figure.cores, figure.state) == (reader, cores, "steady")
    ]
    return rates[0] if rates else None


def markdown(figures: Sequence[Figure], judged: Sequence[dict[str, object]]) -> str:
    """Return both tables for `docs/benchmarks.md`."""
    return "\n".join([*_markdown_table(rows(figures)), "", *_markdown_table(judged), ""])


def _markdown_table(found: Sequence[dict[str, object]]) -> list[str]:
    if not found:
        return []
    names = list(found[0])
    head = ["| " + " | ".join(name.replace("_", " ") for name in names) + " |", "|" + "---|" * len(names)]
    return head + ["| " + " | ".join(_shown(row[name]) for name in names) + " |" for row in found]


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int | float) else str(value)
