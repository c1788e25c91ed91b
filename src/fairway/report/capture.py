"""The report of analysed captures: an overview for each point, the worst sessions, and each of those in detail."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa

from fairway.core.errors import BadOption, FairwayError
from fairway.core.tables import PACKETS, SESSIONS
from fairway.report.details import details
from fairway.report.overview import Found, overview
from fairway.report.page import Cell, Markup, element, page, protocol_mark, section, table
from fairway.report.survey import POINTS_MAX, Survey, broken_rules, survey
from fairway.report.tables import LakeTables, Row, key_of, rows_of
from fairway.report.traffic import Traffic, messages, traffic
from fairway.report.units import MICROSECONDS_PER_SECOND, count, duration, share

REASONS_SHOWN = 12
NOT_RECOGNISED = "of a flow that is none of the four protocols as far as its bytes tell"

TRIES = 3
"""A stream that compacts the lake may take away files that were just listed; then they are listed again."""

SEVERITY = (
    "The severity score puts the worst first: broken rules weigh most, then estimated loss, retransmissions and "
    "duplicates as shares of the packets, then a bad end; shares of a handful of packets weigh little."
)
MISSING = {
    "packets": "no time-sequence plots and no ladders",
    "sessions": "no list of sessions, no totals",
    "transfers": "no latencies and no outcomes of messages",
    "violations": "no broken rules",
    "timeline": "nothing over time",
}

_LISTED_COLUMNS = (
    *("session", "protocol", "point", "caller", "caller_port", "callee", "callee_port", "first", "duration_us"),
    *("packets_out", "packets_in", "bytes_out", "bytes_in", "retransmissions_out", "retransmissions_in"),
    *("retransmission_ratio", "loss_out", "loss_in", "rtt_p50_us", "rtt_p99_us", "violations", "ending"),
    "severity_score",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """How much the page holds."""

    listed: int = 2_000
    detailed: int = 30
    sessions: tuple[str, ...] = ()
    """Keys of sessions that get details, however well they went."""

    def __post_init__(self) -> None:
        for name, most in (("listed", 100_000), ("detailed", 1_000)):
            if not 0 <= getattr(self, name) <= most:
                raise BadOption(f"{name} is {getattr(self, name)}; it must be from 0 to {most:,}")


def capture_report(lake: Path, choice: Choice | None = None) -> str:
    """Return the page of a lake's capture tables; the same tables give the same page."""
    for remaining in reversed(range(TRIES)):
        try:
            return _report(lake, choice or Choice())
        except FileNotFoundError:
            if not remaining:
                raise
        except pa.ArrowInvalid as error:
            raise FairwayError(
                f"a file under {lake / 'tables'} is no Parquet that can be read ({error}); remove or restore it"
            ) from error
    raise AssertionError("unreachable")


def _report(lake: Path, choice: Choice) -> str:
    tables = LakeTables(lake)
    found = survey(tables, choice.listed, choice.sessions)
    chosen = _chosen(found, choice)
    listed = rows_of(found.worst, _LISTED_COLUMNS) if found.worst.num_rows else []
    blocks = [*_missing(tables), *_overviews(tables, found), *_sessions(found, listed, choice)]
    blocks.append(element("div", _unread(tables, found.sessions), {"id": "unread"}))
    blocks.append(element("article", "", {"id": "one", "hidden": "", "tabindex": "-1"}))
    return page(
        title="What the captures tell",
        about=_about(lake, found),
        blocks=blocks,
        data={
            "columns": _LISTED_COLUMNS,
            "sessions": [list(row.values()) for row in listed],
            "chosen": chosen,
            "details": list(details(tables, chosen).values()),
        },
        scripts=("capture.js",),
        foot=SEVERITY,
    )


def _chosen(found: Survey, choice: Choice) -> list[Row]:
    """Return the rows that get details: those asked for by key, then the worst."""
    names = (*SESSIONS.names, "severity_score")
    asked = [] if found.wanted is None else rows_of(found.wanted, names)
    unknown = set(choice.sessions) - {row["session"] for row in asked}
    if unknown:
        raise BadOption(f"no session has the key {min(unknown)}; the keys are in the column session of tables/sessions")
    worst = rows_of(found.worst.slice(0, choice.detailed), names) if found.worst.num_rows else []
    known = [key_of(row) for row in asked]
    return [*asked, *(row for row in worst if key_of(row) not in known)]


