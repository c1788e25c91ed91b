"""The frame of every page: one file with its style, its scripts and its data inside.

The file opens offline and fetches nothing: its content security policy allows only the scripts that are in it, by
their hash. So even HTML that slipped through unescaped could not run.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from hashlib import sha256
from importlib.resources import files
from json import dumps

from fairway import __version__
from fairway.report.blocks import Block, Markup, element

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
    *, title: str, about: str, blocks: Sequence[Block], data: object = None, scripts: Sequence[str] = (), foot: str = ""
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
        element("main", [block.html for block in blocks], {"id": "content"}),
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
