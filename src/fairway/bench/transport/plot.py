"""The picture: bars of every load and environment, on a logarithmic scale, as one SVG file."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from html import escape
from math import ceil, floor, log10
from statistics import median
from typing import NamedTuple

from fairway.bench.transport.loads import LOADS, Load
from fairway.bench.transport.peers import PEERS
from fairway.bench.transport.rounds import Results
from fairway.bench.transport.table import number

LABEL_WIDTH, BAR_WIDTH, VALUE_WIDTH = 210, 420, 110
ROW_HEIGHT, HEAD_HEIGHT, GAP = 18, 34, 22
OURS, THEIRS, LIMITS = "#1f6f8b", "#b0b7bd", "#d9a441"


class Bar(NamedTuple):
    """One bar of a panel, with the lowest and the highest round."""

    title: str
    colour: str
    middle: float
    lowest: float
    highest: float


def svg(results: Results) -> str:
    """Draws one panel for each load in each environment."""
    return picture(
        (f"{environment}: {load.title}, {load.unit}", _bars(results, environment, load))
        for environment in results.environments
        for load in (LOADS[name] for name in results.plan.loads)
    )


def picture(titled: Iterable[tuple[str, list[Bar]]]) -> str:
    """Draws panels below each other, as one SVG file; one without bars is left out."""
    panels: list[str] = []
    top = GAP
    for title, bars in titled:
        if bars:
            panels.append(_panel(title, bars, top))
            top += HEAD_HEIGHT + ROW_HEIGHT * len(bars) + GAP
    width = LABEL_WIDTH + BAR_WIDTH + VALUE_WIDTH
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{top}" viewBox="0 0 {width} {top}" '
        f'font-family="sans-serif" font-size="12">\n<rect width="100%" height="100%" fill="white"/>\n'
        + "\n".join(panels)
        + "\n</svg>\n"
    )


def _bars(results: Results, environment: str, load: Load) -> list[Bar]:
    bars = []
    for name in results.plan.peers:
        values = [value for value in results.rates(environment, load.name, name) if value]
        if values:
            peer = PEERS[name]
            colour = OURS if peer.module == "endpoints" else (THEIRS if peer.reliable else LIMITS)
            bars.append(Bar(peer.title, colour, median(values), min(values), max(values)))
    return bars


def _panel(title: str, bars: list[Bar], top: int) -> str:
    low = floor(log10(min(bar.lowest for bar in bars)) - 0.01)
    high = max(ceil(log10(max(bar.highest for bar in bars))), low + 1)

    def across(value: float) -> float:
        return LABEL_WIDTH + BAR_WIDTH * (log10(value) - low) / (high - low)

    bottom = top + HEAD_HEIGHT + ROW_HEIGHT * len(bars)
    lines = [f'<text x="8" y="{top + 14}" font-weight="bold">{escape(title)}</text>']
    for power in range(low, high + 1):
        x = across(10.0**power)
        lines.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{top + 26}" y2="{bottom}" stroke="#e4e7ea"/>')
        lines.append(f'<text x="{x:.1f}" y="{top + 24}" font-size="9" text-anchor="middle">{_power(power)}</text>')
    for place, bar in enumerate(bars):
        lines += _bar_lines(bar, top + HEAD_HEIGHT + place * ROW_HEIGHT, across)
    return "\n".join(lines)


def _bar_lines(bar: Bar, y: int, across: Callable[[float], float]) -> list[str]:
    title, colour, middle, lowest, highest = bar
    width = max(across(middle) - LABEL_WIDTH, 1)
    centre = y + ROW_HEIGHT / 2
    return [
        f'<text x="{LABEL_WIDTH - 6}" y="{y + 13}" text-anchor="end">{escape(title)}</text>',
        f'<rect x="{LABEL_WIDTH}" y="{y + 3}" width="{width:.1f}" height="{ROW_HEIGHT - 6}" fill="{colour}"/>',
        f'<line x1="{across(lowest):.1f}" x2="{across(highest):.1f}" y1="{centre}" y2="{centre}" stroke="black"/>',
        f'<text x="{LABEL_WIDTH + BAR_WIDTH + 8}" y="{y + 13}">{number(middle)}</text>',
    ]


def _power(power: int) -> str:
    return f"{10**power:,}" if 0 <= power < 9 else f"1e{power}"
