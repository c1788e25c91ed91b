"""Ctrl-C and SIGTERM where a library holds the verb, and before there is one."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.acceptance.raw import PATIENCE_S

HELD = """
import ctypes, sys
import fairway.lake.landing.{module} as module
from fairway.cli import run

def hold(*_):
    print("held", flush=True)
    ctypes.CDLL(None).pause()

module.{function} = hold
sys.exit(run(["{function}", "--lake", sys.argv[1]]))
"""
OPENING = """
import ctypes, sys
from fairway.cli import run
from fairway.store.lakes import Lake

def hold(*_, **__):
    print("held", flush=True)
    lock, library = ctypes.create_string_buffer(64), ctypes.CDLL(None)
    while not library.pthread_mutex_lock(lock):  # the second time for ever, whatever signal comes
        pass

Lake.__init__ = hold
sys.exit(run(sys.argv[1:]))
"""
LOADING = """
import os, signal, sys

class Finder:
    def find_spec(self, name, *_):
        if name == "typer":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Finder())
from fairway.__main__ import main
main()
"""
FORKED = """
import os, signal, sys
from fairway.cli.ending import ending_by_signals

with ending_by_signals("stopping"):
    child = os.fork()
    if child == 0:
        os.kill(os.getpid(), signal.SIGINT)
        os._exit(0)
    os.waitpid(child, 0)
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize(
    ("module", "function", "said"),
    [
        ("tables", "compact", "fairway: stopped; the tables hold what they held\n"),
        ("reconcile", "reconcile", "fairway: stopped; nothing was counted to the end\n"),
    ],
)
def test_a_signal_ends_a_verb_that_a_library_holds(
    module: str, function: str, said: str, number: signal.Signals, code: int, tmp_path: Path
) -> None:
    (lake := tmp_path / "landing").mkdir()
    check_end([HELD.format(module=module, function=function), str(lake.parent)], number, (code, said))


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
@pytest.mark.parametrize("verb", [("gateway", "mrp://127.0.0.1:0", "--journal", "journal"), ("stream",)])
def test_a_signal_while_a_store_does_not_answer_is_one_line_at_once(
    verb: tuple[str, ...], number: signal.Signals, code: int
) -> None:
    check_end([OPENING, *verb, "--lake", "s3://bucket/lake"], number, (code, "fairway: stopped\n"))


def check_end(program: list[str], number: signal.Signals, ending: tuple[int, str]) -> None:
    """Send a signal to a program that says that it is held; see its exit code and what it says then."""
    command = [sys.executable, "-c", *program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            assert process.stdout.readline() == "held\n"
            process.send_signal(number)
            assert (process.wait(PATIENCE_S), process.stderr.read()) == ending
        finally:
            process.kill()


def test_ctrl_c_while_the_command_line_loads_is_one_line() -> None:
    command = [sys.executable, "-c", LOADING]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=PATIENCE_S)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "fairway: stopped\n")


def test_a_child_that_is_about_to_become_a_java_process_does_not_say_it_again() -> None:
    command = [sys.executable, "-c", FORKED]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=PATIENCE_S)
    assert (done.returncode, done.stderr) == (0, "")
