"""The benchmark of the gateway measures, compares with what is on disk, judges and shows; its soak finds faults."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from benchmarks.frame import Key, Results
from benchmarks.gateway import rounds
from benchmarks.gateway.crowd import ACKNOWLEDGED, UNKNOWN, Crowd, Ledger
from benchmarks.gateway.landed import PEER_SHIFT, Held, Tally, held, tally
from benchmarks.gateway.rounds import WHERE, Plan
from benchmarks.gateway.servers import Server
from benchmarks.gateway.soak import Gauges, Orders, Outcome, Sample
from benchmarks.gateway.systems import SYSTEMS
from benchmarks.transport.pattern import message, tail
from fairway.cli import run as command_line
from fairway.demo.services import GatewayService
from fairway.lake.landing.reconcile import Account

TAIL = tail(200)
INSTALLED = [name for name in ("udpc", "mrp", "redis") if not SYSTEMS[name].missing]


def test_a_quick_run_measures_what_is_installed_and_writes_everything(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Relative, as the default is: Redis and RabbitMQ once looked for their data where it was not.
    monkeypatch.chdir(tmp_path)
    command = ["bench", "gateway", "--rounds", "1", "--seconds", "0.05", "--only", ",".join(INSTALLED)]
    command += ["--visible", "1"]
    code = command_line([*command, "--out", "."])
    printed = capsys.readouterr().out
    assert code == 0, printed
    assert "Goals" in printed
    written: dict[str, Any] = json.loads((tmp_path / "gateway.json").read_text())
    assert written["failures"] == []
    found = {(cell["load"], cell["peer"]): cell["rounds"][0] for cell in written["cells"]}
    assert {system for _, system in found} == set(INSTALLED)
    assert all(one["rate"] > 0 and one["acknowledged"] >= one["units"] for one in found.values())
    assert all(found["awaited", system]["p99_ms"] > 0 for system in INSTALLED)
    assert [taken_s > 0 for taken_s in written["visible_s"]] == [True]
    assert "| gateway, udpc |" in (tmp_path / "gateway.md").read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["gateway.json", "gateway.md"]


def test_a_server_that_holds_one_message_too_few_fails_all_its_loads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds, "start", lambda *_: Server(1, os.getpid(), "0", lambda: Held(9)))
    monkeypatch.setattr(rounds, "_send", lambda *_: {"rate": 1.0, "acknowledged": 5})
    results = Results(1, 1.0)
    rounds.run(Plan(["udpc"], ["batches", "awaited"]), results, tmp_path, lambda *_: None)
    assert results.failures == ["round 1, gateway, udpc: 10 messages were acknowledged and 9 are there"]
    assert results.cells == {Key(WHERE, "batches", "udpc"): [None], Key(WHERE, "awaited", "udpc"): [None]}


def test_held_messages_are_compared_by_number() -> None:
    sent = [(0, 3), (100, 2)]
    assert Held(5, np.array([100, 0, 2, 1, 101])).differences(sent) == []
    (doubled,) = Held(5, np.array([100, 0, 2, 1, 100])).differences(sent)
    assert "each once" in doubled
    assert len(Held(4, np.array([100, 0, 2, 1])).differences(sent)) == 2
    assert Held(5, None).differences(sent) == []


def test_a_changed_byte_in_a_segment_or_in_the_journal_is_found(tmp_path: Path) -> None:
    from fairway.gateway.journal import Journal, Row, Transaction

    landing, home = tmp_path / "landing" / "gateway", tmp_path / "gateways" / "gateway"
    landing.mkdir(parents=True)
    home.mkdir(parents=True)
    journal = Journal(home / "journal.sqlite", "gateway")
    body = message(2, TAIL) + message(3, TAIL)
    journal.write(
        Transaction(rows=[Row(2, 2, "udpc", "peer", 1, 7, "message", reliable=True, received_us=0, size_bytes=200,
                              sizes=None, body=body)])
    )  # fmt: skip
    journal.close()
    bodies = [message(0, TAIL), message(1, TAIL)]
    pq.write_table(pa.table({"body": pa.array(bodies, pa.binary())}), landing / "one.parquet")
    found = held(tmp_path, "gateway")
    assert found.numbers is not None
    assert found.differences([(0, 4)]) == []
    bodies[1] = bodies[1][:-1] + b"?"
    pq.write_table(pa.table({"body": pa.array(bodies, pa.binary())}), landing / "one.parquet")
    assert held(tmp_path, "gateway").differences([(0, 4)]) == ["a message differs from what was sent"]


def test_ctrl_c_shows_what_there_is_and_leaves_neither_process_nor_data(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "fairway", "bench", "gateway", "--only", "udpc", "--seconds", "60"]
    with Popen([*command, "--out", str(tmp_path)], stdout=PIPE, stderr=PIPE, start_new_session=True) as bench:
        while not (gateways := using(tmp_path)):
            assert bench.poll() is None
            time.sleep(0.05)
        bench.send_signal(signal.SIGINT)
        printed, _ = bench.communicate(timeout=120)
    assert bench.returncode == 130
    assert b"The run was stopped before its end." in printed
    assert gateways
    assert using(tmp_path) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["gateway.json", "gateway.md"]


def using(folder: Path) -> list[int]:
    """Lists the gateways whose lake lies there."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if b"gateway" in words and b"--lake" in words and any(str(folder).encode() in word for word in words):
            found.append(int(path.parent.name))
    return found


