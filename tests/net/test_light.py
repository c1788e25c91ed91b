"""What is loaded when, and what a message costs in calls: counts, not times."""

from __future__ import annotations

import asyncio

import pytest

from fairway.net import connect, listen
from fairway.net.randomness import Cryptographic
from tests.loaded import loaded_by

BURST, ROUNDS = 32, 12
OPENED = """
import asyncio, fairway
async def main(): await (await getattr(fairway, sys.argv[1])(sys.argv[2])).close()
asyncio.run(main())
"""


def test_a_connection_loads_neither_numpy_nor_what_only_traces_and_other_kernels_need() -> None:
    loaded = loaded_by(OPENED, "connect", "pydevts://127.0.0.1:9")
    assert not {"numpy", "ctypes", "fairway.capture.pcapng", "secrets"} & loaded


def test_a_listener_has_loaded_what_batches_need_before_the_first_datagram() -> None:
    assert "numpy" in loaded_by(OPENED, "listen", "udpc://127.0.0.1:0")


@pytest.mark.parametrize("protocol", ["udpc", "mrp", "rup"])
async def test_awaited_messages_that_come_in_bursts_leave_in_one_call_a_burst(protocol: str) -> None:
    url = f"{protocol}://127.0.0.1:0?controller=eager"
    async with listen(url, io="gso") as listener, connect(f"{listener.url}?controller=eager", io="gso") as caller:
        for _ in range(ROUNDS):
            await asyncio.gather(*[caller.send_nowait(b"%03d" % number) for number in range(BURST)])
        machine = caller.statistics.machine
        assert machine.messages_delivered == BURST * ROUNDS
        repeats = machine.retransmissions
        assert caller.statistics.socket.send_calls <= ROUNDS + 5 + repeats


async def test_a_lone_message_leaves_before_the_turn_ends() -> None:
    async with listen("udpc://127.0.0.1:0") as listener, connect(listener.url) as caller:
        for _ in range(3):
            before = caller.statistics.machine.messages_sent
            sending = caller.send_nowait(b"alone")
            assert caller.statistics.machine.messages_sent == before + 1
            await sending


def test_drawn_integers_are_within_their_bound_and_reach_all_of_it() -> None:
    random = Cryptographic()
    assert {random.below(5) for _ in range(400)} == set(range(5))
    assert {random.bits(2) for _ in range(400)} == set(range(4))
    assert random.below(1) == 0
    assert max(random.bits(24) for _ in range(200)) >> 23 == 1
