"""What a packet repeats, what it acknowledges, and whether it came though an earlier one had arrived."""

from __future__ import annotations

from typing import Any

from fairway.protocols.mrp import wire as mrp
from fairway.protocols.pydevts import wire as pydevts
from fairway.protocols.rup import wire as rup
from fairway.protocols.udpc import wire as udpc
from tests.lake.analysis.tables import packets_table
from tests.lake.captures.reading import datagrams
from tests.lake.violations.cases import EPOCH_NS, Case, Step

PORTS = {9_000: "udpc", 9_001: "mrp", 9_002: "rup", 9_003: "pydevts"}
SESSION = 5
ID = "0123456789abcdef" * 2


def seen(port: int, *steps: Step) -> list[dict[str, Any]]:
    """The rows of `packets`, in the order of time."""
    capture = Case("", "", steps).capture(1, port)
    rows: list[dict[str, Any]] = packets_table(datagrams([("capture", capture)]), PORTS).to_pylist()
    return sorted(rows, key=lambda row: (row["at_ns"], row["offset"]))


def at_s(rows: list[dict[str, Any]], column: str) -> list[float | None]:
    return [None if row[column] is None else (row[column] - EPOCH_NS) / 1e9 for row in rows]


def request(index: int) -> bytes:
    return udpc.datagram(index, SESSION, 0, udpc.REQ, b"ask")


def response(index: int, ack: int) -> bytes:
    return udpc.datagram(index, SESSION, ack, udpc.ACK, b"told")


def counter(index: int, ack: int) -> bytes:
    return udpc.datagram(index, SESSION, ack, udpc.ACK | udpc.REQ, b"why")


def test_a_request_sent_again_after_its_response_is_a_duplicate() -> None:
    rows = seen(9_000, (0, ">", request(9)), (1, ">", request(9)), (2, "<", response(3, 9)), (3, ">", request(9)))
    assert [row["duplicate"] for row in rows] == [False, False, False, True]


def test_a_request_sent_again_after_a_request_that_answers_it_is_a_duplicate_and_so_is_that_one() -> None:
    rows = seen(
        9_000,
        (0, ">", request(9)),
        (1, "<", counter(3, 9)),
        (2, ">", request(9)),
        (3, "<", counter(3, 9)),
        (4, ">", response(10, 3)),
        (5, "<", counter(3, 9)),
    )
    assert [row["duplicate"] for row in rows] == [False, False, True, False, False, True]


def test_an_empty_rup_message_sent_again_after_confirm_0_is_a_duplicate() -> None:
    empty = rup.encode(rup.Data(start=True, id=ID, position=0, total=0, body=b""))
    confirm = rup.encode(rup.Confirm(id=ID, position=0))
    rows = seen(9_002, (0, ">", empty), (1, ">", empty), (2, "<", confirm), (3, ">", empty))
    assert [row["duplicate"] for row in rows] == [False, False, None, True]


def test_a_first_part_sent_again_after_confirm_0_is_no_duplicate() -> None:
    part = rup.encode(rup.Data(start=True, id=ID, position=0, total=20, body=b"0123456789"))
    confirm = rup.encode(rup.Confirm(id=ID, position=0))
    rows = seen(9_002, (0, ">", part), (1, "<", confirm), (2, ">", part))
    assert [row["duplicate"] for row in rows] == [False, None, False]


def test_a_packet_names_the_first_under_its_number_and_in_what_it_differs() -> None:
    other = udpc.datagram(9, SESSION, 0, 0, b"other")
    rows = seen(9_000, (0, ">", request(9)), (1, ">", request(9)), (2, ">", other), (3, "<", response(9, 9)))
    assert at_s(rows, "first_at_ns") == [0, 0, 0, 3]
    assert [row["differs"] for row in rows] == [None, None, "kind size", None]
    assert [row["acknowledges_kind"] for row in rows] == [None, None, None, "request"]
    assert at_s(rows, "acknowledges_at_ns") == [None, None, None, 0]


def test_an_mrp_ack_names_the_message_and_the_transmission_of_its_stamp() -> None:
    def data(stamp: int) -> bytes:
        return mrp.encode(mrp.StampedData(dest_conid=7, from_conid=1, sequence=1, stamp=stamp, body=b"hi"))

    def ack(sequence: int, stamp: int) -> bytes:
        return mrp.encode(mrp.Ack(dest_conid=1, from_conid=7, sequence=sequence, stamp=stamp))

    rows = seen(
        9_001, (0, ">", data(10)), (1, ">", data(20)), (2, "<", ack(1, 20)), (3, "<", ack(1, 9)), (4, "<", ack(2, 9))
    )
    assert at_s(rows, "first_at_ns") == [0, 0, 2, 2, 4]
    assert at_s(rows, "acknowledges_at_ns") == [None, None, 0, 0, None]
    assert at_s(rows, "echoes_at_ns") == [None, None, 1, None, None]


def test_a_pydevts_close_names_the_ack_that_it_answers() -> None:
    packet = pydevts.encode(pydevts.Packet(success=0, message_id=4, crc=6, body=b""))
    ack = pydevts.encode(pydevts.Ack(success=0, message_id=4, crc=6))
    close = pydevts.encode(pydevts.Close(success=0, message_id=4, crc=6))
    rows = seen(9_003, (0, ">", packet), (1, "<", ack), (2, ">", close))
    assert [row["acknowledges_kind"] for row in rows] == [None, "packet", "ack"]
    assert at_s(rows, "acknowledges_at_ns") == [None, 0, 1]
    assert at_s(rows, "echoes_at_ns") == [None, 0, 0]


def test_an_ack_has_the_layout_of_its_connection_whatever_is_asked_for_later() -> None:
    def connect(ver: int) -> bytes:
        return mrp.encode(mrp.Connect(ver=ver, cl_conid=1))

    reply = mrp.encode(mrp.ConReply(stat=mrp.ACCEPT, cl_conid=1, sv_conid=7))
    ack = mrp.encode(mrp.Ack(dest_conid=1, from_conid=7, sequence=1, stamp=5))
    data = mrp.encode(mrp.StampedData(dest_conid=7, from_conid=1, sequence=1, stamp=5, body=b"hi"))
    piggyback = seen(9_001, (0, ">", connect(1)), (1, "<", reply), (2, "<", ack))
    stamped = seen(9_001, (0, ">", connect(0)), (1, "<", reply), (2, ">", data), (3, ">", connect(1)), (4, "<", ack))
    assert (piggyback[-1]["mrp_layout"], stamped[-1]["mrp_layout"]) == ("piggyback", "stamped")
