"""`fairway listen`: what it prints, when it ends, and what it does when it cannot begin."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

import pytest

from fairway.cli import run as run_here
from fairway.cli.received import Files
from fairway.net import Message
from tests.acceptance.raw import PATIENCE_S, Command, RawPeer, fairway, listening, run
from tests.acceptance.test_raw_udpc import ACK, HBT, IMP, fields, has_flag, packet, shake_hands
from tests.cli.terminals import on_terminal
from tests.conftest import Tshark

PROTOCOLS = ("udpc", "mrp", "rup", "pydevts")


def url_of(command: Command, scheme: str) -> str:
    host, port = command.listening_at()
    return f"{scheme}://{host}:{port}"


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_each_message_becomes_a_file_and_none_replaces_another(protocol: str, tmp_path: Path) -> None:
    folder = tmp_path / "not" / "there"
    with fairway("listen", f"{protocol}://127.0.0.1:0", "--json", "--count", "3", "--out", str(folder)) as command:
        url = url_of(command, protocol)
        for text in ("one", "two", "three"):
            assert run("send", url, text).returncode == 0
        rows = [command.message() for _ in range(3)]
        assert command.exit_code() == 0
    files = [Path(row["file"]) for row in rows]
    assert [file.read_text() for file in files] == ["one", "two", "three"]
    assert sorted(folder.iterdir()) == sorted(files)
    assert "body" not in rows[0]


def test_two_messages_of_one_name_get_two_files(tmp_path: Path) -> None:
    peer: Any = SimpleNamespace(protocol="udpc", peer="[::1]:9")
    files = Files(tmp_path)
    written = [files.write(Message(peer, 7, body)) for body in (b"old", b"new")]
    assert [path.name for path in written] == ["udpc-__1_9-7", "udpc-__1_9-7-2"]
    assert [path.read_bytes() for path in written] == [b"old", b"new"]


def test_a_folder_that_takes_no_file_leaves_the_message_unacknowledged(tmp_path: Path) -> None:
    with fairway("listen", "udpc://127.0.0.1:0", "--out", str(tmp_path / "out")) as command:
        url = url_of(command, "udpc")
        (tmp_path / "out").rmdir()
        (tmp_path / "out").write_text("in the way")
        assert run("send", f"{url}?important_timeout=1s", "lost").returncode == 3
        assert command.exit_code() == 1


def test_people_get_a_line_that_a_terminal_shows_and_does_not_obey() -> None:
    with on_terminal("listen", "udpc://127.0.0.1:0", "--count", "1") as screen:
        line = screen.until("\r\n").splitlines()[0]
        assert run("send", line.removeprefix("listening "), "wei\u00df \x1b[31m\n").returncode == 0
        assert "wei\u00df \\x1b[31m\\n" in screen.rest()
        assert screen.process.returncode == 0


def test_without_a_terminal_lines_have_no_colour() -> None:
    with fairway("listen", "rup://127.0.0.1:0", "--count", "1") as command:
        url = url_of(command, "rup")
        run("send", url, "hello")
        head, _, body = command.line().partition(": ")
        assert head.startswith("rup 127.0.0.1:")
        assert body == "hello"


@pytest.mark.parametrize(
    ("number", "arguments", "code"),
    [
        (signal.SIGINT, (), 130),
        (signal.SIGTERM, (), 0),
        (signal.SIGINT, ("--count", "2"), 130),
        (signal.SIGTERM, ("--count", "2"), 143),
    ],
)
def test_a_signal_ends_it_cleanly(number: signal.Signals, arguments: tuple[str, ...], code: int) -> None:
    with listening("udpc", *arguments) as (command, peer):
        session = shake_hands(peer)
        peer.send(packet(3, session, 0, IMP, b"hi"))
        assert command.message()["body"] == "hi"
        command.process.send_signal(number)
        assert command.exit_code() == code
        assert command.errors() == ""
        assert peer.expect(lambda datagram: datagram[12] == 0x20)[4:8] == session.to_bytes(4, "big")


@contextmanager
def unread(messages: int) -> Iterator[tuple[subprocess.Popen[str], IO[str], RawPeer, int]]:
    """A listener that has acknowledged more messages than fit the pipe which nobody reads; its peer and session."""
    read, write = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-m", "fairway", "listen", "udpc://127.0.0.1:0", "--json"],
        stdout=write, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    os.close(write)
    assert process.stderr is not None
    peer = RawPeer(("127.0.0.1", int(process.stderr.readline().rpartition(":")[2])))
    try:
        with open(read) as printed:
            session = shake_hands(peer)
            for index in range(3, 3 + messages):
                peer.send(packet(index, session, 0, IMP, bytes(1_000)))
                assert fields(peer.expect(has_flag(IMP | ACK)))[2] == index
            yield process, printed, peer, session
    finally:
        process.kill()
        process.wait()
        process.stderr.close()
        peer.socket.close()


def test_a_reader_that_does_not_read_does_not_hold_up_heartbeats_and_may_leave() -> None:
    with unread(100) as (process, printed, peer, session):
        peer.send(packet(200, session, 0, HBT))
        assert fields(peer.expect(has_flag(HBT | ACK)))[2] == 200
        printed.close()
        assert process.wait(PATIENCE_S) == 1
        assert process.stderr is not None
        assert process.stderr.read() == ""


def test_what_is_acknowledged_is_printed_even_when_it_is_told_to_end() -> None:
    with unread(100) as (process, printed, _, _):
        process.terminate()
        assert [json.loads(line)["id"] for line in printed] == list(range(3, 103))
        assert process.wait(PATIENCE_S) == 0


def test_it_ends_even_when_nobody_ever_reads() -> None:
    with unread(100) as (process, _, _, _):
        process.terminate()
        assert process.wait(PATIENCE_S) == 1
        assert process.stderr is not None
        assert "nobody reads" in process.stderr.read()


def test_a_trace_holds_every_datagram_of_every_url(tmp_path: Path, tshark: Tshark) -> None:
    path = tmp_path / "run.pcapng"
    urls = ("pydevts://127.0.0.1:0", "udpc://127.0.0.1:0")
    with fairway("listen", *urls, "--count", "2", "--trace", str(path)) as command:
        for scheme in ("pydevts", "udpc"):
            assert run("send", url_of(command, scheme), "hello").returncode == 0
        assert command.exit_code() == 0
        assert command.errors() == ""
    frames = tshark(path, ["udp.payload"])
    payloads = [frame["udp.payload"] for frame in frames]
    assert [payload for payload in payloads if payload.startswith("0000") and payload.endswith(b"hello".hex())]
    # SYN, SYN+ACK, ACK, IMP, IMP+ACK, FIN
    assert {"08", "09", "01", "10", "11", "20"} <= {payload[24:26] for payload in payloads if len(payload) >= 26}


@pytest.mark.parametrize(
    ("url", "code", "said"),
    [
        ("tcp://127.0.0.1:1", 2, "'tcp' is no protocol"),
        ("udpc://127.0.0.1", 2, "names no port"),
        ("udpc://127.0.0.1:0?nothing=1", 2, "no option 'nothing'; known are"),
        ("udpc://127.0.0.1:99999", 2, "0 to 65535"),
        ("rup://127.0.0.1:0?spool_above_bytes=9", 2, "listen prints whole messages"),
        ("mrp://127.0.0.1:0?first_sequence=9", 2, "leave first_sequence out"),
        ("udpc://192.0.2.1:0", 1, "this machine has no such address"),
        ("udpc://nowhere.invalid:0", 1, "check the name"),
    ],
)
def test_what_cannot_begin_says_why_in_one_line(
    url: str, code: int, said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run_here(["listen", url]) == code
    line = capfd.readouterr().err
    assert line.startswith("fairway: ")
    assert said in line
    assert line.count("\n") == 1


def test_a_port_that_is_taken_is_named_with_the_remedy() -> None:
    with listening("udpc") as (_, peer), fairway("listen", f"mrp://127.0.0.1:{peer.to[1]}") as command:  # type: ignore[index]
        assert command.exit_code() == 1
        line = command.errors()
        assert f"127.0.0.1:{peer.to[1]}" in line  # type: ignore[index]
        assert "or 0 for a free one" in line


def test_a_trace_that_cannot_be_written_is_named(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "none" / "run.pcapng"
    assert run_here(["listen", "udpc://127.0.0.1:0", "--trace", str(path)]) == 1
    assert capfd.readouterr().err == f"fairway: {path}: No such file or directory\n"
