"""Lengths of time as people write them: 500ms, 5s, 10m, 2h, 7d."""

from __future__ import annotations

import re

from fairway.core.errors import BadOption

SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")


def seconds_of(text: str, option: str) -> float:
    """Return the seconds; raise `BadOption` for anything but a number with its unit."""
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise BadOption(f"{option} is {text!r}; it must be a number and a unit, such as 500ms, 5s, 10m, 2h or 7d")
    return float(found[1]) * SECONDS[found[2]]
