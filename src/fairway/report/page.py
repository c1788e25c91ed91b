"""Pages: one HTML file with its style, its scripts and its data inside, and what stands on it.

`Markup` is text that is HTML already; only `element` makes it, and it escapes everything that is not. So a hostile
file name cannot become an element, whichever block shows it. The file opens offline and fetches nothing: its content
security policy allows only the scripts that are in it, by their hash. So even HTML that slipped through unescaped could
not run.

A chart is a description: what is drawn, in which unit, with which words; `assets/frame.js` draws it with uPlot. A heat
map is a table whose cells have colours, so that it can be read, copied and heard.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from html import escape
from importlib.resources import files
from json import dumps
from typing import Literal

from fairway import __version__

VOID_ELEMENTS = ("br", "hr", "input", "meta")


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


Content = str | Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """One number that matters: what it is, its value, and what stands behind it. `bad` draws the eye."""

    name: str
    value: str
    detail: str = ""
    bad: bool = False


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell whose text differs from what it sorts by."""

    text: str
    order: float | str | None
    bar: float | None = None
    """A share from 0 to 1, drawn behind the text."""


def element(name: str, content: Content = "", attributes: Mapping[str, str] | None = None) -> Markup:
    """Return an element; content that is not `Markup` is escaped, and so are all attributes."""
    written = "".join(f' {key}="{escape(value)}"' for key, value in (attributes or {}).items())
    if name in VOID_ELEMENTS:
        return Markup(f"<{name}{written}>")
    pieces = [content] if isinstance(content, str) else content
    inner = "".join(piece if isinstance(piece, Markup) else escape(piece) for piece in pieces)
    return Markup(f"<{name}{written}>{inner}</{name}>")


def section(title: str, blocks: Sequence[Markup], *, note: str = "", name: str = "") -> Markup:
    """Return a part of the page under its own heading, to which `#name` leads."""
    head = [element("h2", title)]
    if note:
        head.append(element("p", note, {"class": "note"}))
    attributes = {"id": name} if name else {}
    return element("section", [*head, *blocks], attributes)


def side_by_side(blocks: Sequence[Markup]) -> Markup:
    """Return blocks that share a row where there is room."""
    return element("div", blocks, {"class": "columns"})


def tiles(rows: Sequence[Tile]) -> Markup:
    shown = [
        element(
            "div",
            [
                element("dt", tile.name),
                element("dd", tile.value),
                element("dd", tile.detail, {"class": "detail"}),
            ],
            {"class": "tile bad" if tile.bad else "tile"},
        )
        for tile in rows
    ]
    return element("dl", shown, {"class": "tiles"})


def table(heads: Sequence[str], rows: Sequence[Sequence[str | Cell]], *, words: int = 1) -> Markup:
    """Return a table that sorts by a click on a head; the first `words` columns are text, the others numbers."""
    styles = ["word" if index < words else "number" for index in range(len(heads))]
    head = [
        element("th", element("button", name, {"type": "button"}), {"class": style, "scope": "col"})
        for name, style in zip(heads, styles, strict=True)
    ]
    body = [element("tr", [_cell(cell, style) for cell, style in zip(row, styles, strict=True)]) for row in rows]
    parts = [element("thead", element("tr", head)), element("tbody", body)]
    return element("div", element("table", parts, {"class": "sortable"}), {"class": "scroll"})


def _cell(cell: str | Cell, style: str) -> Markup:
    if isinstance(cell, str):
        return element("td", cell, {"class": style})
    attributes = {"class": style, "data-order": "" if cell.order is None else str(cell.order)}
    if cell.bar is not None:
        attributes |= {"class": f"{style} bar", "style": f"--bar:{min(1.0, max(0.0, cell.bar)):.3f}"}
    return element("td", cell.text, attributes)


def protocol_mark(name: str) -> Markup:
    """Return a protocol's name with its colour beside it."""
    return element("span", name, {"class": f"protocol p-{name}"})


def links(rows: Sequence[tuple[str, str, str]]) -> Markup:
    """Return cards that lead elsewhere: address relative to the page, title, what is there."""
    cards = [
        element("a", [element("strong", title), element("span", says)], {"href": address, "class": "card"})
        for address, title, says in rows
    ]
    return element("nav", cards, {"class": "cards"})


STYLES = ("uplot.css", "frame.css")
SCRIPTS = ("uplot.js", "frame.js")
DATA_ID = "data"

