"""The pages for applications do what they say: every example on them runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fairway.net.urls import shown_name
from fairway.protocols import NAMES, options_class
from tests.conftest import ROOT
from tests.examples import blocks, run_python, run_server, run_shell

FOLDER = ROOT / "docs" / "protocols"
PAGES = sorted(FOLDER.glob("*.md"))


def examples(language: str) -> list[object]:
    return [
        pytest.param(block, id=f"{page.stem}-{number}")
        for page in PAGES
        for number, block in enumerate(blocks(page, language), 1)
    ]


@pytest.mark.parametrize("block", examples("sh"))
def test_every_shell_example_runs(block: str, tmp_path: Path) -> None:
    run_shell(block, tmp_path)


@pytest.mark.parametrize("block", examples("python"))
def test_every_python_example_prints_what_it_says_and_servers_survive_a_client_that_vanishes(
    block: str, tmp_path: Path
) -> None:
    (run_server if "serve_forever" in block else run_python)(block, tmp_path)


def test_there_is_a_server_among_the_examples() -> None:
    assert any("serve_forever" in block for page in PAGES for block in blocks(page, "python"))


@pytest.mark.parametrize("name", NAMES)
def test_every_protocol_has_a_page_with_examples_of_both_kinds(name: str) -> None:
    page = FOLDER / f"{name}.md"
    assert blocks(page, "sh")
    assert blocks(page, "python")


@pytest.mark.parametrize("name", NAMES)
def test_the_options_in_the_table_of_a_page_exist_with_these_defaults(name: str) -> None:
    options = options_class(name)()
    known = {shown_name(field): getattr(options, field) for field in options.__dataclass_fields__}
    rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \|", (FOLDER / f"{name}.md").read_text(), flags=re.MULTILINE)
    assert rows
    for option, default in rows:
        assert default.strip() in shown_forms(known[option]), option


def shown_forms(value: object) -> set[str]:
    """Return the ways in which a page may write a value."""
    if isinstance(value, bool):
        return {"on" if value else "off"}
    if isinstance(value, tuple):
        return {", ".join(value)}
    if not isinstance(value, int):
        return {str(value)}
    durations = {f"{value / size:g} {unit}" for unit, size in (("ms", 1_000), ("s", 1_000_000), ("min", 60_000_000))}
    return {f"{value:,}", f"{value / (1 << 20):g} MiB"} | durations
