"""`fairway ping`: round trips and loss, without a message reaching the other application."""

from __future__ import annotations

import json
import signal
import time

import pytest

from fairway.cli import run as run_here
from tests.acceptance.raw import answering, fairway, listening, run
from tests.acceptance.test_raw_udpc import ACK, FIN, HBT, answer, be_called, fields, has_flag, packet


@pytest.mark.parametrize("url", ["udpc", "mrp", "mrp?layout=piggyback", "pydevts"])
def test_every_question_is_answered_and_no_message_arrives(url: str) -> None:
    scheme, _, query = url.partition("?")
    with listening(scheme) as (command, peer):
        assert peer.to is not None
        began_us = time.monotonic_ns() // 1_000
        done = run("ping", f"{scheme}://127.0.0.1:{peer.to[1]}?{query}", "--count", "3", "--interval", "0.01", "--json")
        taken_us = time.monotonic_ns() // 1_000 - began_us
        assert (done.returncode, done.stderr) == (0, "")
        *answers, summary = map(json.loads, done.stdout.splitlines())
        assert [answer["number"] for answer in answers] == [1, 2, 3]
        assert all(0 < answer["rtt_us"] < taken_us for answer in answers)
        assert (summary["sent"], summary["answered"], summary["loss"]) == (3, 3, 0)
        times = [answer["rtt_us"] for answer in answers]
        assert (summary["rtt_us_min"], summary["rtt_us_max"]) == (min(times), max(times))
        command.no_more_lines()


def test_people_read_times_and_loss() -> None:
    with listening("udpc") as (_, peer):
        assert peer.to is not None
        done = run("ping", f"udpc://127.0.0.1:{peer.to[1]}", "--count", "2", "--interval", "0.01")
        first, _, last = done.stdout.splitlines()
        assert first.startswith("1: answer from udpc://")
        assert first.endswith(" ms")
        assert last.startswith("2 asked, 2 answered, 0 % lost; round trip in ms: min ")


def test_a_lost_question_is_counted() -> None:
    with answering() as peer:
        url = f"udpc://127.0.0.1:{peer.port}?ping_timeout=300ms"
        with fairway("ping", url, "--count", "2", "--interval", "0.01", "--json") as command:
            be_called(peer)
            peer.expect(has_flag(HBT))
            index, session, _, _, _ = fields(peer.expect(has_flag(HBT)))
            peer.send(packet(2, session, index, HBT | ACK))
            rows = {row["number"]: row["rtt_us"] for row in (command.message(), command.message())}
            assert rows[1] is None
            assert rows[2] > 0
            assert command.message()["loss"] == 0.5
            assert command.exit_code() == 0


def test_nothing_answered_is_unknown() -> None:
    with answering() as peer:
        done = run("ping", f"pydevts://127.0.0.1:{peer.port}?ping_timeout=50ms", "--count", "2", "--interval", "0.01")
        assert done.returncode == 3
        assert done.stdout.splitlines()[-1] == "2 asked, none answered, 100 % lost"


def test_a_peer_that_closes_ends_it_with_what_was_achieved() -> None:
    with (
        answering() as peer,
        fairway("ping", f"udpc://127.0.0.1:{peer.port}", "--count", "0", "--interval", "0.01") as command,
    ):
        session = answer(peer, HBT, HBT | ACK)
        assert command.line().startswith("1: answer")
        peer.send(packet(3, session, 0, FIN))
        assert command.exit_code() == 3
        assert "closed by the peer" in command.errors()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_it_with_what_was_achieved(number: signal.Signals, code: int) -> None:
    with answering() as peer, fairway("ping", f"udpc://127.0.0.1:{peer.port}", "--count", "0") as command:
        answer(peer, HBT, HBT | ACK)
        assert command.line().startswith("1: answer")
        command.process.send_signal(number)
        assert command.exit_code() == code
        assert command.line().startswith("1 asked, 1 answered, 0 % lost")
        assert command.errors() == ""


def test_rup_says_that_it_has_no_way(capfd: pytest.CaptureFixture[str]) -> None:
    assert run_here(["ping", "rup://127.0.0.1:9"]) == 4
    printed = capfd.readouterr()
    assert printed.err.startswith("fairway: rup has no packet")
    assert (printed.err.count("\n"), printed.out) == (1, "")


def test_nobody_there_is_unknown() -> None:
    with answering() as peer:
        done = run("ping", f"mrp://127.0.0.1:{peer.port}?connect_timeout=100ms")
        assert (done.returncode, done.stdout) == (3, "")
        assert done.stderr.count("\n") == 1
