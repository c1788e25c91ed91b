"""The vectors of docs/wire/vectors/udpc.json: what bytes mean, and what must follow what arrives."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fairway.core.errors import MalformedDatagram
from fairway.core.events import Event, Peer, Receipt
from fairway.protocols.udpc import columns, wire
from fairway.protocols.udpc.machine import UdpcMachine
from fairway.protocols.udpc.options import UdpcOptions
from tests.protocols.test_udpc_world import datagrams, flattened

DOCS = Path(__file__).parent.parent.parent / "docs" / "wire"
VECTORS = json.loads((DOCS / "vectors" / "udpc.json").read_text())
CLAUSES = re.findall(r"\*\*(UDPC-\d+\.\d+)\*\*", (DOCS / "udpc.md").read_text())

Vector = dict[str, Any]


def named(vector: Vector) -> str:
    return str(vector["name"])


class Scripted:
    """A source of chance that gives what a vector says; an identifier is one more than what is drawn."""

    def __init__(self, draws: list[int]) -> None:
        self._draws = list(draws)

    def bits(self, count: int) -> int:
        return self.below(1 << count)

    def below(self, bound: int) -> int:
        value = self._draws.pop(0)
        assert value < bound
        return value


class Stage:
    """A machine that plays a vector."""

    def __init__(self, vector: Vector) -> None:
        self.machine = UdpcMachine(UdpcOptions(**vector["options"]), Scripted(vector["draws"]))
        self.peer: Peer | None = None

    def play(self, step: Vector) -> None:
        before = Counter(self.machine.statistics.dropped)
        self._act(step)
        events = flattened(self.machine.events())
        self.peer = next((event.peer for event in reversed(events) if hasattr(event, "peer")), self.peer)
        assert [data.hex() for data in datagrams(self.machine.transmits())] == step.get("expect_sends", [])
        expected = step.get("expect_events", [])
        assert [seen(event, names) for event, names in zip(events, expected, strict=False)] == expected
        assert len(events) == len(expected), events
        assert self.machine.statistics.dropped - before == Counter(step.get("expect_dropped", {}))

    def _act(self, step: Vector) -> None:
        now_us = step["at_us"]
        if "arrives" in step:
            self.machine.receive(bytes.fromhex(step["arrives"]), step["from"], now_us)
        elif "wake" in step:
            self.machine.wake(now_us)
        else:
            ((verb, details),) = step["do"].items()
            if verb == "connect":
                self.machine.connect(details, now_us)
                return
            assert self.peer is not None
            if verb == "send":
                body = bytes.fromhex(details["body"])
                flags, answers = details.get("flags"), details.get("answers")
                self.machine.send(self.peer, body, now_us, flags=flags, answers=answers)
            elif verb == "commit":
                self.machine.commit(Receipt(self.peer, details["id"]), now_us)
            elif verb == "ping":
                self.machine.ping(self.peer, now_us)
            else:
                self.machine.close(self.peer, now_us)


def seen(event: Event, names: Vector) -> Vector:
    """Gives an event as the vector writes it, as far as the vector speaks of it."""
    told: Vector = {"event": type(event).__name__}
    for name in names:
        if name != "event":
            value = getattr(event, name)
            told[name] = value.hex() if isinstance(value, bytes) else list(value) if name == "tokens" else value
    return told


@pytest.mark.parametrize("vector", VECTORS["layout"], ids=named)
def test_the_bytes_mean_what_the_layout_vector_says(vector: Vector) -> None:
    data = bytes.fromhex(vector["hex"])
    decoded = columns.decode_columns(
        np.frombuffer(data, dtype=np.uint8), np.zeros(1, dtype=np.int64), np.array([len(data)], dtype=np.int64)
    )
    assert decoded.kinds[decoded.kind[0]] == vector.get("kind", "malformed")
    assert decoded.reasons[decoded.reason[0]] == vector.get("reason", "")
    if "reason" in vector:
        with pytest.raises(MalformedDatagram, match=vector["reason"]):
            wire.decode(data)
        return
    packet = wire.decode(data)
    assert wire.encode(packet) == data
    for name, value in vector["fields"].items():
        found = getattr(packet, name)
        assert (found.hex() if isinstance(found, bytes) else found) == value
        if name != "body":
            assert int(decoded.fields[name][0]) == value
    assert data[decoded.body_offset[0] :].hex() == vector["fields"].get("body", "")


@pytest.mark.parametrize("vector", VECTORS["meaning"], ids=named)
def test_the_machine_answers_as_the_meaning_vector_says(vector: Vector) -> None:
    stage = Stage(vector)
    for step in vector["steps"]:
        stage.play(step)


@pytest.mark.parametrize("vector", VECTORS["layout"] + VECTORS["meaning"], ids=named)
def test_every_vector_names_a_clause_of_the_standard(vector: Vector) -> None:
    assert vector["clause"] in CLAUSES


def test_clauses_are_numbered_without_a_gap() -> None:
    chapters: dict[int, list[int]] = {}
    for clause in CLAUSES:
        chapter, number = map(int, clause.removeprefix("UDPC-").split("."))
        chapters.setdefault(chapter, []).append(number)
    assert list(chapters) == list(range(1, len(chapters) + 1))
    assert all(numbers == list(range(1, len(numbers) + 1)) for numbers in chapters.values())
