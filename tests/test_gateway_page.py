"""What the pages say about settings: every documented gateway starts, and every option that is named exists."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from fairway.cli import run
from fairway.gateway.settings import build, read_file
from tests.conftest import ROOT
from tests.examples import Terminal, blocks, commands, with_free_ports

PAGES = sorted((ROOT / "docs").rglob("*.md"))


def gateways() -> list[str]:
    """Return every `fairway gateway` command of the pages."""
    found = [line for page in PAGES for block in blocks(page, "sh") for line in commands(block.replace("\\\n", " "))]
    return [line for line in found if line.startswith("fairway gateway")]


def files() -> list[str]:
    """Return every TOML block that configures a gateway."""
    return [block for page in PAGES for block in blocks(page, "toml") if re.search(r"^urls\b", block, re.MULTILINE)]


def starts(command: str, folder: Path) -> None:
    """Start a gateway as it is documented, on free ports and a lake of its own, and end it."""
    terminal = Terminal(with_free_ports(command), folder)
    try:
        terminal.end()
    finally:
        terminal.close()


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
