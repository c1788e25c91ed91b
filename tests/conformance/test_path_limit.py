"""A path that takes less than the budget: rup cuts smaller, the others refuse what does not fit where nothing helps."""

from __future__ import annotations

import pytest

from fairway.core.errors import BadMessage

from .variants import BOTH, RUP, SECOND, Case, over

NARROW_BYTES = 500


@over(where=lambda variant: variant.body_bytes_max is not None, dtls=BOTH)
def test_a_message_larger_than_the_path_is_refused_with_the_limit_and_a_remedy(case: Case) -> None:
    pair = case.pair()
    machine = pair.client.machine
    machine.limit_datagrams(NARROW_BYTES, fragments=False)
    fits = NARROW_BYTES - case.variant.header_bytes
    for send in (
        lambda: machine.send(pair.peer, bytes(fits + 1), pair.pump.now_us),
        lambda: machine.send_many(pair.peer, [b"small", bytes(fits + 1)], pair.pump.now_us),
    ):
        with pytest.raises(BadMessage, match=f" {fits}, which is what the path takes; .* or use rup"):
            send()
    assert machine.unfinished() == 0
    token = pair.pump.send(pair.client, pair.peer, bytes(fits))
    assert pair.pump.finished(pair.client, [token])
    assert pair.server.bodies == [bytes(fits)]


@over(where=lambda variant: variant.body_bytes_max is not None)
def test_where_fragments_get_through_a_message_that_cannot_be_cut_is_sent_as_before(case: Case) -> None:
    pair = case.pair()
    pair.client.machine.limit_datagrams(NARROW_BYTES, fragments=True)
    assert pair.pump.finished(pair.client, [pair.pump.send(pair.client, pair.peer, bytes(2_000))])
    assert pair.server.bodies == [bytes(2_000)]


@over(controllers=("model", "eager"))
def test_a_limit_is_never_lifted(case: Case) -> None:
    pair = case.pair()
    machine = pair.client.machine
    machine.limit_datagrams(NARROW_BYTES, fragments=False)
    machine.limit_datagrams(60_000, fragments=False)
    if case.variant is RUP:
        pair.pump.finished(pair.client, [pair.pump.send(pair.client, pair.peer, bytes(3_000))])
        assert max(len(datagram.data) for datagram in pair.pump.log) == NARROW_BYTES
    else:
        with pytest.raises(BadMessage):
            machine.send(pair.peer, bytes(NARROW_BYTES), pair.pump.now_us)


@over(where=lambda variant: variant is RUP, controllers=("model", "eager"))
def test_rup_cuts_what_it_has_not_begun_and_goes_on_with_what_it_has(case: Case) -> None:
    pair = case.pair(client={"window": 4})
    bodies = [bytes([number]) * 20_000 for number in range(3)]
    tokens = pair.send_all(bodies)
    begun = {datagram.data[2:34] for datagram in pair.pump.log if datagram.data[:1] == b"d"}
    assert len(begun) == 1
    pair.client.machine.limit_datagrams(NARROW_BYTES, fragments=True)
    tokens.append(pair.pump.send(pair.client, pair.peer, bodies[0]))
    assert pair.pump.finished(pair.client, tokens, 30 * SECOND)
    assert sorted(pair.server.bodies) == sorted([*bodies, bodies[0]])
    for datagram in pair.pump.log:
        if datagram.data[:1] == b"d" and datagram.data[2:34] not in begun:
            assert len(datagram.data) <= NARROW_BYTES
    assert any(len(datagram.data) == NARROW_BYTES for datagram in pair.pump.log)


@over(where=lambda variant: variant is RUP)
def test_a_path_too_narrow_for_the_parts_that_are_allowed_still_gets_the_message(case: Case) -> None:
    pair = case.pair()
    machine = pair.client.machine
    machine.limit_datagrams(1, fragments=True)
    assert pair.pump.finished(pair.client, [pair.pump.send(pair.client, pair.peer, bytes(1_000))])
    largest = max(len(datagram.data) for datagram in pair.pump.log if datagram.data[:1] == b"d")
    assert largest == 42 + 16
    with pytest.raises(BadMessage, match="parts"):
        machine.send(pair.peer, bytes((1 << 20) * 16 + 1), pair.pump.now_us)
