"""Seeds that once failed, each with what was wrong."""

from __future__ import annotations

import pytest

from fairway.sim import swarm

FOUND = {
    ("udpc", 205_632): "the judge took the ids of a sequenced conversation for places",
    ("udpc", 219_840): "the same",
    ("udpc", 215_940): "an application that crashed while closing never sent again after its restart",
    ("rup", 213_694): "repairs ran up a pacing debt that stopped a window of one for a minute at a time",
    ("rup", 223): "a message that was not repeated for a minute was delivered again when it was",
    ("rup", 1_478): "pacing went by a round trip of minutes, that of a peer that had been gone",
    ("udpc", 8_948): "the judge forbade a plain message to come again that was not committed before a restart",
    ("pydevts", 11_595): "the judge did not know that a sender without its snapshot may draw an id again",
    ("mrp", 53_505): "a packet of sequence 0 and stamp 0 was acknowledged by a client that only said it was there",
}


@pytest.mark.parametrize(("protocol", "seed"), FOUND, ids=[f"{protocol}-{seed}" for protocol, seed in FOUND])
def test_a_seed_that_once_failed_passes(protocol: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(swarm, "MODEL", 0)  # none of them ran under it
    result = swarm.run_seed(protocol, seed)
    assert result.passed, (FOUND[protocol, seed], result.violations)


@pytest.mark.parametrize("seed", [4_078, 477])
def test_a_part_that_was_asked_for_again_does_not_stop_a_window(seed: int) -> None:
    """By a peer that is gone, or that forgot it when the window was one packet."""
    assert swarm.run_seed("rup", seed).passed


def test_an_old_ack_of_an_empty_message_is_the_fault_of_the_protocol() -> None:
    """A sender without its snapshot drew the id of an empty message, whose ack counts for every body."""
    assert swarm.run_seed("pydevts", 103_827).passed


def test_a_gap_that_a_dead_sender_left_is_not_that_of_another_with_an_equal_body() -> None:
    """The judge counts messages with one body together."""
    assert swarm.run_seed("mrp", 216_185).passed
