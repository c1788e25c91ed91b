"""Sessions, directions, numbers and layouts of captures that are built by hand, all in one job."""

from __future__ import annotations

import io
from typing import Any

import pytest

from fairway.capture.pcapng import PcapngWriter
from fairway.protocols.udpc.wire import ACK, IMP, REQ
from tests.lake.analysis.tables import packets_table
from tests.lake.captures.reading import datagrams

CALLER, CALLEE = "10.9.0.1", "10.9.0.2"
MRP, UDPC = 8_192, 9_000
S_NS = 1_000_000_000
EPOCH_NS = 1_700_000_000 * S_NS

Sent = tuple[float, bool, str]
"""When, whether the caller sent it, and its bytes in hexadecimal digits."""
Rows = dict[str, list[dict[str, Any]]]


def stamped(destination: int, origin: int, sequence: int, stamp: int, body: str = "6869") -> str:
    return f"4d525003{destination:06x}{origin:06x}{sequence:04x}{stamp:04x}{body}"


def acknowledged(destination: int, origin: int, sequence: int, stamp: int) -> str:
    return f"4d525004{destination:06x}{origin:06x}{sequence:04x}{stamp:04x}"


def piggyback(origin: int, destination: int, sequence: int, from_sequence: int, body: str = "") -> str:
    return f"4d525003{origin:04x}{destination:04x}{sequence:04x}{from_sequence:04x}{body}"


def udpc(index: int, ack: int, flag: int, body: str = "") -> str:
    return f"{index:08x}0a0b0c0d{ack:08x}{flag:02x}{body}"


