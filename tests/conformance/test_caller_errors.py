"""The caller's own mistakes raise at once, in one sentence that names the rule, and send nothing."""

from __future__ import annotations

from typing import Any

import pytest

from fairway.core.errors import BadMessage, BadOption, CallerError
from fairway.core.random_source import Seeded
from fairway.protocols import make_machine, make_options, options_class

from .variants import LATER, MRP_PIGGYBACK, RUP, SERVER, Case, Pair, over


def assert_one_sentence(error: BaseException) -> None:
    """Checks that the text is one plain sentence."""
    text = str(error)
    assert len(text.split()) >= 4
    assert "\n" not in text
    assert "Traceback" not in text
    assert ". " not in text


def assert_refused(pair: Pair, body: bytes, kind: type[CallerError], flags: int | None = None) -> str:
    """Checks that sending raises and changes nothing."""
    sent, unfinished, room = pair.pump.sent, pair.client.machine.unfinished(), pair.client.machine.room(pair.peer)
    with pytest.raises(kind) as caught:
        pair.pump.send(pair.client, pair.peer, body, flags=flags)
    assert_one_sentence(caught.value)
    pair.pump.settle(pair.client)
    assert (pair.pump.sent, pair.client.machine.unfinished()) == (sent, unfinished)
    assert pair.client.machine.room(pair.peer) == room
    return str(caught.value)


@over(where=lambda variant: variant.body_bytes_max is not None, dtls=LATER)
def test_one_message_that_is_too_large_refuses_the_whole_list(case: Case) -> None:
    pair = case.pair()
    largest = case.variant.body_bytes_max
    assert largest is not None
    with pytest.raises(BadMessage) as caught:
        pair.client.machine.send_many(pair.peer, [b"good", bytes(largest + 1)], pair.pump.now_us)
    assert_one_sentence(caught.value)
    assert pair.client.machine.unfinished() == 0
    pair.pump.run(1_000_000)
    assert pair.server.bodies == []


@over(RUP, dtls=LATER)
def test_a_message_of_more_than_a_mebi_of_parts_is_refused(case: Case) -> None:
    pair = case.pair(client={"datagram_bytes_max": 64})
    assert_refused(pair, bytes((1 << 20) * 22 + 1), BadMessage)


@over(MRP_PIGGYBACK, dtls=LATER)
def test_the_piggyback_layout_carries_no_empty_message_in_a_list(case: Case) -> None:
    pair = case.pair()
    with pytest.raises(BadMessage):
        pair.client.machine.send_many(pair.peer, [b"good", b""], pair.pump.now_us)
    assert pair.client.machine.unfinished() == 0


@over()
@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("controller", "fast"),
        ("window", 0),
        ("window", -5),
        ("datagram_bytes_max", 10),
        ("datagram_bytes_max", 70_000),
        ("send_queue_messages_max", 0),
        ("open_receipts_max", -1),
        ("peers_max", 0),
    ],
)
def test_an_option_out_of_its_range_is_refused_and_named(case: Case, option: str, value: object) -> None:
    with pytest.raises(BadOption) as caught:
        case.machine(1, **{option: value})
    assert_one_sentence(caught.value)
    assert option in str(caught.value)


@over()
def test_an_unknown_option_is_refused_and_named(case: Case) -> None:
    with pytest.raises(BadOption) as caught:
        case.machine(1, colour="blue")
    assert_one_sentence(caught.value)
    assert "colour" in str(caught.value)


OWN: dict[str, dict[str, Any]] = {
    "udpc": {"window": 70_000, "keepalive_us": 0, "first_index": 1 << 32, "index_run_max": 65_536},
    "mrp": {"layout": "sideways", "accepts": ("stamped", "sideways"), "window": 32_768, "starts_max": 32_769}
    | {"rto_us_min": 4_000_000, "keepalive_us": 0, "forget_us": -1, "first_sequence": 0},
    "pydevts": {"window": 32_769, "repeat_after_us": 0, "first_id": 65_536, "remember_us": 29_000_000}
    | {"reuse_after_us": 40_000_000, "ack_repeats_max": -1, "remembered_max": 0},
}


@pytest.mark.parametrize(("protocol", "option"), [(protocol, option) for protocol in OWN for option in OWN[protocol]])
def test_an_option_of_one_protocol_out_of_its_range_is_refused_and_named(protocol: str, option: str) -> None:
    with pytest.raises(BadOption) as caught:
        make_options(protocol, **{option: OWN[protocol][option]})
    assert_one_sentence(caught.value)
    assert option in str(caught.value)


@over()
def test_options_of_another_protocol_are_refused(case: Case) -> None:
    other = "rup" if case.variant.protocol != "rup" else "udpc"
    with pytest.raises(CallerError) as caught:
        make_machine(case.variant.protocol, options_class(other)(), Seeded(1))
    assert_one_sentence(caught.value)


@over()
def test_an_answer_to_nobody_is_no_reason_to_talk(case: Case) -> None:
    pump = case.pump()
    node = pump.add(case.machine(), SERVER)
    node.machine.close(None, pump.now_us)
    pump.settle(node)
    assert pump.sent == 0
