"""`fairway stream`, `compact` and `reconcile` on an object store, each as a process or a command of its own."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import pytest

from fairway.cli import run
from fairway.lake.landing.reconcile import reconcile
from fairway.store.lakes import Lake
from tests.lake.landing.fake import FakeGateway
from tests.lake.landing.killing import PATIENCE_S, SEAL_EVERY_S, start_stream, torture
from tests.lake.landing.landing import expected
from tests.lake.landing.reading import with_delta, with_duckdb, with_polars


def test_segments_land_in_tables_and_all_commands_agree(
    lake: Lake, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gateway = FakeGateway(tmp_path, "one", days=2, landing=lake.landing)
    table = lake.delta("messages").location.uri
    with start_stream(lake.location.uri) as stream:
        try:
            assert stream.stdout is not None
            for count in (20, 10):  # two batches, so that there is something to compact
                gateway.seal(count)
                assert '"landed"' in stream.stdout.readline()
            stream.send_signal(signal.SIGTERM)
            assert stream.wait(PATIENCE_S) == 0
        finally:
            stream.kill()
    assert with_delta(table) == with_duckdb(table) == with_polars(table) == expected(gateway, days=2)
    gateway.acknowledge(3)
    assert run(["reconcile", "--lake", lake.location.uri, "--json"]) == 0
    figures = json.loads(capsys.readouterr().out.splitlines()[0])
    assert (figures["acknowledged"], figures["in_tables"], figures["on_the_way"]) == (30, 30, 0)
    journals = str(tmp_path / "gateways")
    assert run(["reconcile", "--lake", lake.location.uri, "--journal", journals, "--json"]) == 0
    figures = json.loads(capsys.readouterr().out.splitlines()[0])
    assert (figures["acknowledged"], figures["in_tables"], figures["on_the_way"]) == (33, 30, 3)
    files = len(lake.delta("messages").open().file_uris())
    assert run(["compact", "--lake", lake.location.uri]) == 0
    assert "tables compacted" in capsys.readouterr().out
    assert len(lake.delta("messages").open().file_uris()) < files
    assert with_delta(table) == with_polars(table) == expected(gateway, days=2, end=30)
    gateway.close()


def test_killed_in_the_middle_a_stream_loses_and_doubles_nothing(lake: Lake, tmp_path: Path) -> None:
    figures = torture(lake.location.uri, [("table-committed:3", 0.0)], journals=tmp_path)
    assert figures.faults == []
    assert figures.kills == 1
    assert figures.looks > 4
    assert figures.messages > 100


def test_of_two_streams_one_ends_with_a_sentence_and_nothing_is_double(lake: Lake, tmp_path: Path) -> None:
    gateway = FakeGateway(tmp_path, "one", days=2, landing=lake.landing)
    deadline_s = time.monotonic() + PATIENCE_S
    with start_stream(lake.location.uri) as one, start_stream(lake.location.uri) as two:
        while one.poll() is None and two.poll() is None:
            assert time.monotonic() < deadline_s
            gateway.seal(5)
            time.sleep(SEAL_EVERY_S)
        ended, left = (one, two) if two.poll() is None else (two, one)
        _, complaint = ended.communicate(timeout=PATIENCE_S)
        assert (ended.returncode, complaint.count("\n")) == (1, 2), complaint  # one says that Spark starts
        assert "nother writer" in complaint
        while any(account.on_the_way for account in reconcile(lake)):
            assert left.poll() is None
            assert time.monotonic() < deadline_s
            time.sleep(SEAL_EVERY_S)
        left.send_signal(signal.SIGTERM)
        said, complaint = left.communicate(timeout=PATIENCE_S)
        assert left.returncode == 0, f"{said}{complaint}"
    assert with_delta(lake.delta("messages").location.uri) == expected(gateway, days=2)
    gateway.close()
