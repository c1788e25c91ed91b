"""The vectors of docs/wire/vectors/mrp.json, run against the bytes, the columns and the machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fairway.core.errors import MalformedDatagram
from fairway.core.events import Connected, Event, MessagesReceived, Peer, Receipt
from fairway.protocols.mrp import wire
from fairway.protocols.mrp.columns import decode_columns
from fairway.protocols.mrp.machine import MrpMachine
from fairway.protocols.mrp.options import MrpOptions

WIRE = Path(__file__).parents[2] / "docs" / "wire"
VECTORS = json.loads((WIRE / "vectors" / "mrp.json").read_text())
STANDARD = (WIRE / "mrp.md").read_text()
CLASSES = {"connect": wire.Connect, "con_reply": wire.ConReply, "ack": wire.Ack}
READINGS: dict[str, Any] = {"stamped": wire.StampedData, "piggyback": wire.PiggybackData}

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


def expected_packet(vector: Vector) -> wire.Packet:
    """Gives the packet that a layout vector describes."""
    fields = vector["fields"]
    if vector["kind"] == "data":
        return wire.Data(rest=bytes.fromhex(vector["hex"])[4:])
    if vector["kind"] == "ignore":
        return wire.Ignore(body=bytes.fromhex(fields["body"]))
    packet: wire.Packet = CLASSES[vector["kind"]](**fields)
    return packet


def expected_reading(vector: Vector, layout: str) -> object:
    """Gives one reading of a data vector, None where the vector says that it does not exist."""
    fields = vector["fields"][layout]
    return None if fields is None else READINGS[layout](**{**fields, "body": bytes.fromhex(fields["body"])})


@pytest.mark.parametrize("vector", VECTORS["layout"], ids=named)
def test_a_layout_vector_reads_as_it_says(vector: Vector) -> None:
    data = bytes.fromhex(vector["hex"])
    if "reason" in vector:
        with pytest.raises(MalformedDatagram) as caught:
            wire.decode(data)
        assert caught.value.reason == vector["reason"]
        return
    packet = wire.decode(data)
    assert packet == expected_packet(vector)
    assert wire.encode(packet) == data
    if isinstance(packet, wire.Data):
        for layout, reading in (("stamped", packet.as_stamped()), ("piggyback", packet.as_piggyback())):
            assert reading == expected_reading(vector, layout)
            assert reading is None or wire.encode(reading) == data


@pytest.mark.parametrize("vector", VECTORS["layout"], ids=named)
def test_a_layout_vector_reads_the_same_in_columns(vector: Vector) -> None:
    data = bytes.fromhex(vector["hex"])
    table = decode_columns(np.frombuffer(b"!" + data, dtype=np.uint8), np.array([1]), np.array([len(data)]))
    assert wire.REASONS[table.reason[0]] == vector.get("reason", "")
    assert wire.KINDS[table.kind[0]] == vector.get("kind", "malformed")
    fields = vector.get("fields", {})
    for name in ("ver", "stat", "fill", "cl_conid", "sv_conid"):
        assert table.fields[name][0] == fields.get(name, 0)
    stamped = fields.get("stamped") or (fields if vector.get("kind") == "ack" else {})
    for name in ("dest_conid", "from_conid", "sequence", "stamp"):
        assert table.fields[name][0] == stamped.get(name, 0)
    piggyback = fields.get("piggyback") or {}
    for name in ("from_conid", "dest_conid", "sequence"):
        assert table.fields[f"piggyback_{name}"][0] == piggyback.get(name, 0)
    assert table.fields["from_seq"][0] == piggyback.get("from_seq", 0)


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


def apply(machine: MrpMachine, step: Vector, peer: Peer) -> None:
    now_us = step["at_us"]
    match step:
        case {"arrives": data, "from": source}:
            machine.receive(bytes.fromhex(data), (source, 1), now_us, step.get("segment_bytes"))
        case {"wake": True}:
            machine.wake(now_us)
        case {"do": {"connect": address}}:
            machine.connect((address, 1), now_us)
        case {"do": {"send": {"body": body}}}:
            machine.send(peer, bytes.fromhex(body), now_us)
        case {"do": {"commit": {"first": first}}}:
            machine.commit(Receipt(peer, first), now_us)
        case {"do": {"close": _}}:
            machine.close(peer, now_us)
        case _:
            raise AssertionError(f"the step {step} says nothing known")


def sent_by(machine: MrpMachine) -> list[str]:
    """Gives what the machine sends, datagram by datagram."""
    sent: list[str] = []
    for transmit in machine.transmits():
        size = transmit.segment_bytes or len(transmit.data)
        sent += [bytes(transmit.data[place : place + size]).hex() for place in range(0, len(transmit.data), size)]
    return sent


@pytest.mark.parametrize("vector", VECTORS["meaning"], ids=named)
def test_these_arrivals_oblige_the_machine_to_answer_with_exactly_these_bytes(vector: Vector) -> None:
    options: Vector = {
        name: tuple(value) if isinstance(value, list) else value for name, value in vector["options"].items()
    }
    machine = MrpMachine(MrpOptions(**options), Scripted(vector["chance"]))
    peer = Peer(None)
    for step in vector["steps"]:
        apply(machine, step, peer)
        assert sent_by(machine) == step.get("expect_sends", []), step
        events = machine.events()
        peer = next((event.peer for event in events if isinstance(event, Connected)), peer)
        found = [one for event in events for one in seen(event)]
        wanted = step.get("expect_events", [])
        assert [one["event"] for one in found] == [one["event"] for one in wanted], step
        assert [{name: one[name] for name in want} for one, want in zip(found, wanted, strict=True)] == wanted, step


@pytest.mark.parametrize("vector", VECTORS["layout"] + VECTORS["meaning"], ids=named)
def test_a_vector_cites_a_clause_that_stands_in_the_standard(vector: Vector) -> None:
    assert f"**{vector['clause']}**" in STANDARD
