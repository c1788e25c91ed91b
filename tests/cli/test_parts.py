"""What the verbs share: cutting lines, showing bodies, completing words."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from base64 import b64decode
from collections.abc import Callable
from pathlib import Path
from random import Random
from time import process_time_ns
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.cli.received import human_line, json_pieces, printable
from fairway.cli.streams import Splitter
from fairway.net import Message


def message(body: bytes) -> Message:
    peer: Any = SimpleNamespace(protocol="rup", peer="127.0.0.1:9", session=None, device=None)
    return Message(peer, "0" * 32, body)


def split(chunks: list[bytes], line_bytes_max: int) -> list[bytes]:
    splitter = Splitter(line_bytes_max)
    lines = [line for chunk in chunks for line in splitter.feed(chunk)]
    return lines + splitter.end()


@given(st.lists(st.lists(st.sampled_from([b"a", b"bc", b"\n", b"\n\n"])).map(b"".join)))
def test_lines_do_not_depend_on_where_the_stream_was_cut(chunks: list[bytes]) -> None:
    stream = b"".join(chunks)
    wanted = stream.split(b"\n")
    assert split(chunks, 1_000) == (wanted if wanted[-1] else wanted[:-1])


def test_of_a_line_too_long_one_byte_too_many_is_kept() -> None:
    assert split([b"12345", b"6789\nab", b"cdefgh", b"\nok\n", b"1234567\n"], 4) == [
        b"12345",
        b"abcde",
        b"ok",
        b"12345",
    ]


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        (b"plain", "plain"),
        ("grün ✓".encode(), "grün ✓"),
        (b"\xff\x1b[0m\x00\n\t", r"\xff\x1b[0m\x00\n\t"),
        ("\u202e".encode(), r"\u202e"),
        ("\x9b".encode(), r"\x9b"),
        ("grün\n".encode() + b"\xff\\\\\n\n" + "\ttäglich\\".encode(), r"grün\n\xff\\\n\n\ttäglich\\"[:-1]),
        (b"\\\n\\x41", r"\\n\x41"),
    ],
)
def test_a_body_is_shown_without_what_a_terminal_would_obey(body: bytes, shown: str) -> None:
    assert printable(body) == shown


@pytest.mark.parametrize("body", [b"", b"x" * 2_000_000, '\u00e9\n"'.encode() * 400_000, bytes(range(256)) * 8_000])
def test_the_pieces_of_a_large_message_are_one_line_of_json(body: bytes) -> None:
    line = b"".join(json_pieces(message(body)))
    assert line.count(b"\n") == 1
    row = json.loads(line)
    assert row["size"] == len(body)
    assert (b64decode(row["body"]) if row["encoding"] == "base64" else row["body"].encode()) == body


def test_a_message_of_wide_characters_is_cut_between_two_of_them() -> None:
    assert b"\\x" not in human_line(message(("x" + "\U0001f600" * 100_000).encode()), True)


@pytest.mark.parametrize("top", [128, 256])
def test_bytes_that_are_no_text_are_shown_ten_times_as_fast_as_one_by_one(top: int) -> None:
    """In processor time of this run, the best of a few: a busy machine adds and never subtracts."""
    random = Random(1)
    bodies = [bytes(random.randrange(top) for _ in range(1_000)) for _ in range(50)]

    def one_by_one(body: bytes) -> str:
        text = body.decode("utf-8", "backslashreplace")
        return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)

    def taken_ns(show: Callable[[bytes], str]) -> int:
        began_ns = process_time_ns()
        for body in bodies:
            show(body)
        return process_time_ns() - began_ns

    slow, fast = (min(taken_ns(show) for _ in range(5)) for show in (one_by_one, printable))
    assert 10 * fast < slow


def test_a_long_message_is_cut_for_people_and_says_so() -> None:
    for terminal in (True, False):
        line = human_line(message(b"x" * 1_000_000), terminal)
        assert line.endswith(b"x... (1,000,000 bytes)\n")
        assert len(line) < 70_000


def complete(words: str, number: int) -> list[str]:
    environment = os.environ | {"_FAIRWAY_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(number)}
    done = subprocess.run(
        [sys.executable, "-m", "fairway"], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.split()


def test_a_shell_completes_verbs_and_the_options_of_a_verb() -> None:
    assert complete("fairway se", 1) == ["send"]
    assert {"--file", "--lines", "--plain"} <= set(complete("fairway send --", 2))
    assert "--count" in complete("fairway ping udpc://127.0.0.1:9 --c", 3)


def test_bash_takes_the_script(tmp_path: Path) -> None:
    folder = Path(sys.executable).parent
    script = """
eval "$(fairway completion bash)"
COMP_WORDS=(fairway lis) COMP_CWORD=1
_fairway_completion fairway
echo "${COMPREPLY[@]}"
"""
    environment = os.environ | {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-c", script], env=environment, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout == "listen\n"
