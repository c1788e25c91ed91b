"""The pages in a real browser: plots are drawn, search and sorting work, light and dark, by mouse and by keyboard."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairway.report.capture import capture_report
from fairway.report.page import Axis, Chart, Line, chart, heat_map, page, section
from tests.report.browser import Browser
from tests.report.lakes import Tables, alone, mixed, transmission

COLOURS_IN = """(selector => {
  const canvas = document.querySelector(`${selector} canvas`);
  const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
  const seen = new Set();
  for (let at = 0; at < pixels.length; at += 4)
    if (pixels[at + 3] > 200) seen.add(pixels.slice(at, at + 3).join());
  return [...seen];
})"""
ROWS = "document.querySelectorAll('#sessions tbody tr').length"
FIRST_ROW = "document.querySelector('#sessions tbody tr').textContent"


def rgb(colour: str) -> str:
    """Return #rrggbb as the pixels of a canvas say it."""
    return ",".join(str(int(colour[at : at + 2], 16)) for at in (1, 3, 5))


def colours(browser: Browser, selector: str) -> set[str]:
    """Return the opaque colours on the first canvas that the selector names."""
    return set(browser.run(f"{COLOURS_IN}({selector!r})"))


def colour(browser: Browser, name: str) -> str:
    """Return what a colour of the style is now."""
    return rgb(browser.run(f"fairway.style({name!r})"))


