"""An episode that is understood in chunks gives the rows of one that is understood as a whole."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from fairway.lake.analysis import giants
from fairway.lake.analysis.acknowledgements import Facts, facts
from fairway.lake.analysis.decoded import Decoded
from fairway.lake.analysis.enrich import ORDER, Enrich
from fairway.lake.analysis.headers import Headers
from fairway.lake.analysis.packets import Ordered, in_order
from fairway.lake.arrays import Carried, Runs
from fairway.lake.captures.files import Capture, Span
from fairway.protocols.udpc.wire import ACK, SYN, Control, encode
from fairway.sim.configuration import RunOptions, case
from tests.capture.test_merged import BATCHES, SESSION
from tests.conftest import ROOT
from tests.lake.analysis.conftest import VARIANTS
from tests.lake.analysis.giant import records as giant
from tests.lake.analysis.test_packets import CASES, MRP, UDPC, acknowledged, capture, piggyback, stamped
from tests.lake.analysis.worlds import simulated
from tests.lake.captures.reading import records_of
from tests.lake.captures.traces import conversation
from tests.lake.violations import mrp_cases, pydevts_cases, rup_cases, udpc_cases

WHOLE = 1 << 30


def runs() -> list[bytes]:
    """A run of each protocol over a bad network, seen at both ends, more than a thousand packets in each flow."""
    configurations = [
        RunOptions(protocol=protocol, layout=layout, loss=0.05, duplicate=0.05, reorder=0.05, jitter_ms=5,
                   messages=300, size=2_500 if protocol == "rup" else 40, two_way=True)
        for protocol, layout in VARIANTS
    ]  # fmt: skip
    return [simulated(number, case(one), number).capture for number, one in enumerate(configurations)]


def odd() -> list[bytes]:
    """Cases of rules that are broken, of all layouts, and of calls whose answer comes much later, or before."""
    broken = (*udpc_cases.CASES, *mrp_cases.CASES, *rup_cases.CASES, *pydevts_cases.CASES)
    made = [one.capture(number, 9_000) for number, one in enumerate(broken)]
    # An ack says nothing of its layout; here what does comes chunks later.
    late = [(0.1 * number, False, acknowledged(1, 7, number, 5)) for number in range(30)]
    late += [(9 + 0.1 * number, True, piggyback(1, 7, number, 0)) for number in range(30)]
    cases = [sent for files in CASES.values() for sent in files] + [late]
    return made + [capture(sent, number, MRP) for number, sent in enumerate(cases)]


def crowded() -> list[bytes]:
    """Many packets under one number: parts of one message, data that acknowledges the same for long, and storms."""
    lossy = RunOptions(protocol="rup", loss=0.05, duplicate=0.1, reorder=0.05, jitter_ms=5, messages=2, size=300_000)
    data = [(0.01 * number, True, piggyback(1, 7, 1 + number * 2 // 3, number // 200, "68656c6c6f"))
            for number in range(600)]  # fmt: skip
    answers = [(0.005 + 0.01 * number, False, piggyback(7, 1, number // 250, number // 3, "6f6b" * (number % 125 == 0)))
               for number in range(600)]  # fmt: skip
    stamps = [(0.01 * number, True, stamped(7, 1, 4 + number // 300, number % 7)) for number in range(600)]
    echoes = [(0.005 + 0.03 * number, False, acknowledged(1, 7, 4, number % 5)) for number in range(200)]
    storms = [capture(sent, number, MRP) for number, sent in enumerate((data + answers, stamps + echoes))]
    return [simulated(9, case(lossy), 9).capture, *storms]


def merged() -> list[bytes]:
    """Records that hold several datagrams, in flows that bear that out and in flows that do not."""
    syn = encode(Control(index=77, session_id=5, flag=SYN))
    answer = encode(Control(index=1, session_id=int.from_bytes(SESSION), ack_index=77, flag=SYN | ACK))
    found = []
    for number, batch in enumerate(BATCHES.values()):
        joined = [(True, b"".join(batch))] * 5
        for port, sent in enumerate((joined, [(True, syn), (False, answer), *joined], [(True, one) for one in batch])):
            found.append(conversation(*sent, client=(f"10.0.7.{number}", 5_000 + port)))
    return found


def sorted_records(folder: Path, captures: list[bytes]) -> pa.Table:
    tables = []
    for number, data in enumerate(captures):
        path = folder / f"{number}.pcapng"
        path.write_bytes(data)
        tables.append(records_of(path, payload=number % 2 == 0))
    return pa.concat_tables(tables).sort_by([(name, "ascending") for name in (*ORDER, "piece")])


def enrich(records: pa.Table, *options: Any) -> Enrich:
    files = sorted(set(records["file_id"].to_pylist()))
    times = records["at_ns"].drop_null().to_numpy()
    span = Span(int(times.min()), int(times.max()))
    captures = {number: Capture(f"id {number}", "name", number % 2 == 0, span) for number in files}
    return Enrich(captures, *options)


def packets(
    records: pa.Table, group_rows: int, ports: dict[int, str] | None = None, batch_rows: int = 10_000
) -> pa.Table:
    batches = iter(records.to_batches(max_chunksize=batch_rows))
    return pa.Table.from_batches(enrich(records, ports or {}, group_rows)(batches))


@pytest.mark.parametrize(
    ("made", "chunk_rows", "batch_rows", "ports"),
    [
        (runs, 100, 10_000, {}),
        (runs, 1_000, 7, {}),
        (runs, 1_000, 1_000, {9_000: "mrp"}),
        (crowded, 50, 50, {}),
        (odd, 7, 7, {}),
        (odd, 7, 7, {9_000: "pydevts", MRP: "mrp", UDPC: "udpc"}),
        (merged, 7, 7, {}),
        (merged, 7, 7, {9_000: "udpc"}),
    ],
)
def test_chunks_give_the_same_rows(
    tmp_path: Path,
    made: Callable[[], list[bytes]],
    chunk_rows: int,
    batch_rows: int,
    ports: dict[int, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    records = sorted_records(tmp_path, made())
    whole = packets(records, WHOLE, ports)
    chunks, pieces = [], []

    def noting(decoded: Decoded, *known: Any) -> Ordered:
        chunks.append(len(decoded.rows))
        return in_order(decoded, *known)

    def noting_facts(headers: Headers, *known: Any) -> Facts:
        pieces.append(len(headers.kind))
        return facts(headers, *known)

    monkeypatch.setattr(giants, "in_order", noting)
    monkeypatch.setattr(giants, "facts", noting_facts)
    assert packets(records, chunk_rows, ports, batch_rows).equals(whole)
    assert len(whole) == len(records) or made is merged
    assert len(chunks) > 20
    assert max(chunks) < 2 * chunk_rows + 64  # the pieces of one record stay together
    assert max(pieces) < 2 * max(chunks)  # a record with two numbers is read with both


def test_chunks_and_groups_end_sooner_where_bodies_are_large(tmp_path: Path) -> None:
    records = sorted_records(tmp_path, [*runs()[3:4], *odd()])
    batches, limited = records.to_batches(max_chunksize=40), enrich(records, {}, WHOLE, 100_000)
    groups = list(limited.groups(iter(batches)))
    held = []
    for group in groups:
        if isinstance(group, giants.Chunks):
            with closing(group):
                held += list(group)
        else:
            held.append(group)
    assert len(held) > len(groups) > 2
    assert max(chunk.nbytes for chunk in held) < 200_000 < max(batch.nbytes for batch in records.to_batches())
    assert pa.Table.from_batches(limited(iter(batches))).equals(packets(records, WHOLE))


@pytest.mark.parametrize("protocol", ["udpc", "mrp", "rup", "pydevts"])
def test_chunks_of_100_000_rows_give_the_same_rows(protocol: str) -> None:
    records = pa.concat_tables(giant(230_000, protocol))
    assert packets(records, 100_000).equals(packets(records, WHOLE))


def test_running_values_go_on_in_the_next_chunk() -> None:
    """In chunks of any size, and where a session pauses for some chunks."""
    chance = np.random.default_rng(5)
    sessions = chance.integers(1, 4, 60).astype(np.uint64)
    values, wanted = chance.integers(0, 100, 60), chance.random(60) < 0.4

    def found(size: int) -> list[list[int]]:
        carried, rows = Carried(keeps=True), []
        for start in range(0, 60, size):
            order = start + np.argsort(sessions[start : start + size], kind="stable")
            keys, first = np.unique(sessions[order], return_index=True)
            runs = Runs(keys, np.isin(np.arange(len(order)), first), carried)
            columns = [
                runs.last("last", values[order], wanted[order]),
                runs.most("most", values[order], wanted[order]),
                runs.total("total", values[order]),
            ]
            rows += sorted(zip(order.tolist(), *(column.tolist() for column in columns), strict=True))
        return [list(row) for row in rows]

    whole = found(60)
    assert reduce(lambda same, size: same and found(size) == whole, (1, 2, 7, 30), True)
    assert {-1} < {row[1] for row in whole}


MEGABYTES_MAX = 1_000
"""Of this nothing grows with the packets of a session but what is kept of udpc's numbers until it is recognised."""


@pytest.mark.long
@pytest.mark.parametrize(
    "episode", [("2000000", "udpc"), ("2000000", "mrp"), ("2000000", "piggyback"), ("200000", "mrp", "payload")]
)
def test_an_episode_of_millions_of_packets_needs_little_memory(episode: tuple[str, ...]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.lake.analysis.giant", *episode],
        check=True, capture_output=True, text=True, cwd=ROOT,
    )  # fmt: skip
    assert int(done.stdout) <= MEGABYTES_MAX
