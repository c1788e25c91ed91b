"""A capture for each rule of rup, in which it is broken."""

from __future__ import annotations

from fairway.protocols.rup.wire import Confirm, Data, Request, encode
from tests.lake.violations.cases import Case, Step

ID = "0123456789abcdef" * 2
OTHER = "fedcba9876543210" * 2
TEN = bytes(range(10))


def _part(position: int, total: int = 30, body: bytes = TEN, *, start: bool | None = None, identity: str = ID) -> bytes:
    begins = position == 0 if start is None else start
    return encode(Data(start=begins, id=identity, position=position, total=total, body=body))


def _confirm(position: int, identity: str = ID) -> bytes:
    return encode(Confirm(id=identity, position=position))


def _request(position: int, identity: str = ID) -> bytes:
    return encode(Request(id=identity, position=position))


def _changed(data: bytes, place: int, value: int) -> bytes:
    return data[:place] + bytes((value,)) + data[place + 1 :]


FIRST: Step = (0.0, ">", _part(0))
SECOND: Step = (0.01, ">", _part(10))
THIRD: Step = (0.02, ">", _part(20))
WHOLE = (FIRST, SECOND, THIRD, (0.05, "<", _confirm(30)))

CASES = (
    Case("RUP-1.1", "another letter", (*WHOLE, (0.1, ">", _changed(_part(0), 0, ord("x"))))),
    Case("RUP-1.2", "a confirm of 39 bytes", (*WHOLE, (0.1, "<", _confirm(30) + b"\0"))),
    Case("RUP-1.2", "data of 41 bytes", (*WHOLE, (0.1, ">", _part(0)[:41]))),
    Case("RUP-1.3", "a digit of 255", (*WHOLE, (0.1, "<", _changed(_confirm(30), 34, 255)))),
    Case("RUP-1.4", "an id with a capital letter", (*WHOLE, (0.1, "<", _changed(_confirm(30), 5, ord("A"))))),
    Case("RUP-1.5", "start 2", (*WHOLE, (0.1, ">", _changed(_part(0), 1, 2)))),
    Case("RUP-1.6", "no zero after the id", (*WHOLE, (0.1, "<", _changed(_confirm(30), 33, 1)))),
    Case("RUP-2.1", "a part off the grid", (*WHOLE, (0.1, ">", _part(15, body=bytes(5))))),
    Case("RUP-2.2", "start 1 in the middle", (FIRST, (0.01, ">", _part(10, start=True)), *WHOLE[2:])),
    Case("RUP-2.3", "another total", (*WHOLE, (0.1, ">", _part(10, 40))), "all parts of a message have the same total"),
    Case(
        "RUP-2.3",
        "past the total",
        (*WHOLE, (0.1, ">", _part(20, body=bytes(15)))),
        "a part does not reach past the total",
    ),
    Case(
        "RUP-2.3",
        "an empty part",
        (*WHOLE, (0.1, ">", _part(10, body=b""))),
        "a part is empty only in an empty message",
    ),
    Case("RUP-2.5", "two million parts", ((0.0, ">", _part(0, 2_000_000, b"x")),)),
    Case("RUP-2.8", "a part with other bytes", (*WHOLE, (0.1, ">", _part(10, body=bytes(10))))),
    Case(
        "RUP-3.1",
        "a gap confirmed",
        (
            *WHOLE,
            (16.0, ">", _part(0, identity=OTHER)),
            (16.1, ">", _part(20, identity=OTHER)),
            (16.2, "<", _confirm(30, OTHER)),
        ),
        "everything below a confirm has arrived",
    ),
    Case(
        "RUP-3.1",
        "a gap confirmed, and filled later",
        (
            *WHOLE,
            (16.0, ">", _part(0, identity=OTHER)),
            (16.1, ">", _part(20, identity=OTHER)),
            (16.2, "<", _confirm(30, OTHER)),
            (16.5, ">", _part(10, identity=OTHER)),
            (16.6, "<", _confirm(30, OTHER)),
        ),
        "everything below a confirm has arrived",
    ),
    Case(
        "RUP-3.1",
        "confirm goes back",
        (FIRST, SECOND, (4.0, "<", _confirm(20)), (8.0, "<", _confirm(10))),
        "confirm never goes back",
    ),
    Case(
        "RUP-3.1",
        "confirm goes back of a message that has just begun",
        (FIRST, SECOND, (0.05, "<", _confirm(20)), (5.0, "<", _confirm(10))),
        "confirm never goes back",
    ),
    Case("RUP-3.7", "a confirm of an unknown id", (*WHOLE, (6.0, "<", _confirm(10, OTHER)))),
    Case(
        "RUP-3.7",
        "a confirm before the first part",
        (*WHOLE, (6.0, "<", _confirm(0, OTHER)), (7.0, ">", _part(0, 10, identity=OTHER))),
    ),
    Case("RUP-3.8", "a confirm off the grid", (*WHOLE, (0.1, "<", _confirm(15)))),
    Case("RUP-3.8", "a confirm beyond the total", (*WHOLE, (0.1, "<", _confirm(40)))),
    Case(
        "RUP-4.3",
        "a request before a later part",
        (*WHOLE, (16.0, ">", _part(0, identity=OTHER)), (16.1, "<", _request(10, OTHER))),
    ),
    Case(
        "RUP-4.3",
        "a receiver that pulls",
        (
            *WHOLE,
            (16.0, ">", _part(0, identity=OTHER)),
            (16.1, "<", _request(10, OTHER)),
            (16.2, ">", _part(10, identity=OTHER)),
            (16.3, ">", _part(20, identity=OTHER)),
            (16.4, "<", _confirm(30, OTHER)),
        ),
    ),
    Case("RUP-4.6", "a request for an unknown id", (*WHOLE, (6.0, "<", _request(10, OTHER)))),
    Case(
        "RUP-4.6",
        "a request before the first part",
        (*WHOLE, (6.0, "<", _request(0, OTHER)), (7.0, ">", _part(0, 10, identity=OTHER))),
    ),
    Case("RUP-4.7", "a request off the grid", (*WHOLE, (0.1, "<", _request(15)))),
    Case("RUP-4.7", "a request beyond the total", (*WHOLE, (0.1, "<", _request(50)))),
    Case(
        "RUP-5.9",
        "a retransmission after 25 s of silence",
        (FIRST, (0.05, "<", _confirm(0)), (25.0, *FIRST[1:])),
        "a send ends after 10 s without a request or confirm of any message",
    ),
    Case(
        "RUP-5.9",
        "a retransmission after 100 s in which known facts are repeated",
        (
            FIRST,
            SECOND,
            *((0.1 + 5 * number, ">", THIRD[2]) for number in range(20)),
            *((0.2 + 5 * number, "<", _confirm(20)) for number in range(20)),
            (99.0, *THIRD[1:]),
        ),
        "a send ends after 60 s in which nothing new was confirmed or requested of any message",
    ),
    Case(
        "ALL-6.1",
        "fourteen confirms for one small part",
        ((0.0, ">", _part(0, 1, b"x")), *((0.01 + number * 0.1, "<", _confirm(1)) for number in range(14))),
    ),
)

