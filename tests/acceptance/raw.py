"""Peers made of nothing but a socket and bytes, and the command line on the other side.

Nothing here imports Fairway: what these peers believe about the wire comes from `docs/wire/` alone, so a mistake that
Fairway's encoder and decoder share is still found.
"""

from __future__ import annotations

import json
import queue
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

PATIENCE_S = 120.0
"""How long to wait for what must come; only a failure takes that long, however busy the machine is."""


identities: tuple[Path, Path] | None = None
"""The files of a device and of a gateway, while tests run over DTLS."""


def url_of(text: str) -> str:
    """Return a URL as it stands, or over DTLS with the identity that the command needs."""
    found = re.fullmatch(r"(\w+)(://[^?]*)\??(.*)", text)
    if identities is None or found is None:
        return text
    scheme, host, query = found.groups()
    identity = identities[1 if host.endswith(":0") else 0]
    return f"{scheme}+dtls{host}?{query}{'&' if query else ''}identity={identity}"


def peer_of(to: tuple[str, int] | None = None) -> RawPeer:
    """Return a raw peer for plain UDP, or for DTLS."""
    if identities is None:
        return RawPeer(to)
    from .secure import SecurePeer

    return SecurePeer(*identities, to)


def joined(parts: Iterable[bytes | str]) -> bytes:
    """Return bytes and hexadecimal digits as one datagram."""
    return b"".join(bytes.fromhex(part) if isinstance(part, str) else part for part in parts)


class RawPeer:
    """A UDP socket that speaks bytes."""

    def __init__(self, to: tuple[str, int] | None = None) -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.to = to

    @property
    def port(self) -> int:
        return int(self.socket.getsockname()[1])

    def send(self, *parts: bytes | str) -> bytes:
        """Send one datagram made of bytes and hexadecimal digits, and return it."""
        datagram = joined(parts)
        assert self.to is not None
        self.socket.sendto(datagram, self.to)
        return datagram

    def receive(self, within_s: float = PATIENCE_S) -> bytes:
        """Return the next datagram, and remembers its sender as the one to answer."""
        self.socket.settimeout(within_s)
        datagram, self.to = self.socket.recvfrom(65_535)
        return datagram

    def expect(self, wanted: Callable[[bytes], bool], within_s: float = PATIENCE_S) -> bytes:
        """Return the first datagram that is wanted; others are passed over."""
        end = time.monotonic() + within_s
        passed: list[str] = []
        while (left_s := end - time.monotonic()) > 0:
            try:
                datagram = self.receive(left_s)
            except TimeoutError:
                break
            if wanted(datagram):
                return datagram
            passed.append(datagram[:60].hex(" "))
        raise AssertionError(f"nothing wanted came within {within_s} s; passed over {passed}")

    def expect_silence(self, of: Callable[[bytes], bool], for_s: float) -> None:
        """Fail if a datagram of that kind arrives."""
        end = time.monotonic() + for_s
        while (left_s := end - time.monotonic()) > 0:
            try:
                datagram = self.receive(left_s)
            except TimeoutError:
                return
            assert not of(datagram), f"unexpected datagram {datagram[:60].hex(' ')}"


class Command:
    """A running command whose lines are read as they come."""

    def __init__(self, *words: str, **more: Any) -> None:
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=pipe, text=True, **more)
        self._pumps: list[threading.Thread] = []
        self._out = self._pump(self.process.stdout)
        self._err = self._pump(self.process.stderr)

    def _pump(self, stream: IO[str] | None) -> queue.Queue[str]:
        assert stream is not None
        lines: queue.Queue[str] = queue.Queue()

        def pump() -> None:
            for line in stream:
                lines.put(line.rstrip("\n"))

        thread = threading.Thread(target=pump, daemon=True)
        thread.start()
        self._pumps.append(thread)
        return lines

    def line(self, within_s: float = PATIENCE_S) -> str:
        return self._out.get(timeout=within_s)

    def message(self, within_s: float = PATIENCE_S) -> dict[str, Any]:
        """The next JSON line."""
        decoded: dict[str, Any] = json.loads(self.line(within_s))
        return decoded

    def no_more_lines(self, for_s: float = 0.3) -> None:
        try:
            line = self._out.get(timeout=for_s)
        except queue.Empty:
            return
        raise AssertionError(f"unexpected line {line!r}")

    def listening_at(self) -> tuple[str, int]:
        """Wait for `listening URL` and return the address in it."""
        while True:
            found = re.search(r"listening [\w+]+://([\d.]+):(\d+)", self._err.get(timeout=PATIENCE_S))
            if found:
                return found[1], int(found[2])

    def errors(self) -> str:
        """What was printed on standard error and not read yet; all of it once the command has left."""
        return self._unread(self._err)

    def printed(self) -> str:
        """The same of standard output."""
        return self._unread(self._out)

    def _unread(self, lines: queue.Queue[str]) -> str:
        if self.process.poll() is not None:
            self._await_pumps()
        return "\n".join(lines.get() for _ in range(lines.qsize()))

    def _await_pumps(self) -> None:
        self.process.wait(PATIENCE_S)
        for thread in self._pumps:
            thread.join(PATIENCE_S)

    def exit_code(self, within_s: float = PATIENCE_S) -> int:
        return self.process.wait(within_s)

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(PATIENCE_S)
        self._await_pumps()  # a stream that is closed under its reader raises there
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()


def run(*arguments: str, given: bytes = b"") -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    command = [sys.executable, "-m", "fairway", *map(url_of, arguments)]
    done = subprocess.run(command, input=given, capture_output=True, check=False, timeout=PATIENCE_S)
    return subprocess.CompletedProcess(command, done.returncode, done.stdout.decode(), done.stderr.decode())


@contextmanager
def fairway(*arguments: str) -> Iterator[Command]:
    """Run a command and end it."""
    command = Command(sys.executable, "-m", "fairway", *map(url_of, arguments))
    try:
        yield command
    finally:
        command.stop()


@contextmanager
def listening(scheme: str, *arguments: str, query: str = "") -> Iterator[tuple[Command, RawPeer]]:
    """Run `fairway listen` with a raw peer that calls it."""
    with fairway("listen", f"{scheme}://127.0.0.1:0{query}", "--json", *arguments) as command:
        peer = peer_of(command.listening_at())
        try:
            yield command, peer
        finally:
            peer.socket.close()


@contextmanager
def answering() -> Iterator[RawPeer]:
    """A raw peer that waits to be called."""
    peer = peer_of()
    try:
        yield peer
    finally:
        peer.socket.close()


def u16(number: int) -> bytes:
    return number.to_bytes(2, "big")


def u24(number: int) -> bytes:
    return number.to_bytes(3, "big")


def u32(number: int) -> bytes:
    return number.to_bytes(4, "big")
