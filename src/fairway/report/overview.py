"""The top of the report, for one point of capture: the verdict, the numbers, what happened over time, broken rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from fairway.report.page import (
    COLOURS,
    Axis,
    Cell,
    Chart,
    Line,
    Markup,
    Tile,
    chart,
    element,
    protocol_mark,
    section,
    side_by_side,
    table,
    tiles,
)
from fairway.report.survey import LOSES_TOO_MUCH, REPEATS_TOO_MUCH, Broken, Survey, Totals
from fairway.report.tables import Row
from fairway.report.traffic import Key, Messages, Traffic, edge_us
from fairway.report.units import MICROSECONDS_PER_SECOND, NOTHING, bytes_, count, duration, share


@dataclass(frozen=True, slots=True)
class Found:
    """What the tables say, all points together."""

    sessions: Survey
    traffic: Traffic
    messages: dict[Key, Messages]
    rules: Sequence[Broken]
    judged: bool = True
    """Whether there is a table of broken rules."""


def overview(found: Found, point: str) -> list[Markup]:
    by_protocol = found.sessions.of_point(point)
    rules = [rule for rule in found.rules if rule.point == point]
    total = Totals()
    for part in by_protocol.values():
        total.add(dict(part.sums))
    head = [
        element("p", _verdict(total, rules, found.judged), {"class": "verdict"}),
        tiles([*_tiles(total, _messages(found, point)), _rules_tile(rules, found.judged)]),
    ]
    blocks = [section("Overview", head)] if by_protocol else []
    if by_protocol:
        blocks.append(section("Protocols", [_protocols(found, point, by_protocol)]))
    pictures = [*_over_time(found.traffic, point, list(by_protocol)), *_latencies(found, point, list(by_protocol))]
    if pictures:
        blocks.append(section("Over time, and how long messages took", [side_by_side(pictures)]))
    if rules:
        note = "Clauses are those of docs/wire; a frame opens in Wireshark with the command beside it."
        blocks.append(section("Broken rules", [_rules(rules)], note=note))
    return blocks


def _verdict(total: Totals, rules: Sequence[Broken], judged: bool) -> str:
    sessions = total["sessions"]
    if not total["in_need"]:
        unbroken = "no rule was broken" if judged else "rules were not checked"
        return f"All {count(sessions)} sessions went well: {unbroken}, and none lost or repeated much."
    parts = [
        f"{count(total[name])} {words}"
        for name, words in (
            ("breaking", "broke a rule"),
            ("repeating", f"repeated {100 * REPEATS_TOO_MUCH:.0f} % or more of the packets"),
            ("losing", f"lost about {100 * LOSES_TOO_MUCH:.0f} % or more"),
            ("badly_ended", "got a refusal or no answer"),
        )
        if total[name]
    ]
    verb = "session needs" if total["in_need"] == 1 else "sessions need"
    sentence = f"{count(total['in_need'])} of {count(sessions)} {verb} attention: {', '.join(parts)}."
    errors = [rule for rule in rules if rule.severity == "error"]
    return f"{sentence} The rule broken most is {errors[0].rule}, {_times(errors[0].count)}." if errors else sentence


def _of(number: float, noun: str) -> str:
    return f"{count(number)} {noun}" if number == 1 else f"{count(number)} {noun}s"


def _times(number: int) -> str:
    return "once" if number == 1 else f"{count(number)} times"


def _messages(found: Found, point: str) -> Messages:
    total = Messages()
    for (at, _), part in found.messages.items():
        if at == point:
            total.outcomes += part.outcomes
            total.buckets += part.buckets
    return total


def _rules_tile(rules: Sequence[Broken], judged: bool) -> Tile:
    if not judged:
        return Tile(name="Broken rules", value=NOTHING, detail="their table is missing")
    errors = sum(rule.count for rule in rules if rule.severity == "error")
    warnings = sum(rule.count for rule in rules) - errors
    return Tile(name="Broken rules", value=count(errors), detail=f"and {_of(warnings, 'warning')}", bad=errors > 0)


def _tiles(total: Totals, messages: Messages) -> list[Tile]:
    again = total.retransmissions / total.packets if total.packets else None
    return [
        Tile(name="Sessions", value=count(total["sessions"]), detail=f"{count(total['in_need'])} need attention"),
        Tile(name="Datagrams", value=count(total.packets), detail=f"{bytes_(total.bytes_)} of UDP payload"),
        Tile(
            name="Retransmissions",
            value=share(again),
            detail=f"{count(total.retransmissions)} sent again, {count(total['duplicates'])} needlessly",
            bad=(again or 0) >= REPEATS_TOO_MUCH,
        ),
        Tile(
            name="Loss, estimated",
            value=share(total.loss),
            detail="of the packets where it can be told" if total.loss is not None else "cannot be told here",
            bad=(total.loss or 0) >= LOSES_TOO_MUCH,
        ),
        Tile(
            name="Messages",
            value=count(messages.count or total["transfers_out"] + total["transfers_in"]),
            detail=f"{count(messages.unacknowledged)} not acknowledged" if messages.count else "",
            bad=messages.unacknowledged > 0,
        ),
        Tile(
            name="Latency, median",
            value=duration(messages.quantile_us(0.5)),
            detail=f"99 % within {duration(messages.quantile_us(0.99))}" if messages.buckets else "",
        ),
    ]


def _protocols(found: Found, point: str, by_protocol: dict[str, Totals]) -> Markup:
    heads = (
        *("Protocol", "Sessions", "Datagrams", "Payload", "Retransmissions", "Loss (est.)", "Round trip", "Messages"),
        *("Latency p50", "p99", "Breaches"),
    )
    rows: list[list[str | Cell]] = []
    most = max(total.bytes_ for total in by_protocol.values()) or 1
    for protocol, total in by_protocol.items():
        messages = found.messages.get((point, protocol), Messages())
        again = total.retransmissions / total.packets if total.packets else None
        p50_us, p99_us = messages.quantile_us(0.5), messages.quantile_us(0.99)
        rows.append(
            [
                protocol_mark(protocol),
                Cell(count(total["sessions"]), total["sessions"]),
                Cell(count(total.packets), total.packets),
                Cell(bytes_(total.bytes_), total.bytes_, bar=total.bytes_ / most),
                Cell(share(again), again),
                Cell(share(total.loss), total.loss),
                Cell(duration(total.rtt_us), total.rtt_us),
                Cell(count(messages.count), messages.count),
                Cell(duration(p50_us), p50_us),
                Cell(duration(p99_us), p99_us),
                Cell(count(total["violations"]), total["violations"]),
            ]
        )
    return table(heads, rows)


def _over_time(traffic: Traffic, point: str, protocols: Sequence[str]) -> list[Markup]:
    there = [protocol for protocol in protocols if (point, protocol) in traffic.by_key]
    if not there:
        return []
    fine = traffic.step_us < MICROSECONDS_PER_SECOND
    times = traffic.times_s(traffic.start_us if fine else 0)
    every = "each second" if traffic.step_us == MICROSECONDS_PER_SECOND else f"each {duration(traffic.step_us)}"
    began = datetime.fromtimestamp(traffic.start_us / MICROSECONDS_PER_SECOND, UTC)
    since = Axis(label=f"since {began:%H:%M:%S.%f} UTC", unit="seconds")
    clock = since if fine else Axis(label="time, UTC", unit="clock")

    def picture(measure: str, y: Axis, says: str) -> Markup:
        lines = [
            Line(
                name=one, x=times, y=traffic.series((point, one), measure), drawing="steps", colour=COLOURS.get(one, 0)
            )
            for one in there
        ]
        return chart(Chart(title=measure.capitalize(), x=clock, y=y, lines=lines, says=says))

    return [
        picture(
            "goodput",
            Axis(label="bytes per second", unit="bytes_per_s"),
            f"Bodies seen for the first time, both ways, all sessions, {every}.",
        ),
        picture(
            "retransmissions",
            Axis(label="retransmissions per second", unit="count"),
            f"Datagrams sent again, {every}: where this rises, something was lost or late.",
        ),
    ]


def _latencies(found: Found, point: str, protocols: Sequence[str]) -> list[Markup]:
    lines = []
    for protocol in protocols:
        buckets = found.messages.get((point, protocol), Messages()).buckets
        if buckets:
            shown = range(min(buckets) - 1, max(buckets) + 2)
            lines.append(
                Line(
                    name=protocol,
                    x=[edge_us(bucket + 0.5) for bucket in shown],
                    y=[buckets[bucket] / buckets.total() for bucket in shown],
                    drawing="area",
                    colour=COLOURS.get(protocol, 0),
                )
            )
    if not lines:
        return []
    picture = Chart(
        title="Latency of messages",
        x=Axis(label="from first sent to acknowledged", unit="us", log=True),
        y=Axis(label="share of messages", unit="share"),
        lines=lines,
        says="Each protocol for itself. A second hump is the price of retransmission: a message waited for a timer.",
    )
    return [chart(picture)]


def _rules(rules: Sequence[Broken]) -> Markup:
    """Return one fold for each rule, with a few examples in it."""
    folds = []
    for rule in rules:
        head = [
            element("span", rule.severity, {"class": f"severity {rule.severity}"}),
            element("strong", rule.rule),
            protocol_mark(rule.protocol),
            element("span", _times(rule.count), {"class": "times"}),
            element("span", rule.examples[0]["expected"] if rule.examples else "", {"class": "expected"}),
        ]
        examples = element("ul", [_example(one) for one in rule.examples])
        folds.append(element("details", [element("summary", head), examples]))
    return element("div", folds, {"class": "rules"})


def _example(one: Row) -> str:
    file, frame = one["file"], one["frame"]
    where = element("span", f"frame {frame} of {file}", {"class": "where"})
    if one["session"] is not None:
        where = element("a", where, {"href": "#", "data-session": one["session"]})
    command = element("code", wireshark(file, frame))
    return element("li", [where, " found ", element("em", one["found"]), ", expected ", one["expected"], command])


def wireshark(file: str, frame: int) -> str:
    """Return the command that opens a capture at a frame; `assets/capture.js` says the same."""
    quoted = "'" + file.replace("'", "'\\''") + "'"
    return f"wireshark -r {quoted} -g {frame}"
