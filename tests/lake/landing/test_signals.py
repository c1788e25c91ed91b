"""Signals to a stream and its Java process: to one, to both, to all of their group."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from threading import Event

import pytest
from pyspark.sql import SparkSession

from fairway.cli.stream import STOPPING
from fairway.lake.landing.batch import Landing
from fairway.lake.landing.stream import Stream, StreamFailed
from fairway.store.lakes import Lake
from tests.cli.terminals import on_terminal
from tests.lake.landing.fake import FakeGateway
from tests.lake.landing.killing import PATIENCE_S, TEST_JVM, start_stream
from tests.lake.landing.landing import land

SAID = f"fairway: starting Spark\nfairway: {STOPPING}\n"

Signalling = Callable[[int, int], None]


def terminate_all(driver: int, jvm: int) -> None:
    os.kill(jvm, signal.SIGTERM)
    os.kill(driver, signal.SIGTERM)


def kill_driver(driver: int, jvm: int) -> None:
    os.kill(driver, signal.SIGKILL)


def assert_ends(pid: int) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while is_running(pid) and time.monotonic() < deadline_s:
        time.sleep(0.05)
    assert not is_running(pid)


def jvm_of(process: subprocess.Popen[str]) -> int:
    (jvm,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return int(jvm)


def is_running(pid: int) -> bool:
    """Return whether a process runs; a dead one that nobody waits for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize(
    ("signalling", "code", "said"),
    [(terminate_all, 0, SAID), (kill_driver, -signal.SIGKILL, None)],
)
def test_a_stream_ends_as_it_was_told_and_its_java_process_with_it(
    tmp_path: Path, gateway: FakeGateway, signalling: Signalling, code: int, said: str | None
) -> None:
    gateway.seal(10)
    with start_stream(tmp_path, own_group=True) as process:
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            assert '"landed"' in process.stdout.readline()
            jvm = jvm_of(process)
            assert os.getpgid(jvm) != os.getpgid(process.pid), "a signal to the group would end the batch in the middle"
            signalling(process.pid, jvm)
            assert process.wait(PATIENCE_S) == code
            assert_ends(jvm)
            assert said is None or process.stderr.read() == said
        finally:
            process.kill()


def test_a_signal_while_spark_starts_is_answered_at_once_and_leaves_no_java_process(tmp_path: Path) -> None:
    with start_stream(tmp_path, own_group=True) as process:
        try:
            assert process.stderr is not None
            assert process.stderr.readline() == "fairway: starting Spark\n"
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
            while not (jvm := children.read_text()):
                assert process.poll() is None
                time.sleep(0.01)
            os.killpg(process.pid, signal.SIGINT)
            assert process.stderr.readline() == f"fairway: {STOPPING}\n"
            os.killpg(process.pid, signal.SIGINT)  # who is impatient does not leave the JVM behind
            assert process.wait(PATIENCE_S) == 130
            assert process.stderr.read() == ""
            assert_ends(int(jvm))
        finally:
            process.kill()


def test_a_terminal_shows_what_a_stream_is_doing_and_ctrl_c_takes_one_line(tmp_path: Path) -> None:
    Lake(tmp_path)
    options = ("--master", "local[1]", "--conf", TEST_JVM, "--conf", "spark.driver.memory=1g")
    with on_terminal("stream", "--lake", str(tmp_path), *options) as screen:
        screen.until("starting Spark  0 s")
        screen.until("starting Spark  1 s")
        screen.until("looking for segments  1 s")
        screen.process.send_signal(signal.SIGINT)
        lines = [line.rpartition("\x1b[K")[2] for line in screen.rest().split("\r\n")]
    assert screen.process.returncode == 130
    assert lines == [f"fairway: {STOPPING}", ""]


def test_a_java_process_that_is_gone_unasked_is_told_of_in_a_sentence(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def query(stream: Stream, session: SparkSession, landing: Landing, checkpoint: Path, stop: Event) -> None:
        raise ConnectionRefusedError(111, "Connection refused")

    monkeypatch.setattr(Stream, "_query", query)
    with pytest.raises(ConnectionRefusedError):
        land(spark, tmp_path)
    monkeypatch.setattr("fairway.lake.landing.stream.is_jvm_gone", lambda within_s: True)
    with pytest.raises(StreamFailed, match="Java process is gone"):
        land(spark, tmp_path)
