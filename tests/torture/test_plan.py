"""What is done is a function of the seed, and everything comes."""

from __future__ import annotations

from fairway.store.crashpoints import GATEWAY_POINTS, STREAM_POINTS
from tests.torture.plan import BOTH, COMPACTION, FILL, GATEWAY, PAUSE, STREAM, draw


def test_the_same_seed_gives_the_same_plan_and_another_gives_another() -> None:
    assert draw(40, 7) == draw(40, 7)
    assert draw(40, 7) != draw(40, 8)


def test_a_long_plan_passes_every_crash_point_and_kills_every_target() -> None:
    plan = draw(500, 1)
    faults = (*plan.gateway, *plan.stream)
    assert {fault.point.partition(":")[0] for fault in plan.gateway} == {"", *GATEWAY_POINTS}
    assert {fault.point.partition(":")[0] for fault in plan.stream} == {"", *STREAM_POINTS}
    assert {fault.target for fault in faults} == {GATEWAY, STREAM, BOTH, COMPACTION, "disk"}
    assert {PAUSE, FILL} < {fault.how for fault in faults}
