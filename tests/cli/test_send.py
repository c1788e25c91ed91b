"""`fairway send`: one message or many, and an honest account of each."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from select import select

import pytest

from fairway.cli import run as run_here
from fairway.cli.bodies import Way
from fairway.cli.send import Outcome
from fairway.core.errors import FairwayError
from fairway.core.events import NOT_SENT, CloseReason
from fairway.net import DeliveryRefused, DeliveryUnknown
from tests.acceptance.raw import Command, RawPeer, answering, fairway, run
from tests.acceptance.test_raw_pydevts import ACK as PYDEVTS_ACK
from tests.acceptance.test_raw_pydevts import header
from tests.acceptance.test_raw_udpc import ACK, FIN, IMP, answer, be_called, fields, has_flag, packet
from tests.cli.terminals import on_terminal
from tests.loaded import loaded_by
from tests.loopback import closed_port

MODULES_MAX = 280
"""A fifth more than a message loads today."""


@contextmanager
def listener(scheme: str, *arguments: str) -> Iterator[tuple[Command, str]]:
    with fairway("listen", f"{scheme}://127.0.0.1:0", "--json", *arguments) as command:
        host, port = command.listening_at()
        yield command, f"{scheme}://{host}:{port}"


def write(command: Command, *lines: str) -> None:
    assert command.process.stdin is not None
    command.process.stdin.write("".join(f"{line}\n" for line in lines))
    command.process.stdin.flush()


def account(command: Command) -> tuple[int, int, int, int]:
    row = command.message()
    return row["messages"], row["acknowledged"], row["refused"], row["unknown"]


def test_one_message_is_accounted_for_in_words_and_in_json() -> None:
    with listener("udpc") as (_, url):
        said = run("send", url, "hello")
        assert (said.returncode, said.stderr) == (0, "")
        assert said.stdout.startswith("1 acknowledged in ")
        row = json.loads(run("send", url, "hello", "--json").stdout)
        assert row["url"] == url
        assert (row["messages"], row["acknowledged"], row["bytes"]) == (1, 1, 5)
        assert row["seconds"] > 0


def test_any_bytes_of_the_command_line_arrive_as_they_are() -> None:
    with listener("rup", "--count", "1") as (command, url):
        text = os.fsdecode(b"\xff\xfe ok")
        assert run("send", url, text).returncode == 0
        assert command.message()["encoding"] == "base64"


@pytest.mark.parametrize("protocol", ["udpc", "mrp", "rup", "pydevts"])
def test_every_line_is_a_message_in_order_where_the_protocol_keeps_it(protocol: str) -> None:
    lines = [f"line {number}" for number in range(3_000)]
    with listener(protocol, "--count", "3000") as (command, url):
        sent = run("send", url, "--lines", "--json", given="\n".join(lines).encode())
        assert sent.returncode == 0
        assert json.loads(sent.stdout)["acknowledged"] == 3_000
        bodies = [command.message()["body"] for _ in lines]
        assert (bodies if protocol == "mrp" else sorted(bodies)) == (lines if protocol == "mrp" else sorted(lines))


def test_a_line_is_sent_when_it_is_there_and_not_when_the_input_ends() -> None:
    with listener("mrp") as (heard, url), fairway("send", url, "--lines", "--json") as command:
        for text in ("first", "", "third"):
            write(command, text)
            assert heard.message()["body"] == text
        assert command.process.stdin is not None
        command.process.stdin.close()
        assert account(command) == (3, 3, 0, 0)
        assert command.exit_code() == 0


def test_no_lines_are_no_messages_and_done() -> None:
    with listener("udpc") as (_, url):
        sent = run("send", url, "--lines", "--json")
        assert (sent.returncode, json.loads(sent.stdout)["messages"]) == (0, 0)


def test_a_line_too_long_is_refused_and_the_others_are_sent() -> None:
    with listener("pydevts", "--count", "2") as (command, url):
        sent = run("send", url, "--lines", "--json", given=b"one\n" + b"x" * 70_000 + b"\ntwo\n")
        assert sent.returncode == 4
        assert "up to 65,499" in sent.stderr
        assert sent.stderr.count("\n") == 1
        row = json.loads(sent.stdout)
        assert (row["messages"], row["acknowledged"], row["refused"], row["unknown"]) == (3, 2, 1, 0)
        assert sorted(command.message()["body"] for _ in range(2)) == ["one", "two"]


def test_an_answer_that_does_not_come_is_unknown() -> None:
    with answering() as peer:
        sent = run("send", f"pydevts://127.0.0.1:{peer.port}?repeat_after=20ms&packet_repeats_max=2", "x")
        assert sent.returncode == 3
        assert sent.stdout.startswith("0 acknowledged, 1 unknown in ")
        assert sent.stderr.startswith("fairway: ")
        assert sent.stderr.count("\n") == 1
        assert "or the port is for DTLS" in sent.stderr


def test_a_peer_that_has_answered_is_not_taken_for_one_that_speaks_dtls() -> None:
    with answering() as peer:
        quick = f"pydevts://127.0.0.1:{peer.port}?repeat_after=20ms&packet_repeats_max=2"
        with fairway("send", quick, "--lines") as command:
            write(command, "good", "lost")
            assert command.process.stdin is not None
            command.process.stdin.close()
            good = peer.expect(lambda datagram: datagram[8:] == b"good")
            peer.send(header(PYDEVTS_ACK, 0, int.from_bytes(good[2:4], "big"), int.from_bytes(good[4:8], "big")))
            assert command.exit_code() == 3
            assert command.errors().endswith("; what was sent may have arrived")


def test_a_message_whose_connect_got_no_answer_was_not_sent_and_is_in_the_account() -> None:
    with answering() as peer:
        sent = run("send", f"mrp://127.0.0.1:{peer.port}?connect_timeout=100ms", "x", "--json")
        assert sent.returncode == 3
        row = json.loads(sent.stdout)
        assert (row["messages"], row["acknowledged"], row["not_sent"], row["unknown"]) == (1, 0, 1, 0)


@pytest.mark.parametrize("protocol", ["udpc", "mrp", "rup", "pydevts"])
def test_lines_to_a_port_that_nobody_has_end_with_one_object_that_says_so(protocol: str) -> None:
    sent = run("send", f"{protocol}://{closed_port()}", "--lines", "--json", given=b"one\ntwo\n")
    assert sent.returncode == 3
    assert sent.stderr.count("\n") == 1
    row = json.loads(sent.stdout)
    assert row["acknowledged"] == 0
    assert row["messages"] == row["refused"] + row["unknown"]
    assert row["not_sent"] == row["refused"]
    assert "Connection refused" in row["reason"]


def test_what_was_never_transmitted_alone_is_no_refusal() -> None:
    sent = account_of([DeliveryRefused(NOT_SENT)] * 1_200)
    assert (sent.code, sent.refused, sent.not_sent) == (3, 1_200, 1_200)
    assert sent.reason == "1,200 not sent: the peer did not answer"
    assert "0 acknowledged, 1,200 not sent in " in sent.line(as_json=False)
    sent.ended = CloseReason.REMOTE
    assert sent.reason == "1,200 not sent: closed by the peer"


def test_a_refusal_goes_before_not_sent_and_unknown() -> None:
    errors: list[FairwayError] = [
        DeliveryRefused(NOT_SENT),
        DeliveryUnknown("silence"),
        DeliveryRefused("a rule said no"),
    ]
    sent = account_of(errors)
    assert (sent.code, sent.refused, sent.not_sent, sent.unknown) == (4, 2, 1, 1)
    assert "a rule said no" in sent.reason
    assert "0 acknowledged, 1 refused, 1 not sent, 1 unknown in " in sent.line(as_json=False)
    doubtful = account_of(errors[:2])
    assert doubtful.code == 3
    assert doubtful.reason.endswith("; 1 not sent")


def account_of(errors: Sequence[FairwayError]) -> Outcome:
    """Return the account of messages that ended so."""
    outcome = Outcome(Way("rup://127.0.0.1:9"), plain=False)
    for error in errors:
        outcome.never_sent(1, error)
    return outcome


def test_a_peer_that_closes_ends_it_with_an_account_of_all() -> None:
    with answering() as peer, fairway("send", f"udpc://127.0.0.1:{peer.port}", "--lines", "--json") as command:
        write(command, "one")
        session = answer(peer, IMP, IMP | ACK)
        write(command, "two")
        peer.expect(lambda datagram: datagram[12] == IMP and datagram[13:] == b"two")
        peer.send(packet(3, session, 0, FIN))
        write(command, "three")
        messages, acknowledged, refused, unknown = account(command)
        assert acknowledged == 1
        assert refused + unknown == messages - 1
        assert command.exit_code() == 3


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_it_with_what_was_achieved(number: signal.Signals, code: int) -> None:
    """At once, however long the session would like to wait for what is outstanding."""
    with (
        answering() as peer,
        fairway("send", f"udpc://127.0.0.1:{peer.port}?flush=10m", "--lines", "--json") as command,
    ):
        write(command, "one")
        answer(peer, IMP, IMP | ACK)
        write(command, "two")
        peer.expect(lambda datagram: datagram[12] == IMP and datagram[13:] == b"two")
        command.process.send_signal(number)
        assert command.exit_code() == code
        assert account(command) == (2, 1, 0, 1)
        assert command.errors() == ""


def test_ctrl_c_while_nobody_answers_ends_it_at_once() -> None:
    with answering() as peer, fairway("send", f"udpc://127.0.0.1:{peer.port}", "hello") as command:
        peer.receive()
        command.process.send_signal(signal.SIGINT)
        assert command.exit_code() == 130


def test_a_sender_waits_for_a_receiver_that_is_slow_and_holds_little() -> None:
    """Memory, not only the account: what was read ahead of its outcome is bounded."""
    with answering() as peer, fairway("send", f"udpc://127.0.0.1:{peer.port}?window=4", "--lines", "--json") as command:
        be_called(peer)
        stdin = command.process.stdin
        assert stdin is not None
        written = 0
        os.set_blocking(stdin.fileno(), False)
        chunk = (b"x" * 999 + b"\n") * 256
        while written < 200_000_000 and select([], [stdin], [], 1)[1]:
            written += os.write(stdin.fileno(), chunk)
        assert 1_000_000 < written < 40_000_000
        command.process.send_signal(signal.SIGINT)
        assert command.exit_code() == 130


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["udpc://127.0.0.1:9"], 2, "one of TEXT, --file and --lines"),
        (["udpc://127.0.0.1:9", "x", "--lines"], 2, "one of TEXT, --file and --lines"),
        (["udpc://127.0.0.1:0", "x"], 2, "names no host and port"),
        (["mrp://127.0.0.1", "x", "--plain"], 4, "--plain is for udpc"),
        (["rup://127.0.0.1:9", "--file", "no/such"], 1, "no/such: No such file"),
        (["rup://127.0.0.1:9", "--file", "."], 1, "Is a directory"),
        (["rup://127.0.0.1:9?message_bytes_max=3", "four"], 4, "message_bytes_max allows more"),
        (["mrp://127.0.0.1:9?layout=piggyback", ""], 4, "no empty message"),
        (["udpc://127.0.0.1:9?window=0", "x"], 2, "window is 0"),
        (["udpc://nowhere.invalid:9", "x"], 1, "check the name"),
    ],
)
def test_what_cannot_be_sent_says_why_in_one_line(
    arguments: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_here(["send", *arguments]) == code
    printed = capsys.readouterr()
    assert said in printed.err
    assert printed.err.startswith("fairway: ")
    assert (printed.err.count("\n"), printed.out) == (1, "")


def test_a_file_that_may_not_be_read_is_named_with_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process: whoever may do everything could read the file."""

    def refuse(path: Path, mode: str) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "open", refuse)
    assert run_here(["send", "rup://127.0.0.1:9", "--file", str(tmp_path / "x")]) == 1


