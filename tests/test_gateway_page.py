"""What the pages say about settings: every documented gateway starts, and every option that is named exists."""

from __future__ import annotations

import re
import shlex
from inspect import signature
from pathlib import Path

import pytest

from fairway.cli import run
from fairway.cli.gateway import gateway
from fairway.gateway.settings import DEFAULTS, build, read_file
from fairway.net.opening import plan_service
from fairway.net.urls import shown_name
from fairway.protocols import NAMES, options_class
from tests.conftest import ROOT
from tests.examples import Terminal, blocks, commands, with_free_ports

PAGES = sorted((ROOT / "docs").rglob("*.md"))
URL = re.compile(rf"(?:{'|'.join(NAMES)})://[^\s\"'`)]*\?[^\s\"'`)]+")


def gateways() -> list[str]:
    """Return every `fairway gateway` command of the pages."""
    found = [line for page in PAGES for block in blocks(page, "sh") for line in commands(block.replace("\\\n", " "))]
    # Those with DTLS need files that the lines before them make; the tests of their pages run them.
    return [line for line in found if line.startswith("fairway gateway") and "+dtls" not in line]


def files() -> list[str]:
    """Return every TOML block that configures a gateway."""
    return [block for page in PAGES for block in blocks(page, "toml") if re.search(r"^urls\b", block, re.MULTILINE)]


def starts(command: str, folder: Path) -> None:
    """Start a gateway as it is documented, on free ports and a lake of its own, and end it."""
    terminal = Terminal(with_free_ports(command), folder)
    try:
        terminal.end()
    finally:
        terminal.stop()


def test_the_pages_hold_a_command_and_a_file() -> None:
    assert gateways()
    assert files()


@pytest.mark.parametrize("command", gateways())
def test_every_documented_gateway_starts_and_is_found_right_by_check(command: str, tmp_path: Path) -> None:
    command = command.removesuffix("&").replace("/srv/lake", str(tmp_path / "lake"))
    assert run([*shlex.split(command)[1:], "--check"]) == 0
    starts(command, tmp_path)


@pytest.mark.parametrize("block", files())
def test_every_documented_file_starts_a_gateway_and_is_found_right_by_check(block: str, tmp_path: Path) -> None:
    config = tmp_path / "gateway.toml"
    config.write_text(with_free_ports(block.replace("/srv/lake", str(tmp_path / "lake"))))
    assert run(["gateway", "--config", str(config), "--check"]) == 0
    urls = " ".join(shlex.quote(url) for url in build(read_file(config)).urls)
    starts(f"fairway gateway {urls} --config {config}", tmp_path)


@pytest.mark.parametrize("url", sorted({url for page in PAGES for url in URL.findall(page.read_text())}))
def test_every_option_of_a_url_on_the_pages_exists(url: str) -> None:
    plan_service(url, {})


def test_every_option_on_the_page_of_the_gateway_exists() -> None:
    named = set(re.findall(r"--([a-z][a-z-]+)", (ROOT / "docs" / "gateway.md").read_text()))
    assert named
    assert named <= {name.replace("_", "-") for name in signature(gateway).parameters}


@pytest.mark.parametrize("name", NAMES)
def test_every_option_that_the_text_about_a_protocol_names_exists(name: str) -> None:
    text = (ROOT / "docs" / "protocols" / f"{name}.md").read_text()
    named = set(re.findall(r"`([a-z]+(?:_[a-z]+)+)(?:=[^`]*)?`", text))
    assert named
    assert named <= {shown_name(field) for field in options_class(name).__dataclass_fields__}


def test_the_options_that_the_gateway_sets_itself_are_named_on_its_page() -> None:
    text = (ROOT / "docs" / "gateway.md").read_text()
    assert [name for settings in DEFAULTS.values() for name in settings if f"`{name}`" not in text] == []