CONNECT, ACCEPT = "4d52500100000001", "4d5250020100000001000007"
CONNECT_PIGGYBACK = "4d52500101000001"
OPENED: list[Sent] = [(0, True, CONNECT), (0.1, False, ACCEPT), (0.2, True, stamped(7, 1, 1, 5))]
COPIES: list[Sent] = [
    *OPENED,
    *((0.3 + 0.01 * number, True, stamped(7, 1, 1 + number // 2, number)) for number in range(8)),
]
WRAP = (65_534, 65_535, 0, 1)

CASES: dict[str, tuple[list[Sent], ...]] = {
    "repeated": (
        [
            (0, True, CONNECT),
            (0.1, True, CONNECT),
            (0.2, False, ACCEPT),
            (0.3, True, stamped(7, 1, 1, 5)),
            (0.4, False, acknowledged(1, 7, 1, 5)),
            (0.5, True, stamped(7, 1, 1, 9)),
        ],
    ),
    "again": ([*OPENED, *((at_s + 400, from_caller, text) for at_s, from_caller, text in OPENED)],),
    "together": (COPIES,),
    "apart": (COPIES[5:], COPIES[:5]),
    "wrap": (
        [
            *((0.1 * index, True, stamped(7, 1, number, index)) for index, number in enumerate(WRAP)),
            *((0.05 + 0.1 * index, False, acknowledged(1, 7, number, index)) for index, number in enumerate(WRAP)),
        ],
    ),
    "late": ([(index, True, stamped(7, 1, number, 1)) for index, number in enumerate((65_535, 0, 65_535, 1))],),
    "version": (
        [
            (0, True, CONNECT_PIGGYBACK),
            (0.1, False, ACCEPT),
            (0.2, True, piggyback(1, 7, 1, 0, "68656c6c6f")),
            (0.3, False, piggyback(7, 1, 0, 1)),
            (0.4, True, piggyback(1, 7, 1, 0, "68656c6c6f")),
        ],
    ),
    "one way": ([(number, True, piggyback(300, 700, number + 1, 0, "0102030405")) for number in range(5)],),
    "answered": ([(0, True, piggyback(300, 700, 1, 0, "0102030405")), (1, False, piggyback(700, 300, 0, 1))],),
    "stamps": ([(number, True, stamped(700, 300, number + 1, number)) for number in range(5)],),
    "both": (
        [
            *OPENED,
            (0.3, True, "4d52500101000002"),
            (0.4, False, "4d5250020100000002000008"),
            (0.5, True, piggyback(2, 8, 1, 0, "0102030405")),
        ],
    ),
    "answer first": ([(0, False, acknowledged(1, 7, 3, 5)), (0.1, True, stamped(7, 1, 4, 6))],),
    "response first": ([(0, False, udpc(3, 9, ACK, "6f6b")), (0.1, True, udpc(10, 0, IMP, "6869"))],),
    "ack+req first": ([(0, False, udpc(3, 9, ACK | REQ, "3f")), (0.1, True, udpc(10, 3, ACK, "21"))],),
    "handshake's end first": ([(0, True, udpc(2, 1, ACK)), (0.1, False, udpc(2, 0, IMP, "6869"))],),
    "malformed": ([(0, True, CONNECT), (0.1, True, "4d525003"), (0.2, True, "4d52500099")],),
    "udpc": (
        [
            (0, True, "00000064000000050000000008"),
            (0.1, False, "000000010a0b0c0d0000006409"),
            (0.2, True, "000000660a0b0c0d00000000106869"),
            (0.3, False, "000000020a0b0c0d0000006611"),
            (0.4, True, "00000099000000060000000008"),
        ],
    ),
}


def capture(sent: list[Sent], case: int, callee_port: int) -> bytes:
    """Return the capture of datagrams between the two of a case, at one point."""
    file = io.BytesIO()
    writer = PcapngWriter(file.write, ("middle",))
    caller, callee = (CALLER, 4_000 + case), (CALLEE, callee_port)
    for at_s, from_caller, text in sorted(sent, key=lambda row: row[0]):
        source, destination = (caller, callee) if from_caller else (callee, caller)
        writer.datagram(EPOCH_NS + round(at_s * S_NS), source, destination, bytes.fromhex(text))
    return file.getvalue()


@pytest.fixture(scope="module")
def rows() -> Rows:
    """The packets of every case, in the order of time."""
    files = []
    for case, (name, captures) in enumerate(CASES.items()):
        port = UDPC if name in ("udpc", "response first", "ack+req first", "handshake's end first") else MRP
        files += [(f"{name} {number}", capture(sent, case, port)) for number, sent in enumerate(captures)]
    seen = packets_table(datagrams(files), {MRP: "mrp", UDPC: "udpc"})
    found: Rows = {name: [] for name in CASES}
    for row in sorted(seen.to_pylist(), key=lambda row: (row["at_ns"], row["file"], row["offset"])):
        found[row["file"].rpartition(" ")[0]].append(row)
    return found


def test_a_connect_its_reply_and_their_data_are_one_session(rows: Rows) -> None:
    seen = rows["repeated"]
    assert len({row["session"] for row in seen}) == 1
    assert [row["from_caller"] for row in seen] == [True, True, False, True, False, True]
    assert [row["retransmission"] for row in seen] == [0, 1, 0, 0, None, 1]
    assert [row["message"] for row in seen] == [None, None, None, "1", "1", "1"]
    assert [row["duplicate"] for row in seen] == [False, False, False, False, None, True]
    assert {row["mrp_layout"] for row in seen[3:]} == {"stamped"}


def test_ids_that_are_used_again_after_a_silence_are_another_session(rows: Rows) -> None:
    seen = rows["again"]
    assert len({row["session"] for row in seen[:3]}) == len({row["session"] for row in seen[3:]}) == 1
    assert seen[0]["session"] != seen[3]["session"]
    assert [row["message"] for row in seen] == [None, None, "1"] * 2
    assert seen[5]["retransmission"] == 0


def test_the_order_and_the_number_of_files_do_not_matter(rows: Rows) -> None:
    names = ("at_ns", "from_caller", "message", "retransmission", "duplicate", "mrp_layout")
    together, apart = ([[row[name] for name in names] for row in rows[case]] for case in ("together", "apart"))
    assert apart == together
    assert len({row["session"] for row in rows["apart"]}) == 1


def test_numbers_go_on_after_the_wrap_and_acknowledgements_follow(rows: Rows) -> None:
    for kind in ("data", "ack"):
        messages = [row["message"] for row in rows["wrap"] if row["kind"] == kind]
        assert messages == ["65534", "65535", "65536", "65537"]


def test_a_late_copy_from_before_the_wrap_keeps_its_number(rows: Rows) -> None:
    assert [row["message"] for row in rows["late"]] == ["65535", "65536", "65535", "65537"]
    assert [row["retransmission"] for row in rows["late"]] == [0, 0, 1, 0]


def test_the_version_of_the_connect_decides_the_layout(rows: Rows) -> None:
    seen = rows["version"]
    assert [row["mrp_layout"] for row in seen] == [None, None, "piggyback", "piggyback", "piggyback"]
    assert (seen[2]["body_bytes"], seen[2]["mrp_stamp"]) == (5, None)
    assert [row["message"] for row in seen[2:]] == ["1", "1", "1"]
    assert [row["duplicate"] for row in seen[2:]] == [False, None, True]
    assert len({row["session"] for row in seen}) == 1


def test_a_flow_may_have_connections_of_both_layouts(rows: Rows) -> None:
    assert [row["mrp_layout"] for row in rows["both"] if row["kind"] == "data"] == ["stamped", "piggyback"]
    assert len({row["session"] for row in rows["both"]}) == 2


@pytest.mark.parametrize(
    ("case", "layout"), [("one way", "piggyback"), ("answered", "piggyback"), ("stamps", "stamped")]
)
def test_without_a_connect_the_reading_that_is_consistent_is_taken(rows: Rows, case: str, layout: str) -> None:
    assert {row["mrp_layout"] for row in rows[case]} == {layout}
    assert len({row["session"] for row in rows[case]}) == 1


@pytest.mark.parametrize("case", ["answer first", "response first", "ack+req first"])
def test_whoever_an_answer_goes_to_is_the_caller(rows: Rows, case: str) -> None:
    assert [row["from_caller"] for row in rows[case]] == [False, True]


def test_whoever_ends_the_handshake_is_the_caller(rows: Rows) -> None:
    assert [row["from_caller"] for row in rows["handshake's end first"]] == [True, False]


def test_a_packet_says_what_it_acknowledges_and_when_that_was_sent(rows: Rows) -> None:
    seen = rows["repeated"]
    assert [row["acknowledges"] for row in seen] == [None, None, None, None, "1", None]
    assert [row["acknowledged_sent_ns"] for row in seen] == [None] * 4 + [seen[3]["at_ns"], None]
    covering = rows["version"][3]
    assert (covering["acknowledges"], covering["acknowledged_sent_ns"]) == ("1", rows["version"][2]["at_ns"])
    asked = rows["ack+req first"]
    assert [row["acknowledges"] for row in asked] == ["9", "3"]
    assert [row["acknowledged_sent_ns"] for row in asked] == [None, asked[0]["at_ns"]]


def test_a_gap_is_what_lies_between_a_number_and_the_highest_before() -> None:
    numbers = [udpc(number, 0, IMP, "6869") for number in (1, 2, 5, 4, 6, 100_000)]
    capture_ = capture([(0.1 * at, True, text) for at, text in enumerate(numbers)], 90, UDPC)
    seen = packets_table(datagrams([("gaps", capture_)]), {UDPC: "udpc"}).sort_by("at_ns")
    assert seen["gap"].to_pylist() == [None, 0, 2, -2, 0, 0]
    assert seen["position"].to_pylist() == [1, 2, 3, 4, 5, 6]


def test_a_syn_belongs_to_the_session_that_its_answer_names(rows: Rows) -> None:
    seen = rows["udpc"]
    assert len({row["session"] for row in seen[:4]}) == 1
    assert seen[4]["session"] not in {seen[0]["session"], None}
    assert [row["message"] for row in seen] == [None, None, "102", "102", None]


def test_what_is_malformed_or_ignored_is_in_no_session(rows: Rows) -> None:
    seen = rows["malformed"]
    assert [row["kind"] for row in seen] == ["connect", "malformed", "ignore"]
    assert seen[0]["session"] is not None
    assert all(row[name] is None for row in seen[1:] for name in ("session", "from_caller", "retransmission"))
