"""Numbers as people read them. `assets/frame.js` says the same in the browser."""

from __future__ import annotations

MICROSECONDS_PER_SECOND = 1_000_000
NOTHING = "–"
"""Stands where there is no number."""


def count(value: float | None) -> str:
    """Return whole numbers with separators, and from ten million on in millions."""
    if value is None:
        return NOTHING
    for size, name in ((1e9, "G"), (1e6, "M")):
        if value >= 10 * size:
            return f"{value / size:,.1f} {name}"
    return f"{round(value):,}"


def bytes_(value: float | None) -> str:
    """Return bytes in decimal units with three digits."""
    if value is None:
        return NOTHING
    for size, name in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if value >= size:
            return f"{_three_digits(value / size)} {name}"
    return f"{round(value)} B"


def duration(value_us: float | None) -> str:
    """Return a time in the unit that suits its size."""
    if value_us is None:
        return NOTHING
    seconds = value_us / MICROSECONDS_PER_SECOND
    if seconds >= 3_600:
        return f"{int(seconds // 3_600)} h {int(seconds % 3_600 // 60)} min"
    if seconds >= 120:
        return f"{int(seconds // 60)} min {int(seconds % 60)} s"
    if seconds >= 1:
        return f"{_three_digits(seconds)} s"
    return f"{_three_digits(value_us / 1_000)} ms" if value_us >= 1_000 else f"{round(value_us)} µs"


def share(value: float | None) -> str:
    """Return a part of one as a percentage; what is not nothing never looks like nothing."""
    if value is None:
        return NOTHING
    percent = 100 * value
    if 0 < percent < 0.1:
        return "< 0.1 %"
    return f"{percent:.0f} %" if percent >= 99.95 or percent == 0 else f"{percent:.1f} %"


def _three_digits(value: float) -> str:
    return f"{value:.0f}" if value >= 99.95 else f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"
