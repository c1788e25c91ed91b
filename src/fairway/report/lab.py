"""The page of a sweep: recommendations first, then the pictures they come from, then theory beside measurement."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

from fairway.report.page import Axis, Cell, Chart, Line, Markup, Tile, chart, page, section, side_by_side, table, tiles
from fairway.report.runs import Point, Sweep, axis, read_sweep, variants
from fairway.report.situations import aim_of, colour, line, pictures, verdict, words
from fairway.report.theory import exchange_fails, repeats_until_acknowledged
from fairway.report.units import count

MILD_LOSS = 0.02
PYDEVTS_TRANSMISSIONS = 11


def lab_report(folder: Path) -> str:
    """Return the page of a sweep's table; the same table gives the same page."""
    sweep = read_sweep(folder)
    blocks = [_overview(sweep), _recommendations(sweep)]
    for number, situation in enumerate(sweep.situations(), 1):
        shown = pictures(situation, sweep.of(situation))
        if shown:
            blocks.append(section(words(situation), shown, name=f"situation-{number}"))
    blocks += [*_fairness(sweep), *_theory(sweep)]
    return page(
        title="What the lab found",
        about=f"Sweep {folder.resolve().name} · {count(sweep.runs)} simulated runs",
        blocks=blocks,
        foot="Every run can be repeated: fairway lab replay DIR --cell N.",
    )


def _overview(sweep: Sweep) -> Markup:
    shown = [
        Tile(name="Runs", value=count(sweep.runs), detail=f"at {count(len(sweep.points))} places of the grid"),
        Tile(name="Variants", value=count(len(variants(sweep.points))), detail="protocols with their options"),
        Tile(name="Datagrams", value=count(sweep.datagrams), detail="sent in all runs"),
        Tile(
            name="Broken promises",
            value=count(sweep.broken),
            detail="runs in which a rule that must always hold did not",
            bad=sweep.broken > 0,
        ),
    ]
    return section("Overview", [tiles(shown)])


def _recommendations(sweep: Sweep) -> Markup:
    heads = ("Situation", "Link", "Take", "Because", "Next", "Ahead", "Clear")
    rows: list[list[str | Cell]] = []
    for situation in sweep.situations():
        points = sweep.of(situation)
        if len(variants(points)) < 2:
            continue
        aim = aim_of(situation)
        for name, chosen in _bands(points):
            found = verdict(aim, chosen)
            if found is None or found.ratio is None:
                continue
            best = found.best
            rows.append(
                [
                    words(situation),
                    name,
                    best.variant,
                    f"{aim.short} {aim.show(found.value.mean)}",
                    found.second or "",
                    Cell(f"{found.ratio:.2f} ×", found.ratio),
                    "yes" if found.clear else "no",
                ]
            )
    note = (
        "For each situation the link at the middle of its band; the best by the measure that matters there, and how "
        "far the next one is behind; clear where their intervals of confidence do not touch. Derived from the table by "
        "the rules under the heat maps, not by opinion."
    )
    return section("Recommendations", [table(heads, rows, words=5)], note=note, name="recommendations")


def _bands(points: Sequence[Point]) -> list[tuple[str, list[Point]]]:
    """Return a mild and a hard link, near and far, as far as the grid has them."""
    losses, delays = axis(points, "loss"), axis(points, "delay_ms")
    mild = [loss for loss in losses if loss <= MILD_LOSS] or losses[:1]
    hard = [loss for loss in losses if loss > MILD_LOSS]
    chosen_losses = dict.fromkeys([mild[len(mild) // 2], *([hard[len(hard) // 2]] if hard else [])])
    chosen_delays = dict.fromkeys([delays[0], delays[-1]])
    return [
        (
            f"{100 * loss:g} % lost, {delay:g} ms each way",
            [point for point in points if point.loss == loss and point.delay_ms == delay],
        )
        for loss in chosen_losses
        for delay in chosen_delays
    ]


def _fairness(sweep: Sweep) -> list[Markup]:
    rows: list[list[str | Cell]] = []
    for point in sweep.points:
        found = point["fairness"]
        if found is not None:
            margin = "" if found.margin is None else f" ± {found.margin:.3f}"
            rows.append(
                [
                    point.variant,
                    words(point.situation),
                    f"{point.delay_ms:g} ms",
                    Cell(f"{found.mean:.3f}{margin}", found.mean),
                ]
            )
    if not rows:
        return []
    note = "Jain's index of the flows' rates: 1 when all get the same, one half when one of two flows gets everything."
    heads = ("Variant", "Situation", "Delay each way", "Fairness")
    return [section("Fairness", [table(heads, rows, words=3)], note=note, name="fairness")]


def _theory(sweep: Sweep) -> list[Markup]:
    """Draw closed forms with the points that should lie on them."""
    shown = [*_repeats(sweep), *_giving_up(sweep)]
    if not shown:
        return []
    note = "Where a closed form exists: one packet in flight, independent loss. Points are measured, dashes calculated."
    return [section("Theory beside measurement", [side_by_side(shown)], note=note, name="theory")]


def _repeats(sweep: Sweep) -> list[Markup]:
    alone = [point for point in sweep.points if point.window == 1 and point.surroundings["burst_length"] == 1]
    losses = axis(alone, "loss")
    if len(losses) < 2:
        return []
    known = variants(alone)
    lines = [
        line(
            variant, [p for p in alone if p.variant == variant], "retransmissions", lambda p: p.loss,
            share=True, drawing="points", colour=colour(variant, known),
        )
        for variant in known
    ]  # fmt: skip
    expected = [float(repeats_until_acknowledged(_millionths(loss), 1).mean) for loss in losses]
    lines.append(Line(name="geometric law", x=losses, y=expected, drawing="dashes"))
    picture = Chart(
        title="Repeats per message, one in flight",
        x=Axis(label="datagrams lost, each way", unit="share"),
        y=Axis(label="repeats per message"),
        lines=lines,
        says="A message is repeated until it and its acknowledgement get through: p(2 - p) / (1 - p)² repeats.",
    )
    return [chart(picture)]


def _giving_up(sweep: Sweep) -> list[Markup]:
    mine = [
        point
        for point in sweep.points
        if point.protocol == "pydevts" and point.surroundings["burst_length"] == 1 and point.surroundings["interval_ms"]
    ]
    losses = axis(mine, "loss")
    if len(losses) < 2:
        return []
    expected = [float(exchange_fails(_millionths(loss)) ** PYDEVTS_TRANSMISSIONS) for loss in losses]
    delay = axis(mine, "delay_ms")[0]
    there = [point for point in mine if point.delay_ms == delay]
    lines = [
        line("pydevts", there, "failed", lambda point: point.loss, share=True, drawing="points", colour=4),
        Line(name="eleven tries", x=losses, y=expected, drawing="dashes"),
    ]
    picture = Chart(
        title="pydevts gives up",
        x=Axis(label="datagrams lost, each way", unit="share"),
        y=Axis(label="messages reported as unknown", unit="share"),
        lines=lines,
        says="After the original and ten repeats: (1 - (1 - p)²)¹¹.",
    )
    return [chart(picture)]


def _millionths(loss: float) -> int:
    return round(Fraction(loss) * 1_000_000)
