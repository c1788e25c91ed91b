"""Charts as descriptions: what is drawn, in which unit, with which words. `assets/frame.js` draws them with uPlot.

A heat map is a table whose cells have colours, so that it can be read, copied and heard.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from json import dumps
from typing import Literal

from fairway.report.blocks import Block, Markup, element

Unit = Literal["number", "count", "bytes", "bytes_per_s", "us", "seconds", "share", "clock"]
"""How values are written: `us` microseconds in a suitable unit, `clock` seconds since 1970 as UTC time of day."""

Drawing = Literal["line", "dashes", "points", "bars", "area", "steps", "dashed steps"]

COLOURS = {"udpc": 1, "mrp": 2, "rup": 3, "pydevts": 4}
"""The colour of each protocol, on every page. 5 to 8 are free; 0 is grey."""

CELL_COLOURS = 6
"""Steps of a heat map from nothing to the most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """One axis: its words, its unit, and whether it is logarithmic."""

    label: str
    unit: Unit = "number"
    log: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One row of values over their own x, null where there is none; `low` and `high` are drawn as whiskers."""

    name: str
    x: Sequence[float]
    y: Sequence[float | None]
    low: Sequence[float | None] | None = None
    high: Sequence[float | None] | None = None
    drawing: Drawing = "line"
    colour: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """One picture. `says` is its message in a sentence, for the caption and for those who cannot see it."""

    title: str
    x: Axis
    y: Axis
    lines: Sequence[Line] = field(default_factory=tuple)
    says: str = ""
    height: int = 240


def chart(picture: Chart) -> Block:
    """Return the place where a chart is drawn."""
    heading = element("h3", picture.title)
    told = dumps(asdict(picture), separators=(",", ":"), default=list)
    canvas = element("div", "", {"class": "chart", "data-chart": told, "style": f"min-height:{picture.height}px"})
    caption = element("figcaption", picture.says) if picture.says else Markup("")
    return Block(element("figure", [heading, canvas, caption]))


def heat_map(
    *,
    title: str,
    row_label: str,
    column_label: str,
    rows: Sequence[str],
    columns: Sequence[str],
    cells: Sequence[Sequence[tuple[str, int, float] | None]],
    says: str = "",
) -> Block:
    """Return a table of cells, each with a text, a colour as in `COLOURS`, and a strength from 0 to 1."""
    corner = element("th", f"{row_label} ↓  {column_label} →", {"scope": "col"})
    head = element("tr", [corner, *(element("th", name, {"scope": "col"}) for name in columns)])
    body = [
        element("tr", [element("th", name, {"scope": "row"}), *(_cell(cell) for cell in row)])
        for name, row in zip(rows, cells, strict=True)
    ]
    table = element("table", [element("thead", head), element("tbody", body)], {"class": "heat"})
    caption = element("figcaption", says) if says else Markup("")
    return Block(element("figure", [element("h3", title), element("div", table, {"class": "scroll"}), caption]))


def _cell(cell: tuple[str, int, float] | None) -> Markup:
    if cell is None:
        return element("td", "", {"class": "none"})
    text, colour, strength = cell
    step = min(CELL_COLOURS, max(1, round(strength * CELL_COLOURS)))
    return element("td", text, {"class": f"heat-{colour} step-{step}"})
