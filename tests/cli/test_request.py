"""`fairway request`: the answer, and nothing but the answer."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import pytest

from fairway.cli import run as run_here
from tests.acceptance.raw import PATIENCE_S, answering, fairway, listening
from tests.acceptance.test_raw_udpc import ACK, FIN, REQ, be_called, fields, has_flag, packet
from tests.cli.terminals import on_terminal


def request(url: str, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "fairway", "request", url, *arguments]
    return subprocess.run(command, capture_output=True, check=False, timeout=PATIENCE_S)


def test_an_echo_comes_back_as_it_went() -> None:
    with listening("udpc", "--echo") as (command, peer):
        assert peer.to is not None
        url = f"udpc://127.0.0.1:{peer.to[1]}"
        done = request(url, "what? ✓")
        assert (done.returncode, done.stdout.decode(), done.stderr) == (0, "what? ✓\n", b"")
        assert command.message()["kind"] == "request"
        row = json.loads(request(url, "again", "--json").stdout)
        assert (row["protocol"], row["peer"], row["body"], row["encoding"]) == (
            "udpc",
            f"127.0.0.1:{peer.to[1]}",
            "again",
            "utf8",
        )


def test_an_answer_that_is_not_text_is_written_as_it_came() -> None:
    with answering() as peer, fairway("request", f"udpc://127.0.0.1:{peer.port}", "q", "--json") as command:
        be_called(peer)
        index, session, _, _, _ = fields(peer.expect(has_flag(REQ)))
        peer.send(packet(2, session, index, ACK, b"\xff\x00"))
        row = command.message()
        assert (row["size"], row["body"], row["encoding"]) == (2, "/wA=", "base64")


def test_a_terminal_shows_control_characters_and_does_not_obey_them() -> None:
    with answering() as peer, on_terminal("request", f"udpc://127.0.0.1:{peer.port}", "q") as screen:
        be_called(peer)
        index, session, _, _, _ = fields(peer.expect(has_flag(REQ)))
        peer.send(packet(2, session, index, ACK, b"two\nlines \x1b[2J"))
        assert screen.rest().splitlines() == ["two", "lines \\x1b[2J"]


def test_no_answer_in_time_is_unknown() -> None:
    with listening("udpc") as (_, peer):
        assert peer.to is not None
        done = request(f"udpc://127.0.0.1:{peer.to[1]}?request_timeout=200ms", "q")
        assert done.returncode == 3
        assert done.stdout == b""
        assert done.stderr.startswith(b"fairway: ")
        assert done.stderr.count(b"\n") == 1


def test_a_peer_that_closes_does_not_answer() -> None:
    with answering() as peer, fairway("request", f"udpc://127.0.0.1:{peer.port}", "q") as command:
        be_called(peer)
        session = fields(peer.expect(has_flag(REQ)))[1]
        peer.send(packet(2, session, 0, FIN))
        assert command.exit_code() in (3, 4)
        assert command.errors().startswith("fairway: ")


def test_ctrl_c_ends_it_at_once() -> None:
    with answering() as peer, fairway("request", f"udpc://127.0.0.1:{peer.port}", "q") as command:
        be_called(peer)
        peer.expect(has_flag(REQ))
        command.process.send_signal(signal.SIGINT)
        assert command.exit_code() == 130
        assert command.errors() == ""


@pytest.mark.parametrize("protocol", ["mrp", "rup", "pydevts"])
def test_other_protocols_have_no_requests(protocol: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run_here(["request", f"{protocol}://127.0.0.1:9", "q"]) == 4
    assert capfd.readouterr().err == f"fairway: {protocol} has no requests; udpc has\n"
