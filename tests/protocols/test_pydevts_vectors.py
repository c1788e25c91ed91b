"""The vectors of docs/wire/vectors/pydevts.json, run against the bytes, the columns and the machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fairway.core.errors import MalformedDatagram
from fairway.core.events import Event, MessagesReceived, Peer, Receipt
from fairway.protocols.pydevts import wire
from fairway.protocols.pydevts.columns import decode_columns
from fairway.protocols.pydevts.machine import PydevtsMachine
from fairway.protocols.pydevts.options import PydevtsOptions

VECTORS = json.loads((Path(__file__).parents[2] / "docs" / "wire" / "vectors" / "pydevts.json").read_text())
STANDARD = (Path(__file__).parents[2] / "docs" / "wire" / "pydevts.md").read_text()
CLASSES = {"packet": wire.Packet, "ack": wire.Ack, "close": wire.Close}
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
        return
    fields = dict(vector["fields"])
    if "body" in fields:
        fields["body"] = bytes.fromhex(fields["body"])
    packet = wire.decode(data)
    assert packet == CLASSES[vector["kind"]](**fields)
    assert wire.encode(packet) == data
    assert wire.KINDS[table.kind[0]] == vector["kind"]
    for name in ("success", "message_id", "crc"):
        assert table.fields[name][0] == fields[name]
    assert table.body_bytes[0] == len(fields.get("body", b""))


def seen(event: Event) -> list[Vector]:
    """Gives an event as the vectors write it."""
    if isinstance(event, MessagesReceived):
        return [one for message in event for one in seen(message)]
    plain: Vector = {"event": type(event).__name__}
    for name in ("id", "token", "rtt_us", "reason"):
        if hasattr(event, name):
            plain[name] = getattr(event, name)
    if hasattr(event, "body"):
        plain["body"] = event.body.hex()
    if hasattr(event, "tokens"):
        plain["tokens"] = list(event.tokens)
    return [plain]


def apply(machine: PydevtsMachine, step: Vector) -> None:
    now_us, peer = step["at_us"], Peer(ADDRESS)
    match step:
        case {"arrives": data}:
            machine.receive(bytes.fromhex(data), ADDRESS, now_us, step.get("segment_bytes"))
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
        case {"do": {"ping": _}}:
            machine.ping(peer, now_us)
        case _:
            raise AssertionError(f"the step {step} says nothing known")


@pytest.mark.parametrize("vector", VECTORS["meaning"], ids=named)
def test_these_arrivals_oblige_the_machine_to_answer_with_exactly_these_bytes(vector: Vector) -> None:
    machine = PydevtsMachine(PydevtsOptions(**vector["options"]), Scripted(vector.get("draws", [])))
    for step in vector["steps"]:
        apply(machine, step)
        sent = [
            bytes(one).hex()
            for data in machine.transmits()
            for one in wire.split(data.data, data.segment_bytes or len(data.data))
        ]
        assert sent == step.get("expect_sends", []), step
        events = [one for event in machine.events() for one in seen(event)]
        expected = step.get("expect_events", [])
        assert [{name: one.get(name) for name in want} for one, want in zip(events, expected, strict=True)] == expected


@pytest.mark.parametrize("vector", VECTORS["layout"] + VECTORS["meaning"], ids=named)
def test_a_vector_cites_a_clause_that_stands_in_the_standard(vector: Vector) -> None:
    clause = vector["clause"]
    common = (Path(__file__).parents[2] / "docs" / "wire" / "common.md").read_text()
    assert f"**{clause}**" in (common if clause.startswith("ALL") else STANDARD)
