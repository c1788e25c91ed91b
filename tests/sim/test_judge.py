"""The judge accuses when a promise is broken, and only then: what it cannot tell it does not claim."""

from __future__ import annotations

from fairway.core.events import Peer
from fairway.sim.checks import Judge, Promises
from fairway.sim.sent_messages import RELIABLE

SERVER, CLIENT, OTHER = 0, 1, 2
ADDRESSES = {("s", 1): SERVER, ("c", 1): CLIENT, ("c", 2): OTHER}
TO_SERVER = Peer(("s", 1), 7)
FROM_CLIENT = Peer(("c", 1), 7)
FROM_OTHER = Peer(("c", 2), 8)


def judge(**promises: bool) -> Judge:
    kept = {"deferred": False, "ordered": False, "keeps_acknowledged": False, "by_address": False} | promises
    made = Judge(Promises(**kept), dict(ADDRESSES), lambda: 0)
    for node in (SERVER, CLIENT, OTHER):
        made.started(node, restored=False)
    return made


def rules(made: Judge) -> list[str]:
    return [violation.rule for violation in made.violations]


def test_a_refused_message_that_had_arrived_is_an_accusation() -> None:
    made = judge()
    made.accepted(CLIENT, TO_SERVER, 1, b"unique body", RELIABLE)
    made.delivered(SERVER, FROM_CLIENT, 1, b"unique body", RELIABLE)
    made.settled(CLIENT, 1, "refused")
    assert rules(made) == ["refused means not delivered"]


def test_of_equal_bodies_it_is_not_claimed_which_one_was_refused() -> None:
    made = judge()
    for token in (1, 2):
        made.accepted(CLIENT, TO_SERVER, token, b"tiny", RELIABLE)
    made.delivered(SERVER, FROM_CLIENT, 1, b"tiny", RELIABLE)
    made.settled(CLIENT, 2, "refused")
    assert rules(made) == []


def test_equal_bodies_may_arrive_as_often_as_they_were_sent_and_not_more() -> None:
    made = judge()
    for token in (1, 2):
        made.accepted(CLIENT, TO_SERVER, token, b"tiny", RELIABLE)
        made.delivered(SERVER, FROM_CLIENT, token, b"tiny", RELIABLE)
    assert rules(made) == []
    made.delivered(SERVER, FROM_CLIENT, 3, b"tiny", RELIABLE)
    assert rules(made) == ["nothing twice"]


def test_a_conversation_is_recognised_by_a_body_that_was_sent_once() -> None:
    """Two clients send the same tiny body first to arrive: whose it is shows later, and then the ids are judged."""
    for shift in (0, 1):
        made = judge(deferred=True, ordered=True)
        made.accepted(OTHER, TO_SERVER, 1, b"tiny", RELIABLE)
        made.accepted(CLIENT, TO_SERVER, 1, b"named by the client", RELIABLE)
        made.accepted(CLIENT, TO_SERVER, 2, b"tiny", RELIABLE)
        made.delivered(SERVER, FROM_CLIENT, 2 + shift, b"tiny", RELIABLE)
        made.delivered(SERVER, FROM_CLIENT, 1, b"named by the client", RELIABLE)
        assert rules(made) == ["order"] * shift


def test_what_a_dead_sender_left_ahead_of_a_gap_need_not_be_handed_over() -> None:
    for sender_lives, accused in ((1, ["acknowledged means kept"]), (2, [])):
        made = judge(ordered=True, keeps_acknowledged=True)
        made.accepted(CLIENT, TO_SERVER, 1, b"lost on the way", RELIABLE)
        made.accepted(CLIENT, TO_SERVER, 2, b"kept ahead", RELIABLE)
        made.settled(CLIENT, 1, "unknown")
        made.settled(CLIENT, 2, "delivered")
        made.finish({SERVER: 1, CLIENT: sender_lives, OTHER: 1})
        assert rules(made) == accused


def test_what_was_committed_may_not_come_again_after_a_restart_from_a_snapshot() -> None:
    for restored, accused in ((True, ["nothing twice"]), (False, [])):
        made = judge(deferred=True)
        made.accepted(CLIENT, TO_SERVER, 1, b"unique body", RELIABLE)
        made.delivered(SERVER, FROM_CLIENT, 1, b"unique body", RELIABLE)
        made.committed(SERVER, FROM_CLIENT, b"unique body", 0)
        made.started(SERVER, restored=restored)
        made.delivered(SERVER, FROM_CLIENT, 1, b"unique body", RELIABLE)
        assert rules(made) == accused


def test_what_was_not_committed_comes_again_after_a_restart_from_a_snapshot() -> None:
    made = judge(deferred=True)
    made.accepted(CLIENT, TO_SERVER, 1, b"unique body", RELIABLE)
    made.delivered(SERVER, FROM_CLIENT, 1, b"unique body", RELIABLE)
    made.started(SERVER, restored=True)
    made.delivered(SERVER, FROM_CLIENT, 1, b"unique body", RELIABLE)
    assert rules(made) == []


def test_a_message_is_accepted_only_from_the_one_who_sent_it() -> None:
    made = judge()
    made.accepted(CLIENT, TO_SERVER, 1, b"unique body", RELIABLE)
    made.delivered(SERVER, FROM_OTHER, 1, b"unique body", RELIABLE)
    assert rules(made) == ["only what was sent"]


def test_a_stranger_may_say_what_it_likes() -> None:
    made = judge()
    made.delivered(SERVER, Peer(("10.66.0.1", 666), 9), 1, b"anything", RELIABLE)
    assert rules(made) == []
    assert made.foreign == 1
