"""A finished run in words and figures for people."""

from __future__ import annotations

from collections.abc import Mapping

from fairway.sim.result import Result


def summary(result: Result) -> str:
    """Return a run as a few lines of text."""
    lines = [
        f"{result.protocol}, seed {result.seed}: {'passed' if result.passed else 'BROKEN'}",
        _line(
            "time", f"{result.healed_us / 1e6:.3f} s until the faults were over, {result.virtual_us / 1e6:.3f} s in all"
        ),
        _line(
            "messages",
            f"{result.accepted:,} accepted, one a client after the faults; {result.handed_over:,} delivered",
        ),
        _line("outcomes", _counts(result.outcomes)),
        _line("datagrams", f"{result.datagrams:,} sent ({result.bytes:,} bytes)"),
        _line("network", _counts(result.network)),
        _line(
            "repeated", f"{result.total('retransmissions'):,}, of which {result.total('repairs'):,} ahead of a timer"
        ),
        _line("copies", f"{result.total('duplicates'):,} recognised"),
        _line("refused", _counts(_dropped(result))),
    ]
    if result.hostile_datagrams:
        lines.append(_line("hostile", f"{result.hostile_datagrams:,} datagrams"))
    lines.append(_line("digest", result.digest))
    lines.extend(_line("broken", str(violation)) for violation in result.violations)
    return "\n".join(lines)


def _line(name: str, text: str) -> str:
    return f"  {name:<10} {text}"


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in sorted(counts.items())) or "none"


def _dropped(result: Result) -> dict[str, int]:
    reasons: dict[str, int] = {}
    for statistics in result.nodes:
        for reason, count in statistics.dropped.items():
            reasons[reason] = reasons.get(reason, 0) + count
    return reasons
