"""Large messages in bursts and in their final buffer: the same bytes, bounded room, nothing kept when they are gone."""

from __future__ import annotations

import pytest

from fairway.core.events import MessageReceived
from fairway.core.machine import split
from fairway.core.random_source import Seeded
from fairway.protocols.rup import assembly, wire
from fairway.protocols.rup.incoming import Incoming, cost
from fairway.protocols.rup.machine import RupMachine
from fairway.protocols.rup.options import RupOptions

ID = b"0123456789abcdef0123456789abcdef"
PART_BYTES = 1_000
SEGMENT_BYTES = PART_BYTES + wire.DATA_HEADER_BYTES
PARTS = 40
BODY = bytes((3 * index + index // 256) % 256 for index in range(PARTS * PART_BYTES - 30))


def datagrams(identity: bytes = ID) -> list[bytes]:
    starts = range(0, len(BODY), PART_BYTES)
    return [wire.part(identity, start, len(BODY), BODY[start : start + PART_BYTES]) for start in starts]


def receive(machine: RupMachine, parts: list[bytes], now_us: int = 0) -> None:
    machine.receive(b"".join(parts), "a", now_us, SEGMENT_BYTES if len(parts) > 1 else None)


def bodies(machine: RupMachine) -> list[bytes]:
    return [event.body for event in machine.events() if isinstance(event, MessageReceived)]


def incoming(machine: RupMachine) -> Incoming:
    [message] = machine._conversations["a"].incoming.values()
    return message


def test_what_is_written_in_any_order_is_the_message_and_then_nothing_can_be_written() -> None:
    placed = assembly.begin(6)
    assert placed is not None
    room = placed.view
    room[3:6] = b"def"
    room[0:3] = b"abc"
    assert placed.finish() == b"abcdef"
    with pytest.raises(ValueError, match="released"):
        room[0] = 0
    assert placed.finish() == b""


def test_a_message_gets_its_buffer_with_its_first_burst_and_counts_only_what_came() -> None:
    machine = RupMachine(RupOptions(), Seeded(1))
    parts = datagrams()
    receive(machine, parts[:1])
    assert incoming(machine).reserved_bytes == 0
    receive(machine, parts[1:11])
    assert incoming(machine).reserved_bytes == len(BODY)
    assert machine._conversations["a"].incoming_bytes == cost(11 * PART_BYTES, 11)


def test_where_the_interpreter_gives_no_room_the_parts_are_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assembly, "_interpreter", lambda: None)
    machine = RupMachine(RupOptions(), Seeded(1))
    receive(machine, datagrams())
    assert bodies(machine) == [BODY]


def test_buffers_together_stay_within_their_bound_and_the_others_are_joined() -> None:
    machine = RupMachine(RupOptions(incoming_bytes_max=2 * len(BODY) + 20_000), Seeded(1))
    identities = [b"%032x" % number for number in range(3)]
    for identity in identities:
        receive(machine, datagrams(identity)[:8])
    messages = list(machine._conversations["a"].incoming.values())
    assert [message.reserved_bytes for message in messages] == [len(BODY), len(BODY), 0]
    for identity in identities:
        receive(machine, datagrams(identity)[8:])
    assert bodies(machine) == [BODY] * 3
    assert machine._receiver.memory.reserved_bytes == 0


def test_a_buffer_is_given_up_with_its_message() -> None:
    machine = RupMachine(RupOptions(), Seeded(1))
    receive(machine, datagrams()[:20])
    message = incoming(machine)
    machine.wake(RupOptions().unfinished_us)
    assert machine._conversations["a"].incoming == {}
    assert machine._receiver.memory.reserved_bytes == 0
    assert (message._assembly, message._pieces) == (None, {})


def test_nothing_of_a_message_that_was_handed_over_is_kept_by_its_timer() -> None:
    machine = RupMachine(RupOptions(), Seeded(1))
    parts = datagrams()
    receive(machine, parts[:20])
    message = incoming(machine)
    receive(machine, parts[20:])
    assert bodies(machine) == [BODY]
    assert (message._assembly, message._pieces) == (None, {})


def test_a_burst_with_a_hole_asks_for_it_and_is_taken_as_a_whole() -> None:
    machine = RupMachine(RupOptions(), Seeded(1))
    parts = datagrams()
    receive(machine, parts[:10] + parts[11:])
    assert machine.statistics.batches == 1
    asked = [bytes(one) for transmit in machine.transmits() for one in split(transmit.data, wire.CONTROL_BYTES)]
    assert wire.control(wire.REQUEST, ID, 10 * PART_BYTES) in asked
    receive(machine, parts[10:11], 1)
    assert bodies(machine) == [BODY]


@pytest.mark.parametrize("holes", [False, True])
def test_a_burst_past_the_total_is_not_taken(holes: bool) -> None:
    machine = RupMachine(RupOptions(), Seeded(1))
    filled = [bytes([index]) * PART_BYTES for index in range(14)]
    burst = [wire.part(ID, index * PART_BYTES, 10 * PART_BYTES, body) for index, body in enumerate(filled)]
    receive(machine, burst[:3] + burst[5:8] if holes else burst[:8])
    receive(machine, burst[8:])
    assert machine.statistics.dropped == {"past_total": 4}
    receive(machine, burst[3:5] if holes else [])
    assert bodies(machine) == [b"".join(filled[:10])]
