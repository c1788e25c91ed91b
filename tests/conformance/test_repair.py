"""What is lost comes again: soon where later packets show the loss, by a timer otherwise."""

from __future__ import annotations

import pytest

from .pair import Datagram, Predicate
from .variants import BOTH, CLIENT, MRP_STAMPED, RUP, SECOND, SERVER, UDPC, Case, Pair, numbered, over


@over(deferred=BOTH)
@pytest.mark.parametrize("lost", ["the first packet of all", "the first answer", "what follows the answer"])
def test_a_conversation_opens_once_whichever_packet_of_its_opening_is_lost(case: Case, lost: str) -> None:
    pump, opening = case.pump(), case.of_kind("opening")
    loses: dict[str, Predicate] = {
        "the first packet of all": lambda datagram: datagram.source == CLIENT,
        "the first answer": lambda datagram: datagram.source == SERVER,
        "what follows the answer": lambda datagram: datagram.source == CLIENT and not opening(datagram),
    }
    pump.lose(loses[lost], count=1)
    server = pump.add(case.machine(2), SERVER)
    client = pump.add(case.machine(1), CLIENT)
    peer = pump.connected(client, SERVER)
    pump.delivers(client, [pump.send(client, peer, body) for body in numbered(3)])
    assert sorted(server.bodies) == numbered(3)
    assert server.machine.statistics.conversations_opened == 1
    assert pump.lost == 1


@over(deferred=BOTH, batched=BOTH, dtls=BOTH)
def test_a_lost_last_acknowledgement_is_given_again_and_nothing_is_delivered_twice(case: Case) -> None:
    pair = case.pair()
    pair.pump.lose(case.of_kind("ack", SERVER), count=1)
    pair.deliver([b"only one"])
    assert pair.server.bodies == [b"only one"]
    assert pair.pump.lost == 1


@over(deferred=BOTH)
def test_a_copy_after_completion_is_acknowledged_again_and_not_delivered_again(case: Case) -> None:
    pair = case.pair()
    pair.deliver([b"once"])
    pair.pump.run(SECOND)
    [data] = {datagram.data for datagram in pair.pump.log if case.of_kind("data", CLIENT)(datagram)}
    for _ in range(3):
        sent = pair.pump.sent
        pair.pump.inject(data, CLIENT, SERVER)
        pair.pump.run(100_000)
        answers = [datagram for datagram in pair.pump.sent_by(pair.server, sent) if case.of_kind("ack")(datagram)]
        assert len(answers) == 1
    assert pair.server.bodies == [b"once"]
    assert pair.server.machine.statistics.duplicates == 3


def repaired(case: Case, pair: Pair, lost: Datagram) -> list[int]:
    """Return how long after its loss each further transmission of the lost packet left."""
    tail = lost.data[case.variant.header_bytes :]
    return [
        datagram.sent_us - lost.sent_us
        for datagram in pair.pump.log
        if datagram.number > lost.number and datagram.source == CLIENT and datagram.data.endswith(tail)
    ]


@over(batched=BOTH, controllers=("model", "newreno", "eager"), where=lambda variant: variant.repairs)
def test_a_packet_overtaken_by_others_is_repaired_about_one_round_trip_later(case: Case) -> None:
    pair = case.pair(delay_us=20_000)
    gone: list[Datagram] = []

    def loses(datagram: Datagram) -> bool:
        third = case.of_kind("data", CLIENT)(datagram) and b"m0000002" in datagram.data and not gone
        if third:
            gone.append(datagram)
        return third

    pair.pump.lose(loses)
    if case.variant is RUP:
        parts = b"".join(body.ljust(1_158, b".") for body in numbered(9))
        tokens = [pair.pump.send(pair.client, pair.peer, parts)]
    else:
        tokens = pair.send_all(numbered(9))
    assert pair.pump.finished(pair.client, tokens)
    assert len(gone) == 1
    times = repaired(case, pair, gone[0])
    assert len(times) == 1
    assert 40_000 <= times[0] <= 48_000
    assert pair.client.machine.statistics.repairs == 1
    assert pair.client.machine.statistics.retransmissions == 1


@over(UDPC, MRP_STAMPED, RUP, dtls=BOTH)
def test_a_repair_that_is_lost_too_is_repaired_again(case: Case) -> None:
    pair = case.pair(client={"window": 64})
    pair.pump.lose(lambda datagram: b"m0000002" in datagram.data, count=3)
    if case.variant is RUP:
        tokens = [pair.pump.send(pair.client, pair.peer, b"".join(b.ljust(1_158, b".") for b in numbered(400)))]
    else:
        tokens = pair.send_all(numbered(400))
    assert pair.pump.finished(pair.client, tokens)
    assert pair.pump.lost == 3
    assert pair.client.machine.statistics.retransmissions >= 3