def test_a_crowd_sends_at_its_rate_and_the_gateway_holds_what_it_notes(tmp_path: Path) -> None:
    async def load(service: GatewayService) -> tuple[Ledger, Sample]:
        crowd = Crowd(list(service.urls.values()), 8, 400)
        await crowd.open()
        await crowd.send_for(1.0)
        await crowd.settle(30.0)
        metrics = service.wait_for("metrics ")[0].split()[1]
        gauges = Gauges(tmp_path / "lake", metrics, service.pid, service.pid)
        return crowd.ledger, await asyncio.to_thread(gauges.read, crowd.ledger.acknowledged)

    options = ["--metrics", "127.0.0.1:0", "--seal-after", "1h"]
    with GatewayService(tmp_path / "lake", ("udpc", "mrp", "rup", "pydevts"), options) as service:
        service.serve()
        ledger, sample = asyncio.run(load(service))
        assert service.stop() == 0
    assert ledger.acknowledged == ledger.sent
    assert 0 < ledger.sent <= 400
    assert sample.unsealed == sample.on_the_way == ledger.sent
    assert sample.gateway_bytes == sample.stream_bytes > 10 << 20
    sent = [(peer << PEER_SHIFT, len(numbers)) for peer, numbers in enumerate(ledger.outcomes)]
    assert held(tmp_path / "lake", "gateway").differences(sent) == []


def test_a_table_is_tallied_against_the_ledger(tmp_path: Path) -> None:
    table = tmp_path / "tables" / "messages"
    first, second = bytes([ACKNOWLEDGED, ACKNOWLEDGED, UNKNOWN]), bytes([ACKNOWLEDGED])

    def found(*numbers: int) -> Tally:
        bodies = pa.array([message(number, TAIL) for number in numbers], pa.binary())
        write_deltalake(table, pa.table({"body": bodies}), mode="overwrite")
        return tally(tmp_path, [first, second], ACKNOWLEDGED)

    other = 1 << PEER_SHIFT
    assert found(0, 1, other) == Tally(3, missing=0, double=0, foreign=0)
    assert found(0, 1, 2, other) == Tally(4, missing=0, double=0, foreign=0)
    assert found(0, 2, other) == Tally(3, missing=1, double=0, foreign=0)
    assert found(0, 1, other, other) == Tally(4, missing=0, double=1, foreign=0)
    assert found(0, 1, other, other + 1, 7 * other) == Tally(5, missing=0, double=0, foreign=2)


def soaked(**changes: Any) -> Outcome:
    samples = [Sample(100 << 20, 1 << 30, 25_000, 50_000, 10)] * 8
    outcome = Outcome(Orders(60, 5_000, 200), Ledger([bytearray()]), samples)
    outcome.account = Account("gateway", 10, 0, 10, 0, 0, 0)
    outcome.tally = Tally(10, 0, 0, 0)
    for name, value in changes.items():
        setattr(outcome, name, value)
    return outcome


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"account": Account("gateway", 10, 0, 9, 1, 0, 0)}, "reconcile does not balance"),
        ({"account": Account("gateway", 10, 1, 9, 0, 0, 0)}, "reconcile does not balance"),
        ({"tally": Tally(10, 0, 1, 0)}, "the table is not what was sent"),
        ({"ledger": Ledger([bytearray()], sent=1, unknown=1)}, "1 outcomes unknown"),
        ({"gateway_code": 1}, "the gateway ended with 1"),
        ({"samples": [Sample(1, 1, 200_000, 0, 1)] * 8}, "40 s of messages were unsealed"),
        ({"samples": [Sample(1, 1, 0, 400_000, 1)] * 8}, "80 s of messages were not in the table"),
        ({"samples": [Sample(size << 20, 1, 0, 0, 1) for size in range(100, 900, 100)]}, "the gateway grew"),
    ],
)
def test_a_soak_says_what_does_not_hold(changes: dict[str, Any], words: str) -> None:
    assert soaked().problems() == []
    (problem,) = soaked(**changes).problems()
    assert words in problem
