"""The caller's own mistakes raise at once, in one sentence that names the rule, and send nothing."""

from __future__ import annotations

from typing import Any

import pytest

from fairway.core.errors import BadMessage, BadOption, CallerError
from fairway.core.random_source import Seeded
from fairway.protocols import make_machine, make_options, options_class

from .variants import BOTH, MRP_PIGGYBACK, Case, over


def assert_one_sentence(error: BaseException) -> None:
    """Check that the text is one plain sentence."""
    text = str(error)
    assert len(text.split()) >= 4
    assert "\n" not in text
    assert "Traceback" not in text
    assert ". " not in text


@over(MRP_PIGGYBACK, dtls=BOTH)
def test_the_piggyback_layout_carries_no_empty_message_in_a_list(case: Case) -> None:
    pair = case.pair()
    with pytest.raises(BadMessage):
        pair.client.machine.send_many(pair.peer, [b"good", b""], pair.pump.now_us)
    assert pair.client.machine.unfinished() == 0


COMMON: list[tuple[str, Any]] = [
    ("controller", "fast"),
    ("controller", "fair"),
    ("window", 0),
    ("window", -5),
    ("datagram_bytes_max", 10),
    ("datagram_bytes_max", 70_000),
    ("send_queue_messages_max", 0),
    ("open_receipts_max", -1),
    ("peers_max", 0),
    ("colour", "blue"),
]
OWN: dict[str, dict[str, Any]] = {
    "udpc": {"window": 70_000, "keepalive_us": 0, "first_index": 1 << 32, "index_run_max": 65_536},
    "mrp": {"layout": "sideways", "accepts": ("stamped", "sideways"), "window": 32_768, "starts_max": 32_769}
    | {"rto_us_min": 4_000_000, "keepalive_us": 0, "forget_us": -1, "first_sequence": 0},
    "rup": {},
    "pydevts": {"window": 32_769, "repeat_after_us": 0, "first_id": 65_536, "remember_us": 29_000_000}
    | {"reuse_after_us": 40_000_000, "ack_repeats_max": -1, "remembered_max": 0},
}


@pytest.mark.parametrize(
    ("protocol", "option", "value"), [(name, *bad) for name in OWN for bad in [*COMMON, *OWN[name].items()]]
)
def test_an_option_that_is_unknown_or_out_of_its_range_is_refused_and_named(
    protocol: str, option: str, value: Any
) -> None:
    with pytest.raises(BadOption) as caught:
        make_options(protocol, **{option: value})
    assert_one_sentence(caught.value)
    assert option in str(caught.value)


@over()
def test_options_of_another_protocol_are_refused(case: Case) -> None:
    other = "rup" if case.variant.protocol != "rup" else "udpc"
    with pytest.raises(CallerError) as caught:
        make_machine(case.variant.protocol, options_class(other)(), Seeded(1))
    assert_one_sentence(caught.value)
