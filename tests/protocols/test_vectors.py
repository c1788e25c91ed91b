"""The vectors of docs/wire/vectors, run against the bytes, the columns and the machine of their protocol."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import asdict
from dataclasses import fields as fields_of
from typing import Any

import numpy as np
import pytest

from fairway.core.errors import MalformedDatagram
from fairway.core.events import Connected, Event, Peer, Receipt
from fairway.core.machine import Machine
from fairway.protocols import NAMES, columns, make_machine, make_options, wire
from fairway.protocols.mrp.wire import Data
from tests.conftest import ROOT
from tests.protocols.world import datagrams, flattened

STANDARD = ROOT / "docs" / "wire"
PAGES = ("common", *NAMES)
CLAUSES = {page: re.findall(r"\*\*([A-Z]+-\d+\.\d+)\*\*", (STANDARD / f"{page}.md").read_text()) for page in PAGES}
INPUT_KEYS = {"at_us", "arrives", "from", "segment_bytes", "do", "wake"}
STEP_KEYS = INPUT_KEYS | {"expect_sends", "expect_events", "expect_dropped"}

Vector = dict[str, Any]


def read(name: str) -> Vector:
    file: Vector = json.loads((STANDARD / "vectors" / f"{name}.json").read_text())
    return file


FILES = {name: read(name) for name in NAMES}


def of(*parts: str) -> list[Any]:
    """Return each vector of these parts of all files, with its protocol."""
    return [
        pytest.param(name, vector, id=f"{name}: {vector['name']}")
        for name in NAMES
        for part in parts
        for vector in FILES[name][part]
    ]


def shown(value: Any) -> Any:
    """Return a value as a vector writes it."""
    return value.hex() if isinstance(value, bytes) else value


# Layout.


def described(packet: Any, names: Vector) -> Vector:
    """Return the named fields of a packet, which must be all that it has."""
    own = {field.name for field in fields_of(packet)}
    assert own <= set(names)
    return {name: shown(getattr(packet, name)) for name in names}


def readings(packet: Data) -> Vector:
    """Return both readings of mrp data, None where one does not exist."""
    both = {"stamped": packet.as_stamped(), "piggyback": packet.as_piggyback()}
    assert all(wire("mrp").encode(reading) == wire("mrp").encode(packet) for reading in both.values() if reading)
    return {name: reading and described(reading, asdict(reading)) for name, reading in both.items()}


def in_columns(vector: Vector) -> Vector:
    """Return the columns that a vector obliges to, where they are not 0, and its body."""
    found = dict(vector.get("fields", {}))
    if "stamped" not in found:
        return found
    stamped, piggyback = found["stamped"], found["piggyback"]
    expected: Vector = {"stamped": stamped is not None, "piggyback": piggyback is not None, **(stamped or {})}
    if piggyback is not None:
        expected |= {f"piggyback_{name}": piggyback[name] for name in ("from_conid", "dest_conid", "sequence")}
        expected |= {"from_seq": piggyback["from_seq"], "piggyback_body_bytes": len(piggyback["body"]) // 2}
        expected.setdefault("body", piggyback["body"])
    return expected


@pytest.mark.parametrize(("name", "vector"), of("layout"))
def test_the_bytes_mean_what_the_layout_vector_says(name: str, vector: Vector) -> None:
    data = bytes.fromhex(vector["hex"])
    if "reason" in vector:
        with pytest.raises(MalformedDatagram) as caught:
            wire(name).decode(data)
        assert caught.value.reason == vector["reason"]
        return
    packet = wire(name).decode(data)
    assert wire(name).encode(packet) == data
    assert re.sub(r"(?<=[a-z])(?=[A-Z])", "_", getattr(packet, "kind", type(packet).__name__)).lower() == vector["kind"]
    expected = vector["fields"]
    assert (readings(packet) if isinstance(packet, Data) else described(packet, expected)) == expected


@pytest.mark.parametrize(("name", "vector"), of("layout"))
def test_the_columns_say_what_the_layout_vector_says(name: str, vector: Vector) -> None:
    data = bytes.fromhex(vector["hex"])
    table = columns(name).decode_columns(np.frombuffer(b"!" + data, np.uint8), np.array([1]), np.array([len(data)]))
    assert table.kinds[table.kind[0]] == vector.get("kind", "malformed")
    assert table.reasons[table.reason[0]] == vector.get("reason", "")
    expected = in_columns(vector)
    body = expected.pop("body", "")
    assert set(expected) <= set(table.fields)
    for column, values in table.fields.items():
        if values.dtype.kind == "S":
            assert values[0].decode() == expected.get(column, "")
        else:
            assert values[0] == expected.get(column, 0), column
    assert table.body_bytes[0] == len(body) // 2
    if "kind" in vector:
        assert data[len(data) - table.body_bytes[0] :].hex() == body


# Meaning.


class Scripted:
    """A random source that returns what a vector says."""

    def __init__(self, draws: list[int]) -> None:
        self._draws = iter(draws)

    def bits(self, count: int) -> int:
        return self.below(1 << count)

    def below(self, bound: int) -> int:
        value = next(self._draws)
        assert value < bound
        return value


def told(event: Event, names: Vector) -> Vector:
    """Return an event as the vector writes it, as far as the vector speaks of it."""
    plain: Vector = {"event": type(event).__name__}
    for name in names:
        if name != "event":
            value = getattr(event, name)
            plain[name] = list(value) if name == "tokens" else shown(value)
    return plain


def apply(machine: Machine, step: Vector, peer: Peer) -> None:
    now_us = step["at_us"]
    match step:
        case {"arrives": data, "from": source}:
            machine.receive(bytes.fromhex(data), source, now_us, step.get("segment_bytes"))
        case {"wake": True}:
            machine.wake(now_us)
        case {"do": {"connect": address}}:
            machine.connect(address, now_us)
        case {"do": {"send": {"body": body} as details}}:
            flags, answers = details.get("flags"), details.get("answers")
            machine.send(peer, bytes.fromhex(body), now_us, flags=flags, answers=answers)
        case {"do": {"commit": {"first": first}}}:
            machine.commit(Receipt(peer, first), now_us)
        case {"do": {"ping": _}}:
            machine.ping(peer, now_us)
        case {"do": {"close": _}}:
            machine.close(peer, now_us)
        case _:
            raise AssertionError(f"the step {step} says nothing known")


@pytest.mark.parametrize(("name", "vector"), of("meaning"))
def test_these_inputs_oblige_the_machine_to_exactly_these_answers(name: str, vector: Vector) -> None:
    chosen = {option: tuple(value) if isinstance(value, list) else value for option, value in vector["options"].items()}
    machine = make_machine(name, make_options(name, **chosen), Scripted(vector["draws"]))
    peer = Peer("peer")
    for step in vector["steps"]:
        assert set(step) <= STEP_KEYS
        before = Counter(machine.statistics.dropped)
        apply(machine, step, peer)
        assert [data.hex() for data in datagrams(machine.transmits())] == step.get("expect_sends", []), step
        events = flattened(machine.events())
        peer = next((event.peer for event in events if isinstance(event, Connected)), peer)
        expected = step.get("expect_events", [])
        assert [type(event).__name__ for event in events] == [names["event"] for names in expected], step
        assert [told(event, names) for event, names in zip(events, expected, strict=True)] == expected, step
        assert machine.statistics.dropped - before == Counter(step.get("expect_dropped", {})), step


# Clauses.


@pytest.mark.parametrize("name", NAMES)
def test_every_vector_cites_a_clause_that_stands_in_the_standard(name: str) -> None:
    for vector in FILES[name]["layout"] + FILES[name]["meaning"]:
        assert vector["clause"] in CLAUSES["common"] + CLAUSES[name]


@pytest.mark.parametrize("page", PAGES)
def test_clauses_are_numbered_without_a_gap(page: str) -> None:
    chapters: dict[int, list[int]] = {}
    for clause in CLAUSES[page]:
        label, chapter, number = re.split(r"[-.]", clause)
        assert label == ("ALL" if page == "common" else page.upper())
        chapters.setdefault(int(chapter), []).append(int(number))
    assert list(chapters) == list(range(1, len(chapters) + 1))
    assert all(numbers == list(range(1, len(numbers) + 1)) for numbers in chapters.values())


@pytest.mark.parametrize("name", NAMES)
def test_a_file_of_vectors_has_both_parts_and_no_name_twice(name: str) -> None:
    file = FILES[name]
    assert set(file) == {"protocol", "layout", "meaning"}
    assert file["protocol"] == name
    for part in ("layout", "meaning"):
        names = [vector["name"] for vector in file[part]]
        assert len(names) == len(set(names)) > 10
