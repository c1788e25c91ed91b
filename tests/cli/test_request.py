"""`fairway request`: the answer, and nothing but the answer."""

from __future__ import annotations

import json
import signal

import pytest

from fairway.cli import run as run_here
from tests.acceptance.raw import answering, fairway, listening, run
from tests.acceptance.test_raw_udpc import ACK, FIN, REQ, answer, be_called, fields, has_flag, packet
from tests.cli.terminals import on_terminal


def test_an_echo_comes_back_as_it_went() -> None:
    with listening("udpc", "--echo") as (command, peer):
        assert peer.to is not None
        url = f"udpc://127.0.0.1:{peer.to[1]}"
        done = run("request", url, "what? ✓")
        assert (done.returncode, done.stdout, done.stderr) == (0, "what? ✓\n", "")
        assert command.message()["kind"] == "request"
        row = json.loads(run("request", url, "again", "--json").stdout)
        assert (row["protocol"], row["peer"], row["body"], row["encoding"]) == (
            "udpc",
            f"127.0.0.1:{peer.to[1]}",
            "again",
            "utf8",
        )


def test_a_terminal_shows_control_characters_and_does_not_obey_them() -> None:
    with answering() as peer, on_terminal("request", f"udpc://127.0.0.1:{peer.port}", "q") as screen:
        answer(peer, REQ, ACK, b"two\nlines \x1b[2J")
        shown = screen.rest().rpartition("\x1b[K")[2]  # what stands before told on a slow machine that it waits
        assert shown.splitlines() == ["two", "lines \\x1b[2J"]


def test_no_answer_in_time_is_unknown() -> None:
    with listening("udpc") as (_, peer):
        assert peer.to is not None
        done = run("request", f"udpc://127.0.0.1:{peer.to[1]}?request_timeout=200ms", "q")
        assert done.returncode == 3
        assert done.stdout == ""
        assert done.stderr.startswith("fairway: ")
        assert done.stderr.count("\n") == 1


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
