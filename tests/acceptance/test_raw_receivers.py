"""Receivers that read nothing, on real sockets; `tests/odd` has all other legal ones in virtual time."""

from __future__ import annotations

import re

import pytest

from .raw import answering, run


@pytest.mark.parametrize("url", ["rup://{}?silence=2s", "pydevts://{}?repeat_after=0.2s"])
def test_a_peer_that_reads_nothing_ends_every_line_with_exit_3(url: str) -> None:
    """The port is bound, so no ICMP answers. What never left is not unknown: it cannot have arrived."""
    with answering() as peer:
        lines = b"".join(b"%08d\n" % number for number in range(1_000))
        sent = run("send", url.format(f"127.0.0.1:{peer.port}"), "--lines", given=lines)
    assert sent.returncode == 3
    counts = re.match(r"0 acknowledged, (\d+) not sent, (\d+) unknown", sent.stdout)
    assert counts is not None, sent.stdout
    assert int(counts[1]) + int(counts[2]) == 1_000
