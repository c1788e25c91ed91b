"""Half a million hostile datagrams, and machines that are broken on purpose: the fuzz run must notice each."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from benchmarks.footprint import footprint
from fairway.core.events import Event, MessageReceived, MessagesReceived
from fairway.core.machine import Machine, Options, Transmit
from fairway.core.random_source import RandomSource
from fairway.protocols import NAMES, make_machine
from tests.fuzz import fuzzing as bench
from tests.fuzz.secured import fuzz_dtls

EACH = 125_000


@pytest.mark.parametrize("protocol", NAMES)
def test_hostile_datagrams_neither_break_nor_fill_a_machine_nor_disturb_the_healthy(protocol: str) -> None:
    result = bench.fuzz(protocol, EACH)
    assert result.failures == []
    assert result.datagrams >= EACH
    assert result.messages_healthy >= 50
    assert result.conversations_insider > bench.INSIDERS
    assert len(result.dropped) >= 6
    assert sum(result.dropped.values()) > EACH // 4


def test_hostile_datagrams_neither_break_the_dtls_layer_nor_disturb_the_healthy() -> None:
    result = fuzz_dtls(EACH)
    assert result.failures == []
    assert result.messages_healthy >= 200
    assert result.conversations_insider > 20
    assert len(result.dropped) >= 10


def test_a_run_is_a_function_of_its_seed() -> None:
    first, again, other = (bench.fuzz("mrp", 10_000, seed) for seed in (5, 5, 6))
    assert first.dropped == again.dropped
    assert first.dropped != other.dropped


class Flawed:
    """The machine under test with one flaw; everything else passes through."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    def __getattr__(self, name: str) -> object:
        return getattr(self.machine, name)


class Raises(Flawed):
    def receive(self, data: bytes, address: object, now_us: int, segment_bytes: int | None = None) -> None:
        if len(data) == 77:
            raise IndexError("a datagram of 77 bytes")
        self.machine.receive(data, address, now_us, segment_bytes)


class DeliversTwice(Flawed):
    def events(self) -> list[Event]:
        events = self.machine.events()
        return events + [event for event in events if isinstance(event, MessageReceived | MessagesReceived)]


class Grows(Flawed):
    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self.seen: dict[int, object] = {}

    def receive(self, data: bytes, address: object, now_us: int, segment_bytes: int | None = None) -> None:
        for index in range(40):
            self.seen[len(self.seen) + index] = address
        self.machine.receive(data, address, now_us, segment_bytes)


class Amplifies(Flawed):
    def transmits(self) -> list[Transmit]:
        transmits = self.machine.transmits()
        return transmits + [transmit for transmit in transmits if transmit.address[0] == "stranger"] * 20  # type: ignore[index]


class Loses(Flawed):
    def events(self) -> list[Event]:
        return [
            event
            for event in self.machine.events()
            if not isinstance(event, MessageReceived) or b"says 5" not in event.body
        ]


@pytest.mark.parametrize(
    ("flaw", "words"),
    [
        (Raises, "a datagram of 77 bytes"),
        (DeliversTwice, "came in excess"),
        (Grows, "exceed the ceiling"),
        (Amplifies, "bytes for"),
        (Loses, "did not arrive"),
    ],
)
def test_a_flawed_machine_is_found_out(
    flaw: Callable[[Machine], Machine], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make(name: str, options: Options, random: RandomSource) -> Machine:
        machine = make_machine(name, options, random)
        return flaw(machine) if options.peers_max == bench.BOUNDS["peers_max"] else machine

    monkeypatch.setattr(bench, "make_machine", make)
    result = bench.fuzz("udpc", 30_000)
    assert any(words in failure for failure in result.failures), result.failures
    assert "--protocol udpc --seed 1 --datagrams 30000" in result.replay(30_000)


def test_a_footprint_counts_what_hangs_on_attributes_and_in_containers() -> None:
    class Slotted:
        __slots__ = ("table", "word")

        def __init__(self) -> None:
            self.table = {1: [b"abc", b"de"], 2: (bytearray(10),)}
            self.word = "not counted"

    measured = footprint(Slotted())
    assert (measured.entries, measured.buffered_bytes) == (4, 15)