def _about(lake: Path, found: Survey) -> str:
    name = lake.resolve().name
    if found.first_us is None or found.last_us is None:
        return f"Lake {name}"
    began = datetime.fromtimestamp(found.first_us / MICROSECONDS_PER_SECOND, UTC)
    return f"Lake {name} · {began:%Y-%m-%d %H:%M:%S} UTC · {duration(found.last_us - found.first_us)}"


def _missing(tables: LakeTables) -> list[Markup]:
    lacking = tables.missing()
    if not lacking:
        return []
    said = "; ".join(f"{name} ({MISSING[name]})" for name in lacking)
    words = f"This lake lacks tables: {said}. fairway analyze writes them."
    return [element("p", words, {"class": "warning", "role": "note"})]


def _overviews(tables: LakeTables, found: Survey) -> list[Markup]:
    """Return one overview a point, all but the first hidden behind the choice of a point."""
    points = found.points()
    timeline = Traffic()
    if found.first_us is not None and found.last_us is not None:
        timeline = traffic(tables, found.first_us, found.last_us)
    everything = Found(found, timeline, messages(tables), broken_rules(tables), "violations" not in tables.missing())
    shown = points[:POINTS_MAX] or [""]
    parts = [element("div", overview(everything, point), {"data-point": point}) for point in shown]
    chooser = [_point_chooser(shown, len(points))] if len(points) > 1 else []
    return [element("div", [*chooser, *parts], {"id": "overview"})]


def _point_chooser(points: list[str], there: int) -> Markup:
    options = [element("option", point or "(unnamed)", {"value": point}) for point in points]
    more = f" {there - len(points)} more have seen less." if there > len(points) else ""
    words = (
        "Numbers of two points are never added: both may have seen the same datagram. Round trips, latencies and "
        f"losses are as seen from there; beside the receiver answers come at once.{more}"
    )
    select = element("select", options, {"id": "point"})
    return element("p", [element("label", ["Captured at ", select]), " ", words], {"class": "points"})


def _sessions(found: Survey, listed: list[Row], choice: Choice) -> list[Markup]:
    """Return the elements that `capture.js` fills with the list."""
    if not listed:
        return []
    note = (
        f"The {count(len(listed))} worst of {count(found.sessions)}, worst first."
        if (len(listed) < found.sessions)
        else f"All {count(found.sessions)}, worst first."
    )
    note += f" Those with ▸ open: the worst {min(choice.detailed, len(listed))}, and what --session names."
    elements = Markup(
        '<div class="tools"><label>Search <input type="search" id="search" '
        'placeholder="address, port, key, end" autocomplete="off"></label>'
        '<div id="protocols" role="group" aria-label="Protocols"></div><output id="matches"></output></div>'
        '<div class="scroll"><table id="sessions"></table></div><nav id="pages" aria-label="Pages of the list"></nav>'
    )
    return [section("Sessions", [elements], note=note, name="list")]


def _unread(tables: LakeTables, sessions: int) -> list[Markup]:
    """Return the table of records that could not be decoded or recognised, or nothing if all could."""
    total, found = 0, Counter[tuple[str, str, str]]()
    for batch in tables.batches(PACKETS, ("point", "protocol", "kind", "reason")):
        total += len(batch)
        grouped = batch.group_by(["point", "protocol", "kind", "reason"]).aggregate([([], "count_all")])
        for row in grouped.to_pylist():
            if row["protocol"] == "unknown" or row["kind"] == "malformed" or row["reason"] is not None:
                found[row["point"], row["protocol"], row["reason"] or NOT_RECOGNISED] += row["count_all"]
    if not found:
        return []
    note = f"Of {count(total)} records in the captures, those of all points together."
    if not sessions:
        note = f"None of {count(total)} records belongs to a session. fairway analyze --map udpc=9000 names a port."
    rows: list[list[str | Cell]] = [
        [why.replace("_", " "), protocol_mark(protocol), point, Cell(count(number), number), Cell(share(of), of)]
        for (point, protocol, why), number in sorted(found.items(), key=lambda one: (-one[1], one[0]))[:REASONS_SHOWN]
        for of in (number / total,)
    ]
    heads = ("Why", "Protocol", "Seen at", "Records", "Share")
    return [section("Records that could not be read", [table(heads, rows, words=3)], note=note)]