_MARK = Markup(
    '<svg viewBox="0 0 32 32" width="28" height="28" aria-hidden="true">'
    '<path d="M3 27c4 0 4-2 8-2s4 2 8 2 4-2 8-2" fill="none" stroke="currentColor" stroke-width="2"/>'
    '<path d="M6 21V9h6v12z" class="port"/><path d="M20 21l4-13 4 13z" class="starboard"/></svg>'
)
"""The two marks between which a fairway lies: can to port, cone to starboard."""


def page(
    *, title: str, about: str, blocks: Sequence[str], data: object = None, scripts: Sequence[str] = (), foot: str = ""
) -> str:
    """Return a whole page. `data` is what the extra scripts read; they are names of assets."""
    programs = [_asset(name) for name in (*SCRIPTS, *scripts)]
    head = [
        element("meta", attributes={"charset": "utf-8"}),
        element("meta", attributes={"http-equiv": "Content-Security-Policy", "content": _policy(programs)}),
        element("meta", attributes={"name": "viewport", "content": "width=device-width, initial-scale=1"}),
        element("meta", attributes={"name": "color-scheme", "content": "light dark"}),
        element("meta", attributes={"name": "generator", "content": f"fairway {__version__}"}),
        element("title", f"{title} · Fairway"),
        *(element("style", Markup(_asset(name))) for name in STYLES),
    ]
    body = [
        element("a", "Skip to the content", {"href": "#content", "class": "skip"}),
        _banner(title, about),
        element("main", blocks, {"id": "content"}),
        element("footer", [f"Made by fairway {__version__}. Charts: uPlot. ", foot]),
        _data(data),
        *(element("script", Markup(program)) for program in programs),
    ]
    return f'<!doctype html>\n<html lang="en">{element("head", head)}{element("body", body)}</html>\n'


def _banner(title: str, about: str) -> Markup:
    name = element("span", [_MARK, "Fairway"], {"class": "name"})
    words = element("div", [element("h1", title), element("p", about)])
    options = [element("option", text, {"value": text.lower()}) for text in ("Auto", "Light", "Dark")]
    chooser = element("select", options, {"id": "theme", "aria-label": "Colours of the page"})
    return element("header", [name, words, chooser])


def _data(data: object) -> Markup:
    """JSON in a script element ends at `</script`, whatever stands before it: so no `<` is left in it."""
    text = dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    return element("script", Markup(text), {"type": "application/json", "id": DATA_ID})


def _policy(programs: Sequence[str]) -> str:
    hashes = " ".join(f"'sha256-{b64encode(sha256(program.encode()).digest()).decode()}'" for program in programs)
    return f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data:; base-uri 'none'"


def _asset(name: str) -> str:
    return files("fairway.report").joinpath("assets", name).read_text(encoding="utf-8")


Unit = Literal["number", "count", "bytes", "bytes_per_s", "us", "seconds", "share", "clock"]
"""How values are written: `us` microseconds in a suitable unit, `clock` seconds since 1970 as UTC time of day."""

Drawing = Literal["line", "dashes", "points", "area", "steps"]

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


def chart(picture: Chart) -> Markup:
    """Return the element in which a chart is drawn."""
    told = dumps(asdict(picture), separators=(",", ":"), default=list)
    canvas = element("div", "", {"class": "chart", "data-chart": told, "style": f"min-height:{picture.height}px"})
    return _figure(picture.title, canvas, picture.says)


def _figure(title: str, content: Markup, says: str) -> Markup:
    caption = [element("figcaption", says)] if says else []
    return element("figure", [element("h3", title), content, *caption])


def heat_map(
    *,
    title: str,
    row_label: str,
    column_label: str,
    rows: Sequence[str],
    columns: Sequence[str],
    cells: Sequence[Sequence[tuple[str, int, float] | None]],
    says: str = "",
) -> Markup:
    """Return a table of cells, each with a text, a colour as in `COLOURS`, and a strength from 0 to 1."""
    corner = element("th", f"{row_label} ↓  {column_label} →", {"scope": "col"})
    head = element("tr", [corner, *(element("th", name, {"scope": "col"}) for name in columns)])
    body = [
        element("tr", [element("th", name, {"scope": "row"}), *(_heat_cell(cell) for cell in row)])
        for name, row in zip(rows, cells, strict=True)
    ]
    heat = element("table", [element("thead", head), element("tbody", body)], {"class": "heat"})
    return _figure(title, element("div", heat, {"class": "scroll"}), says)


def _heat_cell(cell: tuple[str, int, float] | None) -> Markup:
    if cell is None:
        return element("td", "", {"class": "none"})
    text, colour, strength = cell
    step = min(CELL_COLOURS, max(1, round(strength * CELL_COLOURS)))
    return element("td", text, {"class": f"heat-{colour} step-{step}"})