def choose(browser: Browser, name: str, value: str) -> None:
    """Choose an option as a person would."""
    script = f"one.value = {value!r}; one.dispatchEvent(new Event('change'))"
    browser.run(f"(one => {{ {script} }})(document.getElementById({name!r}))")


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the report of a few dozen conversations."""
    folder = tmp_path_factory.mktemp("report")
    path = folder / "report.html"
    path.write_text(capture_report(mixed().write(folder / "lake")), encoding="utf-8")
    return path


def test_every_chart_of_the_overview_is_drawn(browser: Browser, report: Path) -> None:
    browser.open(report)
    assert browser.run("document.querySelectorAll('.chart canvas').length") == 3
    for number in (1, 2, 3):
        assert colour(browser, "--c1") in colours(browser, f"figure:nth-of-type({number})")


def test_the_plots_of_a_session_are_drawn_with_losses_and_copies_marked(browser: Browser, report: Path) -> None:
    browser.open(report, "#session-0")
    drawn = colours(browser, "#sequence")
    for name in ("--c1", "--c2", "--c3", "--c8"):
        assert colour(browser, name) in drawn
    assert browser.run("document.querySelectorAll('#over-time canvas').length") == 3
    assert browser.run("document.querySelectorAll('.ladder .rung').length") == 24
    assert browser.run("document.querySelectorAll('.ladder .cross').length") > 3
    assert browser.run("document.getElementById('list').hidden")


def test_search_finds_sessions_by_every_word(browser: Browser, report: Path) -> None:
    browser.open(report)
    assert browser.run(ROWS) == 26
    browser.run("document.getElementById('search').focus()")
    browser.type("mrp unanswered")
    assert browser.run(ROWS) == 1
    assert "10.0.91.2:40091" in browser.run(FIRST_ROW)
    browser.type(" nobody")
    assert browser.run(FIRST_ROW) == "No session matches."
    assert browser.run("document.getElementById('matches').textContent") == "0 of 26 listed"


def test_heads_sort_and_chips_hide(browser: Browser, report: Path) -> None:
    browser.open(report)
    assert "10.0.90.2" in browser.run(FIRST_ROW)
    click = "[...document.querySelectorAll('#sessions th button')].find(one => one.textContent === 'Datagrams').click()"
    browser.run(f"{click}; {click}")
    assert "10.0.91.2" in browser.run(FIRST_ROW)
    assert browser.run("document.querySelector('#sessions th[aria-sort]').getAttribute('aria-sort')") == "ascending"
    browser.run("document.querySelector('#protocols button').click()")
    assert "mrp" not in browser.run("document.querySelector('#sessions tbody').textContent")


def test_a_session_opens_and_closes_by_the_keyboard(browser: Browser, report: Path) -> None:
    browser.open(report)
    browser.run("document.querySelector('#sessions tbody a').focus()")
    browser.press("Enter")
    assert browser.run("document.querySelector('#one h2').textContent") == "10.0.90.2:40090→192.0.2.10:9000"
    browser.run("document.querySelector('#one a').focus()")
    browser.press("Enter")
    assert browser.run("document.getElementById('one').hidden")
    assert not browser.run("document.getElementById('overview').hidden")


def test_arrow_keys_read_a_chart(browser: Browser, report: Path) -> None:
    browser.open(report)
    browser.run("document.querySelector('.chart').focus()")
    browser.press("ArrowRight")
    said = browser.run("document.querySelector('.tip:not([hidden])').textContent")
    assert said.startswith("0.000 s")  # a capture of seconds counts from its beginning
    assert "B/s" in said


def test_a_broken_rule_leads_to_its_frame_in_the_ladder(browser: Browser, report: Path) -> None:
    browser.open(report, "#session-0")
    browser.run("document.querySelector('#broken a').click()")
    frame = browser.run("document.querySelector('.ladder .marked text:last-of-type').textContent")
    assert frame in browser.run("document.querySelector('#broken a').textContent")
    assert "wireshark -r 'link.pcapng' -g" in browser.run("document.querySelector('#broken code').textContent")


def test_a_place_in_the_overview_leads_to_its_session(browser: Browser, report: Path) -> None:
    browser.open(report)
    browser.run("document.querySelector('.rules a').click()")
    browser.painted()
    assert browser.run("document.querySelector('#one h2').textContent").startswith("10.0.90.2")


def test_dark_follows_the_system_and_the_switch_overrules_it(browser: Browser, report: Path) -> None:
    browser.open(report)
    ground = "getComputedStyle(document.body).backgroundColor"
    light = browser.run(ground)
    browser.prefer("dark")
    dark = browser.run(ground)
    assert dark != light
    assert colour(browser, "--c1") in colours(browser, "figure"), "charts are drawn again in the new colours"
    choose(browser, "theme", "light")
    assert browser.run(ground) == light
    assert rgb("#0a66c2") in colours(browser, "figure")
    choose(browser, "theme", "auto")
    assert browser.run(ground) == dark


@pytest.mark.parametrize("width", [380, 768, 1_024, 1_400, 1_920])
def test_a_page_scrolls_sideways_in_no_usual_width(browser: Browser, report: Path, width: int) -> None:
    browser.resize(width, 900)
    for anchor in ("", "#session-0"):
        browser.open(report, anchor)
        assert browser.run("document.documentElement.scrollWidth") <= width
        assert browser.run("document.querySelector('canvas').clientWidth") < width


def test_hostile_names_are_shown_and_not_run(browser: Browser, tmp_path: Path) -> None:
    evil = "<img src=x onerror=document.title='owned'>.pcap"
    tables = alone(20, loss=0.2, file=evil, point=evil, broken=("UDPC-3.4",), end=evil)
    path = tmp_path / "evil.html"
    path.write_text(capture_report(tables.write(tmp_path / "lake")), encoding="utf-8")
    for anchor in ("", "#session-0"):
        browser.open(path, anchor)
        assert evil in browser.run("document.body.textContent")
        assert browser.run("document.title") == "What the captures tell · Fairway"
        assert browser.run("document.images.length") == 0


def test_points_are_chosen_and_the_list_follows(browser: Browser, tmp_path: Path) -> None:
    tables = Tables()
    for number, point in enumerate(("client", "server", "server")):
        transmission(tables, number, point=point, messages=20)
    path = tmp_path / "points.html"
    path.write_text(capture_report(tables.write(tmp_path / "lake")), encoding="utf-8")
    browser.open(path)
    assert browser.run(ROWS) == 2
    choose(browser, "point", "client")
    browser.painted()
    assert browser.run(ROWS) == 1
    assert browser.run("[...document.querySelectorAll('[data-point]')].filter(one => !one.hidden).length") == 1
    assert browser.run("document.querySelector('[data-point=client] canvas').clientWidth") > 100


def test_charts_with_error_bars_logarithms_and_heat_maps_are_drawn(browser: Browser, tmp_path: Path) -> None:
    low, high = [8, 80, 700], [12, 130, 999]
    lines = [
        Line(name="measured", x=[0.001, 0.01, 0.1], y=[10, 100, 900], low=low, high=high, colour=3, drawing="points"),
        Line(name="theory", x=[0.001, 0.005, 0.05, 0.1], y=[9, 60, 500, 950], colour=4, drawing="dashes"),
        Line(name="steps", x=[0.01], y=[50], colour=5, drawing="steps"),
        Line(name="only whiskers", x=[0.02], y=[300], low=[200], high=[500], colour=6, drawing="dashes"),
    ]
    loss, latency = Axis(label="loss", unit="share", log=True), Axis(label="latency", unit="us", log=True)
    picture = Chart(title="Latency", x=loss, y=latency, lines=lines)
    columns = ["10 ms", "20 ms"]
    grid = heat_map(
        title="Who wins",
        row_label="loss",
        column_label="delay",
        rows=["1 %"],
        columns=columns,
        cells=[[("rup", 3, 1.0), None]],
    )
    path = tmp_path / "lab.html"
    path.write_text(page(title="Lab", about="", blocks=[section("S", [chart(picture), grid])]), encoding="utf-8")
    browser.open(path)
    drawn = colours(browser, "figure")
    for name in ("--c3", "--c4", "--c5", "--c6"):
        assert colour(browser, name) in drawn
    assert browser.run("document.querySelectorAll('.heat td').length") == 2
