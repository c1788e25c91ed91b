"""One situation of a sweep in pictures: what loss and delay do to each variant, and who does best where."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from fairway.report.page import COLOURS, Axis, Chart, Line, Markup, Unit, chart, heat_map, side_by_side
from fairway.report.runs import Estimate, Point, Situation, axis, variants
from fairway.report.theory import response_bytes_per_s
from fairway.report.units import bytes_, count, duration

DELAYS_DRAWN_MAX = 4
VARIANTS_DRAWN_MAX = 8
WHISKERS = "Whiskers: 95 % confidence over seeds."


@dataclass(frozen=True, slots=True, kw_only=True)
class Aim:
    """What counts as better in a situation."""

    metric: str
    title: str
    short: str
    label: str
    unit: Unit
    show: Callable[[float | None], str]
    least: bool
    """Whether less is better."""


LATENCY = Aim(
    metric="latency_p99_us",
    title="Latency, 99th percentile",
    short="latency p99",
    label="from send to delivery",
    unit="us",
    show=duration,
    least=True,
)
GOODPUT = Aim(
    metric="goodput_bytes_per_s",
    title="Goodput",
    short="goodput",
    label="bodies delivered",
    unit="bytes_per_s",
    show=lambda value: f"{bytes_(value)}/s",
    least=False,
)


def aim_of(situation: Situation) -> Aim:
    """Messages at a rate ask for latency; messages as fast as they go ask for goodput."""
    return LATENCY if dict(situation)["interval_ms"] else GOODPUT


def words(situation: Situation) -> str:
    told = dict(situation)
    messages = (
        f"{count(told['messages'])} message{'' if told['messages'] == 1 else 's'} of {bytes_(told['size_bytes'])}"
    )
    pace = f", one every {told['interval_ms']:g} ms" if told["interval_ms"] else ", as fast as it goes"
    parts = [messages + pace]
    if told["flows"] > 1:
        parts.append(f"{told['flows']:g} flows")
    if told["bandwidth"]:
        parts.append(f"{bytes_(told['bandwidth'])}/s behind a queue of {bytes_(told['queue_bytes'])}")
    if told["burst_length"] > 1:
        parts.append(f"losses in bursts of {told['burst_length']:g}")
    for name, phrase in (("reorder", "reordered"), ("duplicate", "duplicated"), ("corrupt", "damaged")):
        if told[name]:
            parts.append(f"{100 * told[name]:g} % {phrase}")
    if told["jitter_ms"]:
        parts.append(f"jitter up to {told['jitter_ms']:g} ms")
    return "; ".join(parts)


def colour(variant: str, among: Sequence[str]) -> int:
    """Return the colours: a protocol has its own, and further variants of it those that are free."""
    protocol = variant.split(maxsplit=1)[0]
    same = [other for other in among if other.split()[0] == protocol]
    position = same.index(variant)
    return COLOURS.get(protocol, 0) if position == 0 else 4 + 1 + (list(among).index(variant) - 1) % 4


def pictures(situation: Situation, points: Sequence[Point]) -> list[Markup]:
    """Return all pictures of a situation; none where neither loss nor delay varies."""
    losses, delays = axis(points, "loss"), axis(points, "delay_ms")
    aim = aim_of(situation)
    drawn = aim.title, Axis(label=aim.label, unit=aim.unit, log=True), aim.metric, points
    shown: list[Markup] = []
    if len(losses) > 1:
        shown.append(side_by_side([_over_loss(*drawn, delay, WHISKERS) for delay in delays[-DELAYS_DRAWN_MAX:]]))
    if len(delays) > 1:
        shown.append(side_by_side([_over_delay(*drawn, loss, WHISKERS) for loss in _spread(losses)]))
    if len(losses) > 1:
        middle = delays[len(delays) // 2]
        datagrams = Axis(label="datagrams per message delivered")
        counted = "Acknowledgements, retransmissions, the handshake and the close are counted."
        failed = Axis(label="messages without an acknowledgement", unit="share")
        reported = "Reported as failed, or without an outcome after ten minutes."
        overhead = _over_loss("Overhead", datagrams, "datagrams_per_message", points, middle, counted)
        failures = _over_loss("Failures", failed, "failed", points, middle, reported, share=True)
        shown.append(side_by_side([overhead, failures]))
    if len(losses) > 1 and len(variants(points)) > 1:
        shown.append(_winners(aim, points, losses, delays))
    return shown


def _spread(values: Sequence[float]) -> list[float]:
    """Return the first, a middle and the last value."""
    return sorted({values[0], values[len(values) // 2], values[-1]})


def _lines(points: Sequence[Point], name: str, x: Callable[[Point], float], share: bool = False) -> list[Line]:
    known = variants(points)
    return [
        line(one, [p for p in points if p.variant == one], name, x, share=share, colour=colour(one, known))
        for one in known[:VARIANTS_DRAWN_MAX]
    ]


def line(
    title: str, points: Iterable[Point], name: str, x: Callable[[Point], float], *, share: bool, **look: Any
) -> Line:
    """Return a metric of points with its confidence; `share` divides it by the messages that were sent."""
    mine = sorted(points, key=x)
    found = [_scaled(point[name], point.sent if share else 1.0) for point in mine]
    return Line(
        name=title,
        x=[x(point) for point in mine],
        y=[None if one is None else one.mean for one in found],
        low=[None if one is None else one.low for one in found],
        high=[None if one is None else one.high for one in found],
        **look,
    )


def _scaled(estimate: Estimate | None, by: float) -> Estimate | None:
    if estimate is None:
        return None
    return Estimate(estimate.mean / by, None if estimate.margin is None else estimate.margin / by)


def _over_loss(
    title: str, y: Axis, metric: str, points: Sequence[Point], delay_ms: float, says: str, share: bool = False
) -> Markup:
    there = [point for point in points if point.delay_ms == delay_ms]
    lines = _lines(there, metric, lambda point: point.loss, share)
    if metric == GOODPUT.metric:
        response = _response(there, delay_ms)
        lines += response
        says += " Dashes: what the response function of NewReno says." if response else ""
    x = Axis(label="datagrams lost", unit="share")
    return chart(Chart(title=f"{title}, {delay_ms:g} ms each way", x=x, y=y, lines=lines, says=says))


def _response(points: Sequence[Point], delay_ms: float) -> list[Line]:
    """Return the closed form beside what fair controllers reached, where nothing but loss and delay limits them."""
    fair = [p for p in points if p.controller == "newreno" and p.loss > 0 and not p.surroundings["bandwidth"]]
    losses = axis(fair, "loss")
    if not losses or not delay_ms:
        return []
    size = fair[0].surroundings["size_bytes"]
    if size > 1_400:
        return []
    rates = [response_bytes_per_s(round(loss * 1e6), round(2_000 * delay_ms), round(size)) for loss in losses]
    return [Line(name="response function", x=losses, y=rates, drawing="dashes")]


def _over_delay(title: str, y: Axis, metric: str, points: Sequence[Point], loss: float, says: str) -> Markup:
    lines = _lines([point for point in points if point.loss == loss], metric, lambda point: point.delay_ms)
    x = Axis(label="delay each way, ms", log=True)
    return chart(Chart(title=f"{title}, {100 * loss:g} % lost", x=x, y=y, lines=lines, says=says))


@dataclass(frozen=True, slots=True)
class Verdict:
    """The best of several points, by how much, and whether that is certain."""

    best: Point
    value: Estimate
    ratio: float | None
    """How many times better than the next variant; None if there is no other."""
    second: str | None
    clear: bool


def verdict(aim: Aim, points: Sequence[Point]) -> Verdict | None:
    """Choose the variant that does best; one that loses messages is no choice while another loses none."""
    rated = [(point, found) for point in points if (found := point[aim.metric]) is not None and found.mean > 0]
    whole = [(point, found) for point, found in rated if (failed := point["failed"]) is not None and not failed.mean]
    order = sorted(whole or rated, key=lambda pair: pair[1].mean if aim.least else -pair[1].mean)
    if not order:
        return None
    (best, value), *others = order
    if not others:
        return Verdict(best, value, None, None, False)
    second, other = others[0]
    ratio = other.mean / value.mean if aim.least else value.mean / other.mean
    return Verdict(best, value, ratio, second.variant, value.clear_of(other))


def _winners(aim: Aim, points: Sequence[Point], losses: Sequence[float], delays: Sequence[float]) -> Markup:
    known = variants(points)

    def cell(loss: float, delay_ms: float) -> tuple[str, int, float] | None:
        there = [point for point in points if point.loss == loss and point.delay_ms == delay_ms]
        found = verdict(aim, there)
        if found is None:
            return None
        name = found.best.variant if found.clear else f"≈ {found.best.variant}"
        strength = 0.15 if not found.clear or found.ratio is None else min(1.0, 0.3 + (found.ratio - 1) / 2)
        return f"{name} {aim.show(found.value.mean)}", colour(found.best.variant, known), strength

    return heat_map(
        title=f"Who does best: {aim.title.lower()}",
        row_label="lost",
        column_label="delay each way",
        rows=[f"{100 * loss:g} %" for loss in losses],
        columns=[f"{delay:g} ms" for delay in delays],
        cells=[[cell(loss, delay) for delay in delays] for loss in losses],
        says="Stronger colour: further ahead of the next. ≈: the intervals of the first two touch, so there is no "
        "clear winner. A variant that lost messages does not win over one that lost none.",
    )
