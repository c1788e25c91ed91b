"""Examples in Markdown, run as a reader would run them.

A shell block is a conversation: a line that ends with `&` is one terminal, and the next lines wait until it says that
it listens (a gateway also logs); then they run one after another and must succeed. At the end those that count must
have left by themselves, and the others are told to end. Addresses are replaced by free ones. What follows `# -> ` in a
Python block is a line that it prints.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

from tests.acceptance.raw import PATIENCE_S, Command
from tests.conftest import ROOT
from tests.loopback import closed_port

ADDRESS = re.compile(r"\b(?:127\.0\.0\.1|0\.0\.0\.0):(\d{4,5})\b")


def blocks(page: Path, language: str) -> list[str]:
    """Return the blocks of a language on a page."""
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), flags=re.DOTALL | re.MULTILINE)


def commands(block: str) -> list[str]:
    """Return the lines of a shell block without comments."""
    lines = (re.sub(r"(^|\s)#\s.*", "", line).strip() for line in block.splitlines())
    return [line for line in lines if line]


def environment() -> dict[str, str]:
    """Find `fairway` and `python` where these tests run."""
    folder = str(Path(sys.executable).parent)
    return os.environ | {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(ROOT / "src")}


def with_free_ports(block: str) -> str:
    """Replace each port, and the host before it, by one that nobody has."""
    free = {port: closed_port() for port in ADDRESS.findall(block)}
    return ADDRESS.sub(lambda found: free[found[1]], block)


class Terminal(Command):
    """A command that goes on while others run."""

    def __init__(self, command: str, folder: Path) -> None:
        super().__init__("bash", "-c", f"exec {command}", env=environment(), cwd=folder)
        self.command = command
        for _ in range(command.count("://")):
            self.listening_at()

    def end(self) -> str:
        """End the command, unless it ends by itself, and return what it printed."""
        if "--count" not in self.command:
            self.process.send_signal(signal.SIGTERM)
        assert self.exit_code() == 0, self.command
        said = self.errors()
        assert self.command.startswith("fairway gateway") or said == "", said
        return self.printed()


def run_shell(block: str, folder: Path) -> None:
    """Run a shell block; every command of it must succeed, print something, and say nothing on standard error."""
    terminals: list[Terminal] = []
    try:
        for command in commands(with_free_ports(block)):
            if command.endswith("&"):
                terminals.append(Terminal(command.removesuffix("&").strip(), folder))
                continue
            done = subprocess.run(
                ["bash", "-c", command],
                env=environment(), cwd=folder, capture_output=True, text=True, check=False, timeout=600,
            )  # fmt: skip
            assert done.returncode == 0, f"{command}: {done.stderr}"
            assert done.stdout or ">" in command, command
            assert done.stderr == "", command
        for terminal in terminals:
            assert terminal.end() or "--trace" in terminal.command or "gateway" in terminal.command, terminal.command
    finally:
        for terminal in terminals:
            terminal.stop()


VANISHING = """
import asyncio, os, sys, fairway
async def main():
    connection = await fairway.connect(sys.argv[1], timeout=120)
    await connection.send(b"anybody?")
    os._exit(0)
asyncio.run(main())
"""
"""A client whose process ends in the middle of a conversation."""

ASKING = """
import asyncio, sys, fairway
async def main():
    async with fairway.connect(sys.argv[1], timeout=120) as connection:
        await connection.send(b"hello")
        print((await connection.receive(timeout=120)).body.decode())
asyncio.run(main())
"""


def run_server(block: str, folder: Path) -> None:
    """Run a block that serves for ever: one client vanishes, another is served before and after that is noticed."""
    command = [sys.executable, "-W", "error", "-c", with_free_ports(block)]
    with subprocess.Popen(
        command, env=environment(), cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as server:
        late = threading.Timer(PATIENCE_S, server.kill)
        late.start()
        try:
            assert server.stdout is not None
            word, url = server.stdout.readline().split()
            assert word == "serving"
            _client(VANISHING, url, folder)
            assert _client(ASKING, url, folder) == "HELLO\n"
            left = sorted(server.stdout.readline() for _ in range(2))
            assert left == ["left: closed by the peer\n", "left: the peer is silent\n"]
            assert _client(ASKING, url, folder) == "HELLO\n"
        finally:
            late.cancel()
            server.kill()


def _client(script: str, url: str, folder: Path) -> str:
    command = [sys.executable, "-W", "error", "-c", script, url]
    done = subprocess.run(
        command, env=environment(), cwd=folder, capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def run_python(block: str, folder: Path) -> None:
    """Run a Python block, with every warning an error, and compare what it prints with what it says."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", block],
        env=environment(), cwd=folder, capture_output=True, text=True, check=False, timeout=PATIENCE_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert done.stdout.splitlines() == re.findall(r"# -> (.*)$", block, flags=re.MULTILINE)
