"""Receivers that read nothing, on real sockets; `tests/odd` has all other legal ones in virtual time."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from .raw import PATIENCE_S, answering, url_of


def send_lines(url: str, lines: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run `fairway send --lines` with these lines to its end."""
    path = folder / "lines"
    path.write_text("".join(f"{line}\n" for line in lines))
    command = [sys.executable, "-m", "fairway", "send", url_of(url), "--lines"]
    with path.open() as source:
        return subprocess.run(command, stdin=source, capture_output=True, text=True, check=False, timeout=PATIENCE_S)


def numbered(count: int, size: int = 10) -> list[str]:
    return [f"{number:08}".ljust(size, ".") for number in range(count)]


@pytest.mark.parametrize("url", ["rup://{}?silence=2s", "pydevts://{}?repeat_after=0.2s"])
def test_a_peer_that_reads_nothing_ends_every_line_with_exit_3(tmp_path: Path, url: str) -> None:
    """The port is bound, so no ICMP answers. What never left is not unknown: it cannot have arrived."""
    with answering() as peer:
        sent = send_lines(url.format(f"127.0.0.1:{peer.port}"), numbered(1_000), tmp_path)
    assert sent.returncode == 3
    counts = re.match(r"0 acknowledged, (\d+) not sent, (\d+) unknown", sent.stdout)
    assert counts is not None, sent.stdout
    assert int(counts[1]) + int(counts[2]) == 1_000
