"""Transfers and round trips of captures that are built by hand, all in one job."""

from __future__ import annotations

from typing import Any
from zlib import crc32

import pytest
from pyspark.sql import SparkSession

from fairway.protocols.udpc.wire import ACK, FIN, IMP, REQ
from tests.lake.analysis.tables import made
from tests.lake.analysis.test_packets import (
    CONNECT_PIGGYBACK,
    OPENED,
    Sent,
    acknowledged,
    capture,
    piggyback,
    stamped,
    udpc,
)
from tests.lake.captures.reading import datagrams

PORTS = {9_000: "udpc", 9_001: "mrp", 9_002: "rup", 9_003: "pydevts"}
PORT_OF = {name: port for port, name in PORTS.items()}
BODY = "68656c6c6f"
CRC = f"{crc32(bytes.fromhex(BODY)):08x}"
Tables = dict[str, dict[str, list[dict[str, Any]]]]
"""By table and case."""


def packet(number: int) -> str:
    return f"0000{number:04x}{CRC}{BODY}"


def answer(number: int, success: int) -> str:
    return f"01{success:02x}{number:04x}{CRC}"


CASES: dict[str, tuple[str, list[Sent]]] = {
    "repaired": (
        "pydevts",
        [(0, True, packet(1)), (1, False, answer(1, 1)), (2, True, packet(1)), (3, False, answer(1, 0))],
    ),
    "repaired at once": ("pydevts", [(0, True, packet(1)), (1, False, answer(1, 1)), (1, False, answer(1, 0))]),
    "failed afterwards": ("pydevts", [(0, True, packet(1)), (1, False, answer(1, 0)), (1, False, answer(1, 1))]),
    "ack of nothing": ("pydevts", [(0, True, packet(1)), (1, False, answer(7, 0))]),
    "closed at once": ("udpc", [(0, True, udpc(1, 0, IMP, "6869")), (0, False, udpc(1, 0, FIN))]),
    "closed before": ("udpc", [(0, False, udpc(1, 0, FIN)), (0, True, udpc(1, 0, IMP, "6869"))]),
    "asked back": (
        "udpc",
        [
            (0, True, udpc(5, 0, REQ, "3f")),
            (1, False, udpc(8, 5, ACK | REQ, "3f3f")),
            (2, True, udpc(6, 8, ACK, "21")),
        ],
    ),
    "sent again later": (
        "mrp",
        [*OPENED, (0.5, False, acknowledged(1, 7, 1, 5)), (0.6, True, stamped(7, 1, 1, 5))],
    ),
    "sent again before": (
        "mrp",
        [*OPENED, (0.4, True, stamped(7, 1, 1, 5)), (0.5, False, acknowledged(1, 7, 1, 5))],
    ),
    "covered": (
        "mrp",
        [
            (0, True, CONNECT_PIGGYBACK),
            (0.1, False, "4d5250020100000001000007"),
            *((0.15, False, piggyback(7, 1, number, 0, BODY)) for number in (1, 2)),
            *((0.2 * number, True, piggyback(1, 7, number, 0, BODY)) for number in (1, 2, 3)),
            (0.7, False, piggyback(7, 1, 0, 2)),
        ],
    ),
}


@pytest.fixture(scope="module")
def tables(spark: SparkSession) -> Tables:
    """The transfers and sessions of every case."""
    files = [(name, capture(sent, case, PORT_OF[of])) for case, (name, (of, sent)) in enumerate(CASES.items())]
    told = made(spark, datagrams(files), PORTS)
    cases = {row["session"]: row["file"] for row in told["packets"].toArrow().to_pylist()}
    found: Tables = {}
    for table in ("transfers", "sessions"):
        found[table] = {name: [] for name in CASES}
        for row in told[table].toArrow().to_pylist():
            found[table][cases[row["session"]]].append(row)
    return found


@pytest.mark.parametrize(
    ("case", "outcome"),
    [
        ("repaired", "repaired"),
        ("repaired at once", "repaired"),
        ("failed afterwards", "acknowledged"),
        ("closed at once", "refused"),
        ("closed before", "unacknowledged"),
    ],
)
def test_the_order_in_the_file_decides_what_came_first_at_one_instant(tables: Tables, case: str, outcome: str) -> None:
    assert [row["outcome"] for row in tables["transfers"][case]] == [outcome]


def test_an_ack_of_nothing_is_no_transfer_of_pydevts(tables: Tables) -> None:
    assert [row["message"] for row in tables["transfers"]["ack of nothing"]] == ["1"]


def test_an_ack_with_a_request_answers_one_and_asks_another(tables: Tables) -> None:
    told = {row["message"]: row for row in tables["transfers"]["asked back"]}
    assert {(number, row["kind"], row["outcome"]) for number, row in told.items()} == {
        ("5", "request", "acknowledged"),
        ("8", "request", "acknowledged"),
        ("6", "response", "unreliable"),
    }
    assert [told[number]["latency_us"] for number in ("5", "8")] == [1_000_000, 1_000_000]
    assert tables["sessions"]["asked back"][0]["rtt_samples"] == 0


def test_a_round_trip_counts_if_its_packet_was_sent_once_until_it_was_acknowledged(tables: Tables) -> None:
    (later,), (before,) = (tables["sessions"][f"sent again {when}"] for when in ("later", "before"))
    assert (later["rtt_samples"], later["rtt_p50_us"]) == (1, 300_000)
    assert (before["rtt_samples"], before["rtt_p50_us"]) == (0, None)


def test_a_cumulative_acknowledgement_covers_all_before_and_measures_one(tables: Tables) -> None:
    told = {row["message"]: row for row in tables["transfers"]["covered"] if row["from_caller"]}
    assert {number: row["latency_us"] for number, row in told.items()} == {"1": 500_000, "2": 300_000, "3": None}
    (session,) = tables["sessions"]["covered"]
    assert (session["rtt_samples"], session["rtt_p50_us"]) == (1, 300_000)
