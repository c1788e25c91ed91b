"""The time of day, watched: messages carry it, nothing else depends on it."""

from __future__ import annotations

import asyncio
import logging

from fairway.gateway.adapter import wall_us
from fairway.gateway.journal import now_us

SET_BACK_US = 1_000_000
LOOK_S = 5.0

_log = logging.getLogger("fairway.gateway")


def warn_if_behind(newest_us: int) -> None:
    """Says so if the clock shows less than when the newest message was received."""
    behind_us = newest_us - wall_us()
    if behind_us > SET_BACK_US:
        _log.warning(
            "the clock was set back: it is %.0f s behind the newest message in the journal; none is lost, but messages "
            "are dated by it as it is now; check the time service",
            behind_us / 1e6,
        )


async def watch() -> None:
    """Says so when the clock is set back, until cancelled."""
    ahead_us = wall_us() - now_us()
    while True:
        await asyncio.sleep(LOOK_S)
        difference_us = wall_us() - now_us()
        if ahead_us - difference_us > SET_BACK_US:
            _log.warning(
                "the clock was set back by %.0f s; messages are dated by it as it is now; check the time service",
                (ahead_us - difference_us) / 1e6,
            )
        ahead_us = difference_us
