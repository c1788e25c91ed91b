"""The vectors of docs/wire/vectors/rup.json, run against the bytes, the columns and the machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fairway.core.errors import MalformedDatagram
from fairway.core.events import Event, Peer, Receipt
from fairway.protocols.rup import wire
from fairway.protocols.rup.columns import decode_columns
from fairway.protocols.rup.machine import RupMachine
from fairway.protocols.rup.options import RupOptions

PLACE = Path(__file__).parents[2] / "docs" / "wire"
VECTORS = json.loads((PLACE / "vectors" / "rup.json").read_text())
STANDARD = (PLACE / "rup.md").read_text() + (PLACE / "common.md").read_text()
CLASSES = {"data": wire.Data, "request": wire.Request, "confirm": wire.Confirm}
ADDRESS = ("peer", 1)

Vector = dict[str, Any]


def named(vector: Vector) -> str:
    return str(vector["name"])


class Scripted:
    """A chance that gives the values of a list."""

    def __init__(self, values: list[int]) -> None:
        self._values = iter(values)

    def bits(self, count: int) -> int:
        return next(self._values)

    def below(self, bound: int) -> int:
        return next(self._values)


@pytest.mark.parametrize("vector", VECTORS["layout"], ids=named)
def test_a_layout_vector_reads_the_same_alone_and_in_columns(vector: Vector) -> None:
    data = bytes.fromhex(vector["hex"])
    table = decode_columns(np.frombuffer(data, dtype=np.uint8), np.array([0]), np.array([len(data)]))
    if "reason" in vector:
        with pytest.raises(MalformedDatagram) as caught:
            wire.decode(data)
        assert caught.value.reason == vector["reason"] == wire.REASONS[table.reason[0]]
        assert wire.KINDS[table.kind[0]] == "malformed"
        return
    fields = dict(vector["fields"])
    if "body" in fields:
        fields["body"] = bytes.fromhex(fields["body"])
    packet = wire.decode(data)
    assert packet == CLASSES[vector["kind"]](**fields)
    assert wire.encode(packet) == data
    assert wire.KINDS[table.kind[0]] == vector["kind"]
    assert table.fields["id"][0].decode() == fields["id"]
    for name in ("start", "position", "total"):
        assert table.fields[name][0] == fields.get(name, 0)
    assert table.body_bytes[0] == len(fields.get("body", b""))


def seen(event: Event) -> Vector:
    """Gives an event as the vectors write it."""
    plain: Vector = {"event": type(event).__name__}
    for name in ("id", "token", "reason"):
        if hasattr(event, name):
            plain[name] = getattr(event, name)
    if hasattr(event, "body"):
        plain["body"] = event.body.hex()
    if hasattr(event, "tokens"):
        plain["tokens"] = list(event.tokens)
    return plain


def apply(machine: RupMachine, step: Vector) -> None:
    now_us, peer = step["at_us"], Peer(ADDRESS)
    match step:
        case {"arrives": data}:
            machine.receive(bytes.fromhex(data), ADDRESS, now_us)
        case {"wake": True}:
            machine.wake(now_us)
        case {"do": {"connect": _}}:
            machine.connect(ADDRESS, now_us)
        case {"do": {"send": {"body": body}}}:
            machine.send(peer, bytes.fromhex(body), now_us)
        case {"do": {"commit": {"first": first}}}:
            machine.commit(Receipt(peer, first), now_us)
        case {"do": {"close": _}}:
            machine.close(peer, now_us)
        case _:
            raise AssertionError(f"the step {step} says nothing known")


@pytest.mark.parametrize("vector", VECTORS["meaning"], ids=named)
def test_these_arrivals_oblige_the_machine_to_answer_with_exactly_these_bytes(vector: Vector) -> None:
    machine = RupMachine(RupOptions(**vector["options"]), Scripted(vector["draws"]))
    for step in vector["steps"]:
        dropped = machine.statistics.dropped.copy()
        apply(machine, step)
        sent = [
            bytes(datagram).hex()
            for transmit in machine.transmits()
            for datagram in wire.split(transmit.data, transmit.segment_bytes or len(transmit.data))
        ]
        assert sent == step.get("expect_sends", []), step
        events = [seen(event) for event in machine.events()]
        expected = step.get("expect_events", [])
        assert [{name: one.get(name) for name in want} for one, want in zip(events, expected, strict=True)] == expected
        reason = step.get("expect_dropped")
        assert dict(machine.statistics.dropped - dropped) == ({reason: 1} if reason else {}), step


@pytest.mark.parametrize("vector", VECTORS["layout"] + VECTORS["meaning"], ids=named)
def test_a_vector_cites_a_clause_that_stands_in_the_standard(vector: Vector) -> None:
    assert f"**{vector['clause']}**" in STANDARD
