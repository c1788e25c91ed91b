"""The page that the demo ends with: what was promised, what was found, and where to look further."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fairway.report.blocks import Block, Tile, element, links, paragraph, section, table, tiles
from fairway.report.page import page
from fairway.report.units import count


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step of the story: what it showed, in how long, and whether what must be true was."""

    title: str
    found: str
    seconds: float
    kept: bool


def cover(
    steps: Sequence[Step],
    numbers: Sequence[Tile],
    pages: Sequence[tuple[str, str, str]],
    devices: Mapping[str, int],
) -> str:
    """Return the page; `pages` are address, title and what is there, `devices` have messages in the table."""
    sent_by = [(name, count(rows)) for name, rows in sorted(devices.items())]
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
            section(
                "Who sent it",
                [table(["device", "messages in the table"], sent_by)],
                note="All of it came over DTLS; the column device holds the name in the sender's certificate.",
            ),
            section("Step by step", [Block(element("ol", [_told(step) for step in steps]))]),
        ],
    )


def _told(step: Step) -> str:
    verdict = "" if step.kept else " The promise was broken."
    took = element("small", f" {step.seconds:.1f} s")
    return element("li", [element("strong", step.title), f": {step.found}.{verdict}", took])
