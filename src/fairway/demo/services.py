"""Processes that end with their parent's block, also on failure and on Ctrl-C: a gateway and a stream among them."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from time import monotonic, sleep
from typing import IO, Any, Self

from fairway.core.errors import FairwayError
from fairway.demo.keys import Keys

END_S = 5.0
ENDING = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def held_signals() -> Iterator[None]:
    """Hold back Ctrl-C and SIGTERM: one between the fork and the line that notes the child would leave it running.

    Only the main thread is interrupted by signals; elsewhere there is nothing to hold.
    """
    came: list[int] = []
    numbers = ENDING if threading.current_thread() is threading.main_thread() else ()
    earlier = {number: signal.signal(number, lambda number, _: came.append(number)) for number in numbers}
    try:
        yield
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)
        for one in came:
            signal.raise_signal(one)


@contextmanager
def process(
    command: Sequence[str], environment: Mapping[str, str] | None = None, log: Path | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program in a session of its own, so that Ctrl-C reaches this process alone, and end it, and what it has
    started, at the end. With a `log` it writes to that file and runs in its folder, otherwise it has pipes."""
    pipe, child = subprocess.PIPE, None
    others = (pipe, pipe) if log is None else (subprocess.DEVNULL, subprocess.STDOUT)
    try:
        with nullcontext(pipe) if log is None else log.open("wb") as output, held_signals():
            child = subprocess.Popen(
                command, stdin=others[0], stdout=output, stderr=others[1], start_new_session=True,
                env={**os.environ, **(environment or {})}, cwd=log and log.parent,
            )  # fmt: skip
        yield child
    finally:
        if child is not None:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait(END_S)
            for stream in (child.stdin, child.stdout, child.stderr):
                if stream is not None:
                    stream.close()


def answer(child: subprocess.Popen[bytes], timeout_s: float) -> Any:
    """Return what a child with pipes says next, one line of JSON; raise `ServiceFailed`."""
    assert child.stdout is not None
    assert child.stderr is not None
    if not select.select((child.stdout,), (), (), max(0.0, timeout_s))[0]:
        raise ServiceFailed("it took too long")
    line = child.stdout.readline()
    if not line:
        child.kill()
        said = child.stderr.read().decode(errors="replace").strip().splitlines()
        raise ServiceFailed(f"it ended without a word: {said[-1] if said else 'time limit'}")
    return json.loads(line)


START_S = 300.0
STOP_S = 300.0
"""Bounds for what takes seconds, on a machine that has far too much to do."""
LINES_KEPT = 200


class ServiceFailed(FairwayError):
    """A service did not do what it should; the message holds what it said last."""


class Service:
    """A `fairway` command that runs until it is ended."""

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        self._arguments = list(arguments)
        self._environment = dict(environment or {})
        self.program: Sequence[str] = (sys.executable, "-m", "fairway")
        self._process: subprocess.Popen[str] | None = None
        self.lines: list[str] = []
        self._said = threading.Condition()

    def start(self, **environment: str) -> None:
        """Start the process in a session of its own; what is given by name goes into its environment this time."""
        self.lines = []
        command = [*self.program, *self._arguments]
        everything = {**os.environ, **self._environment, **environment}
        with held_signals():
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                start_new_session=True, env=everything,
            )  # fmt: skip
        assert self._process.stdout is not None
        threading.Thread(target=self._listen, args=(self._process.stdout,), daemon=True).start()

    def _listen(self, output: IO[str]) -> None:
        with output:
            for line in output:
                with self._said:
                    self.lines = [*self.lines[-LINES_KEPT:], line.rstrip("\n")]
                    self._said.notify_all()
        with self._said:
            self._said.notify_all()

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def code(self) -> int | None:
        """The exit code of the last process; None while it runs, or if there was none."""
        return None if self._process is None else self._process.poll()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def wait_for(self, words: str, times: int = 1, timeout_s: float = START_S) -> list[str]:
        """Wait until so many lines begin with the words, and return them; raise `ServiceFailed`."""
        until_s = monotonic() + timeout_s
        with self._said:
            while len(found := [line for line in self.lines if line.startswith(words)]) < times:
                left_s = until_s - monotonic()
                if not self.running or left_s <= 0:
                    state = "still runs" if self.running else "has ended"
                    raise ServiceFailed(f"{self._arguments[0]} {state} and never said {words!r}: {self.lines[-3:]}")
                self._said.wait(min(left_s, 0.2))
        return found

    def kill(self) -> None:
        """End the process and what it started, as kill -9 does."""
        if self._process is not None:
            if self.running:
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(STOP_S)

    def pause(self, seconds: float) -> None:
        """Stop the process and what it started for a while, and let them go on."""
        with suppress(ProcessLookupError):  # it may be killed meanwhile
            os.killpg(self.pid, signal.SIGSTOP)
            sleep(seconds)
            os.killpg(self.pid, signal.SIGCONT)

    def ended(self, timeout_s: float = STOP_S) -> int:
        """Wait until the process has ended by itself, and return its exit code."""
        assert self._process is not None
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise ServiceFailed(f"{self._arguments[0]} runs for {timeout_s:g} s: {self.lines[-3:]}") from None

    def stop(self) -> int:
        """Ask the process to end, and return its exit code."""
        assert self._process is not None
        if self.running:
            self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise ServiceFailed(f"{self._arguments[0]} did not end within {STOP_S:g} s: {self.lines[-3:]}") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


class GatewayService(Service):
    """A gateway with some protocols, over DTLS if it is given keys; after its first start it keeps its ports."""

    def __init__(
        self,
        lake: Path | str,
        protocols: Sequence[str],
        options: Sequence[str] = (),
        name: str = "gateway",
        environment: Mapping[str, str] | None = None,
        keys: Keys | None = None,
    ) -> None:
        self._keys = keys
        self._schemes = {protocol: f"{protocol}+dtls" if keys else protocol for protocol in protocols}
        self.urls = {protocol: f"{scheme}://127.0.0.1:0" for protocol, scheme in self._schemes.items()}
        self._fixed = ["--lake", str(lake), "--name", name, *options]
        super().__init__([], environment)

    def serve(self, **environment: str) -> float:
        """Start the gateway and wait until it listens; return how long that took."""
        urls = [self._keys.gateway_url(url) if self._keys else url for url in self.urls.values()]
        self._arguments = ["gateway", *urls, *self._fixed]
        began_s = monotonic()
        self.start(**environment)
        lines = self.wait_for("listening ", len(self.urls))
        said = [line.split()[1] for line in lines]
        self.urls = {
            protocol: next(url for url in said if url.startswith(f"{scheme}://"))
            for protocol, scheme in self._schemes.items()
        }
        return monotonic() - began_s


def stream_service(
    lake: Path | str, options: Sequence[str] = (), environment: Mapping[str, str] | None = None
) -> Service:
    """Return a stream of the lake; it is not started yet."""
    return Service(["stream", "--lake", str(lake), *options], environment)