LEGAL: dict[str, tuple[Step, ...]] = {
    "confirm goes back after the first part came again": (
        FIRST,
        SECOND,
        (0.05, "<", _confirm(20)),
        (4.0, *FIRST[1:]),
        (5.0, "<", _confirm(10)),
    ),
    "confirm goes back after the first part came again, and was late": (
        FIRST,
        SECOND,
        (0.04, *FIRST[1:]),
        (0.05, "<", _confirm(20)),
        (5.0, "<", _confirm(10)),
    ),
    "a part is repeated 250 times while others are asked for": (
        FIRST,
        *((number * 0.05, ">", THIRD[2]) for number in range(1, 251)),
        *((number * 0.05 + 0.02, "<", _request(10)) for number in range(1, 251)),
    ),
    "a message waits for a minute while others are confirmed": (
        *((number * 1.0, ">", _part(0)) for number in range(100)),
        *((number * 1.0 + 0.1, ">", _part(0, 10, identity=f"{number:032x}")) for number in range(100)),
        *((number * 1.0 + 0.2, "<", _confirm(10, f"{number:032x}")) for number in range(100)),
    ),
    "a request is repeated every 5 ms": (
        FIRST,
        THIRD,
        *((0.03 + number * 0.005, "<", _request(10)) for number in range(4)),
        (0.06, ">", SECOND[2]),
        (0.07, "<", _confirm(30)),
    ),
}
"""Captures that break no rule."""
