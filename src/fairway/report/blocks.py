"""What stands on a page: pieces of HTML in which every text from outside is escaped.

`Markup` is text that is HTML already; only `element` makes it, and it escapes everything that is not. So a hostile
file name cannot become an element, whichever block shows it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

VOID_ELEMENTS = ("br", "hr", "input", "meta")


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


Content = str | Sequence[str]


@dataclass(frozen=True, slots=True)
class Block:
    html: Markup


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


def section(title: str, blocks: Sequence[Block], *, note: str = "", name: str = "") -> Block:
    """Return a part of the page under its own heading, to which `#name` leads."""
    head = [element("h2", title)]
    if note:
        head.append(element("p", note, {"class": "note"}))
    attributes = {"id": name} if name else {}
    return Block(element("section", [*head, *(block.html for block in blocks)], attributes))


def group(blocks: Sequence[Block], attributes: Mapping[str, str]) -> Block:
    return Block(element("div", [block.html for block in blocks], attributes))


def side_by_side(blocks: Sequence[Block]) -> Block:
    """Return blocks that share a row where there is room."""
    return group(blocks, {"class": "columns"})


def paragraph(text: Content, style: str = "") -> Block:
    return Block(element("p", text, {"class": style} if style else {}))


def tiles(rows: Sequence[Tile]) -> Block:
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
    return Block(element("dl", shown, {"class": "tiles"}))


def table(heads: Sequence[str], rows: Sequence[Sequence[str | Cell]], *, caption: str = "", words: int = 1) -> Block:
    """Return a table that sorts by a click on a head; the first `words` columns are text, the others numbers."""
    styles = ["word" if place < words else "number" for place in range(len(heads))]
    head = [
        element("th", element("button", name, {"type": "button"}), {"class": style, "scope": "col"})
        for name, style in zip(heads, styles, strict=True)
    ]
    body = [element("tr", [_cell(cell, style) for cell, style in zip(row, styles, strict=True)]) for row in rows]
    parts = [element("caption", caption)] if caption else []
    parts += [element("thead", element("tr", head)), element("tbody", body)]
    return Block(element("div", element("table", parts, {"class": "sortable"}), {"class": "scroll"}))


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


def links(rows: Sequence[tuple[str, str, str]]) -> Block:
    """Return cards that lead elsewhere: address relative to the page, title, what is there."""
    cards = [
        element("a", [element("strong", title), element("span", says)], {"href": address, "class": "card"})
        for address, title, says in rows
    ]
    return Block(element("nav", cards, {"class": "cards"}))
