"""The receiving side decides: what it has no receipt slot for, and what it has not committed, is not acknowledged."""

from __future__ import annotations

import pytest

from .variants import BOTH, CLIENT, MRP_PIGGYBACK, MRP_STAMPED, PYDEVTS, RUP, SECOND, SERVER, UDPC, Case, numbered, over


@over(deferred=BOTH, batched=BOTH, dtls=BOTH)
@pytest.mark.parametrize("bound", [{"open_receipts_max": 3}, {"open_receipt_bytes_max": 3_500}], ids=str)
def test_a_full_receiver_acknowledges_nothing_more_and_goes_on_after_commits(
    case: Case, bound: dict[str, object]
) -> None:
    pair = case.pair(server=bound, commits=False)
    bodies = numbered(8, 1_000)
    tokens = pair.send_all(bodies)
    pair.pump.run(2 * SECOND)
    delivered = [token for token in tokens if pair.client.outcome(token) == "Delivered"]
    assert len(pair.server.received) == 3
    assert len(delivered) == (0 if case.deferred else 3)
    for _ in range(60):
        pair.pump.commit_all(pair.server)
        pair.pump.run(SECOND // 2)
    assert {pair.client.outcome(token) for token in tokens} == {"Delivered"}
    assert sorted(pair.server.bodies) == bodies
    assert sum(pair.server.machine.statistics.dropped.values()) > 0


@over(MRP_STAMPED, MRP_PIGGYBACK, deferred=BOTH, controllers=("eager",), dtls=BOTH)
def test_what_is_ahead_of_a_gap_is_kept_up_to_the_window_and_dropped_beyond_it(case: Case) -> None:
    pair = case.pair(client={"window": 64}, server={"window": 8})
    pair.pump.lose(case.of_kind("data", CLIENT), count=1)
    bodies = numbered(60)
    tokens = pair.send_all(bodies)
    arrived = len([datagram for datagram in pair.pump.log if case.of_kind("data", CLIENT)(datagram)]) - 1
    pair.pump.run(30_000)
    assert arrived > 8
    assert pair.server.machine.statistics.dropped.total() == arrived - 7
    pair.pump.delivers(pair.client, tokens)
    assert sorted(pair.server.bodies) == bodies


@over(deferred=(True,), batched=BOTH, dtls=BOTH)
def test_nothing_is_acknowledged_before_its_commit(case: Case) -> None:
    pair = case.pair(commits=False)
    bodies = numbered(4)
    tokens = pair.send_all(bodies)
    pair.pump.run(4 * SECOND)
    assert sorted(pair.server.bodies) == bodies
    assert {pair.client.outcome(token) for token in tokens} == {"none"}
    pair.pump.commit_all(pair.server)
    pair.pump.delivers(pair.client, tokens, 4 * SECOND)
    pair.pump.run(10 * SECOND)
    assert sorted(pair.server.bodies) == bodies


@over(UDPC, MRP_STAMPED, PYDEVTS, deferred=(True,), dtls=BOTH)
def test_copies_before_the_commit_get_no_answer_at_all(case: Case) -> None:
    pair = case.pair(commits=False)
    pair.pump.send(pair.client, pair.peer, b"wait for it")
    pair.pump.run(SECOND)
    assert pair.server.bodies == [b"wait for it"]
    [data, *_] = [datagram.data for datagram in pair.pump.log if case.of_kind("data", CLIENT)(datagram)]
    for _ in range(5):
        pair.pump.inject(data, CLIENT, SERVER)
        pair.pump.run(200_000)
    assert [datagram for datagram in pair.pump.sent_by(pair.server) if case.of_kind("ack")(datagram)] == []
    assert pair.server.bodies == [b"wait for it"]


@over(deferred=(True,), dtls=BOTH)
def test_receipts_may_be_committed_in_any_order_and_one_by_one(case: Case) -> None:
    pair = case.pair(commits=False)
    bodies = numbered(9)
    tokens = pair.send_all(bodies)
    pair.pump.run(SECOND)
    assert len(pair.server.uncommitted) == 9
    for receipt in pair.server.uncommitted[1::2][::-1] + pair.server.uncommitted[::2]:
        pair.server.machine.commit(receipt, pair.pump.now_us)
        pair.pump.settle(pair.server)
        pair.pump.run(10_000)
    pair.pump.delivers(pair.client, tokens, 4 * SECOND)
    assert sorted(pair.server.bodies) == bodies


@over(deferred=BOTH, dtls=BOTH)
def test_committing_twice_or_committing_what_was_never_received_changes_nothing(case: Case) -> None:
    pair = case.pair(commits=False)
    tokens = pair.send_all(numbered(3))
    pair.pump.run(SECOND)
    receipts = list(pair.server.uncommitted)
    pair.pump.commit_all(pair.server)
    assert pair.pump.finished(pair.client, tokens, 4 * SECOND)
    sent = pair.pump.sent
    strange = receipts[0]._replace(peer=receipts[0].peer._replace(address=("nobody", 0)))
    for receipt in (*receipts, strange, receipts[0]._replace(first=12_345_678)):
        pair.server.machine.commit(receipt, pair.pump.now_us)
        pair.pump.settle(pair.server)
    assert [datagram for datagram in pair.pump.sent_by(pair.server, sent) if case.of_kind("ack")(datagram)] == []


LATE_US = {"udpc": 35 * SECOND, "mrp": 36 * SECOND, "rup": 12 * SECOND, "pydevts": 36 * SECOND}
"""Later than the sender waits (rup: than the five seconds in which a commit should come)."""


@over(deferred=(True,))
def test_a_late_commit_still_counts_for_the_copies_that_come_after_it(case: Case) -> None:
    pair = case.pair(commits=False)
    token = pair.pump.send(pair.client, pair.peer, b"late")
    pair.pump.run(LATE_US[case.variant.protocol])
    assert pair.server.bodies == [b"late"]
    assert pair.client.outcome(token) == ("none" if case.variant is RUP else "DeliveryUnknown")
    pair.pump.commit_all(pair.server)
    [data, *_] = [datagram.data for datagram in pair.pump.log if case.of_kind("data", CLIENT)(datagram)]
    sent = pair.pump.sent
    pair.pump.inject(data, CLIENT, SERVER)
    pair.pump.run(100_000)
    assert [datagram for datagram in pair.pump.sent_by(pair.server, sent) if case.of_kind("ack")(datagram)] != []
    assert pair.server.bodies == [b"late"]


@over(deferred=(True,), batched=BOTH, dtls=BOTH)
@pytest.mark.parametrize("count", [1, 40])
def test_a_slow_committer_delivers_everything_once_under_loss(case: Case, count: int) -> None:
    pair = case.pair(commits=False)
    pair.pump.lose_at_random(150_000, seed=7)
    bodies = numbered(count)
    tokens = pair.send_all(bodies)
    for _ in range(60):
        pair.pump.run(SECOND)
        pair.pump.commit_all(pair.server)
        if all(token in pair.client.outcomes for token in tokens):
            break
    assert {pair.client.outcome(token) for token in tokens} == {"Delivered"}
    assert sorted(pair.server.bodies) == bodies


@over(deferred=(True,))
@pytest.mark.parametrize("whole", BOTH, ids=["conversation", "endpoint"])
def test_what_is_committed_after_the_close_is_never_acknowledged(case: Case, whole: bool) -> None:
    pair = case.pair(commits=False)
    token = pair.pump.send(pair.client, pair.peer, b"late")
    pair.pump.run(100_000)
    assert pair.server.bodies == [b"late"]
    [data, *_] = [datagram.data for datagram in pair.pump.log if case.of_kind("data", CLIENT)(datagram)]
    sent = pair.pump.sent
    pair.pump.close(pair.server, None if whole else pair.caller())
    pair.pump.commit_all(pair.server)
    for _ in range(3):
        pair.pump.inject(data, CLIENT, SERVER)
        pair.pump.run(SECOND)
    assert [datagram for datagram in pair.pump.sent_by(pair.server, sent) if case.of_kind("ack")(datagram)] == []
    assert pair.client.outcome(token) != "Delivered"
    assert pair.server.bodies == [b"late"]