def test_what_takes_longer_than_a_second_shows_how_far_it_is_on_a_terminal(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_text("hello\n" * 100)
    with (
        answering() as peer,
        path.open("rb") as lines,
        on_terminal("send", f"udpc://127.0.0.1:{peer.port}", "--lines", stdin=lines) as screen,
    ):
        be_called(peer)
        datagram = peer.expect(has_flag(IMP))
        settle(peer, datagram, 50)
        screen.until("bytes/s")
        settle(peer, peer.expect(has_flag(IMP)), 50)
        assert "100 acknowledged in " in screen.rest()
        assert screen.process.returncode == 0


def settle(peer: RawPeer, datagram: bytes, count: int) -> None:
    """Acknowledge every important packet, from this one on, until so many were."""
    acknowledged: set[int] = set()
    own = 1
    while True:
        index, session, _, flag, _ = fields(datagram)
        if flag == IMP:
            own += 1
            acknowledged.add(index)
            peer.send(packet(own, session, index, IMP | ACK))
        if len(acknowledged) == count:
            return
        datagram = peer.receive()


def test_waiting_for_a_peer_is_shown_on_a_terminal() -> None:
    with answering() as peer, on_terminal("send", f"udpc://127.0.0.1:{peer.port}", "hello") as screen:
        assert "waiting for udpc://" in screen.until("  1 s")


@pytest.mark.parametrize("protocol", ["udpc", "mrp", "rup", "pydevts"])
def test_one_message_loads_few_modules_and_nothing_heavy(protocol: str) -> None:
    with listener(protocol) as (_, url):
        loaded = loaded_by("import fairway.cli; assert fairway.cli.run(['send', sys.argv[1], 'hello']) == 0", url)
    assert {"numpy", "rich", "pyarrow", "pandas", "pyspark"}.isdisjoint(loaded)
    assert f"fairway.protocols.{protocol}" in loaded
    assert len(loaded) < MODULES_MAX
