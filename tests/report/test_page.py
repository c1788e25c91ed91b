"""The frame of every page: self-contained, escaped, and locked to its own scripts."""

from __future__ import annotations

import re
from hashlib import sha256
from importlib.resources import files

import pytest

from fairway.report import units
from fairway.report.page import (
    Axis,
    Cell,
    Chart,
    Line,
    Markup,
    Tile,
    chart,
    element,
    heat_map,
    links,
    page,
    section,
    table,
    tiles,
)

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\"'&"

UPLOT = {
    "uplot.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
    "uplot.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
}


def whole(*blocks: Markup, data: object = None) -> str:
    return page(title="T", about="A", blocks=blocks, data=data)


@pytest.mark.parametrize("name", UPLOT)
def test_the_charting_library_is_the_one_that_was_released(name: str) -> None:
    asset = files("fairway.report").joinpath("assets", name).read_bytes()
    assert sha256(asset).hexdigest() == UPLOT[name]


def test_a_page_fetches_nothing() -> None:
    text = whole(element("p", "hello"))
    assert "default-src &#x27;none&#x27;" in text
    assert not re.search(r"<(link|img|iframe|script)[^>]+(src|href)=", text)
    assert "@import" not in text
    assert "url(" not in text


def test_the_policy_allows_exactly_the_scripts_that_are_there() -> None:
    text = whole(element("p", "hello"))
    allowed = re.findall(r"&#x27;sha256-([^&]+)&#x27;", text)
    assert len(allowed) == len(re.findall(r"<script>", text)) == 2


@pytest.mark.parametrize(
    "block",
    [
        element("p", HOSTILE),
        section(HOSTILE, [], note=HOSTILE, name=HOSTILE),
        tiles([Tile(name=HOSTILE, value=HOSTILE, detail=HOSTILE)]),
        table([HOSTILE, HOSTILE], [[HOSTILE, Cell(HOSTILE, HOSTILE, bar=0.5)]]),
        links([(HOSTILE, HOSTILE, HOSTILE)]),
        chart(Chart(title=HOSTILE, x=Axis(label=HOSTILE), y=Axis(label=HOSTILE), says=HOSTILE)),
        heat_map(
            title=HOSTILE,
            row_label=HOSTILE,
            column_label=HOSTILE,
            rows=[HOSTILE],
            columns=[HOSTILE],
            cells=[[(HOSTILE, 1, 0.5)]],
            says=HOSTILE,
        ),
    ],
)
def test_no_block_lets_text_become_an_element(block: Markup) -> None:
    assert "<script>alert" not in block
    assert "<img" not in block


def test_no_data_ends_its_script_early() -> None:
    text = whole(element("p", "x"), data={HOSTILE: [HOSTILE]})
    assert "<script>alert" not in text
    assert "<img" not in text


def test_only_markup_is_taken_as_it_is() -> None:
    assert element("p", ["<b>", Markup("<i></i>")]) == "<p>&lt;b&gt;<i></i></p>"


def test_a_chart_carries_its_description() -> None:
    line = Line(name="udpc", x=[1, 2], y=[1, None], low=[0.5, None], high=[2, None], colour=1)
    text = chart(Chart(title="Loss", x=Axis(label="x", log=True), y=Axis(label="y", unit="share"), lines=[line]))
    assert "&quot;unit&quot;:&quot;share&quot;" in text
    assert "[1,null]" in text


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (units.count(None), "–"),
        (units.count(1_234_567), "1,234,567"),
        (units.count(12_345_678), "12.3 M"),
        (units.bytes_(999), "999 B"),
        (units.bytes_(1_234), "1.23 kB"),
        (units.bytes_(123_456_789), "123 MB"),
        (units.duration(431), "431 µs"),
        (units.duration(12_340), "12.3 ms"),
        (units.duration(4_560_000), "4.56 s"),
        (units.duration(200_000_000), "3 min 20 s"),
        (units.duration(7_260_000_000), "2 h 1 min"),
        (units.share(0), "0 %"),
        (units.share(0.0004), "< 0.1 %"),
        (units.share(0.0421), "4.2 %"),
        (units.share(1), "100 %"),
    ],
)
def test_numbers_are_written_with_their_unit(said: str, expected: str) -> None:
    assert said == expected
