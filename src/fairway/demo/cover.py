"""The page that the demo ends with: what was promised, what was found, and where to look further."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fairway.report.blocks import Block, Tile, element, links, paragraph, section, tiles
from fairway.report.page import page


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step of the story: what it showed, in how long, and whether what must be true was."""

    title: str
    found: str
    seconds: float
    kept: bool


def cover(steps: Sequence[Step], numbers: Sequence[Tile], pages: Sequence[tuple[str, str, str]]) -> str:
    """Return the page; `pages` are address, title and what is there."""
    broken = [step.title for step in steps if not step.kept]
    verdict = (
        "Every promise was kept: what was acknowledged is in the table, once, though the gateway was killed."
        if not broken
        else f"A promise was broken: {', '.join(broken)}."
    )
    return page(
        title="Fairway, in two minutes",
        about="Messages over UDP, reliably, from the edge to the lake",
        blocks=[
            section("What happened", [paragraph(verdict, "verdict"), tiles(numbers)]),
            section("Look further", [links(pages)]),
            section("Step by step", [Block(element("ol", [_told(step) for step in steps]))]),
        ],
    )


def _told(step: Step) -> str:
    verdict = "" if step.kept else " The promise was broken."
    took = element("small", f" {step.seconds:.1f} s")
    return element("li", [element("strong", step.title), f": {step.found}.{verdict}", took])
