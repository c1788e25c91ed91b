"""The report of captures says what the tables say, of whatever size, and what is missing."""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from html import unescape
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from fairway.cli import run
from fairway.core.errors import BadOption, FairwayError
from fairway.core.tables import CAPTURE_TABLES, PACKETS, SESSIONS, TIMELINE
from fairway.report.capture import Choice, capture_report
from fairway.report.drawings import (
    ANSWER,
    DRAWN_MAX,
    DUPLICATE,
    FIRST,
    LADDER_PACKETS,
    LOST,
    RETRANSMISSION,
    RETRANSMISSIONS_DRAWN_MAX,
    packets_of,
    streams,
    words,
)
from fairway.report.survey import severity_scores
from fairway.report.tables import LakeTables
from fairway.report.traffic import BINS_MAX, Messages, step_us
from fairway.store.parquet import arrow_schema
from tests.report.lakes import START_US, Tables, alone, crowd, mixed, put, transmission


def data_of(text: str) -> dict[str, Any]:
    """Return what the page's scripts read."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert found
    data: dict[str, Any] = json.loads(found.group(1))
    return data


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a lake of a few dozen conversations."""
    return mixed().write(tmp_path_factory.mktemp("lake"))


@pytest.fixture(scope="module")
def text(lake: Path) -> str:
    return capture_report(lake)


def test_the_overview_adds_up_what_the_sessions_say(lake: Path, text: str) -> None:
    rows = DeltaTable(lake / "tables" / "sessions").to_pyarrow_table().to_pylist()
    packets = sum(row["packets_out"] + row["packets_in"] for row in rows)
    assert f"<dt>Datagrams</dt><dd>{packets:,}</dd>" in text
    assert f"<dt>Sessions</dt><dd>{len(rows)}</dd>" in text
    needy = [
        row
        for row in rows
        if row["violations"]
        or row["retransmission_ratio"] >= 0.05
        or max(row["loss_out"], row["loss_in"] or 0) >= 0.02
        or row["ending"] in ("refused", "unanswered")
    ]
    assert f"{len(needy)} of {len(rows)} sessions need attention" in text


def test_sessions_that_went_well_are_said_to_have(tmp_path: Path) -> None:
    tables = alone(20)
    said = "sessions went well: {}, and none lost or repeated much."
    assert said.format("no rule was broken") in capture_report(tables.write(tmp_path / "all"))
    unjudged = tables.write(tmp_path / "less", leave_out=("violations",))
    assert said.format("rules were not checked") in capture_report(unjudged)


def test_the_worst_session_comes_first(text: str) -> None:
    data = data_of(text)
    assert data["chosen"][0]["session"] == "udpc-000090"
    column = data["columns"].index("severity_score")
    points = [row[column] for row in data["sessions"]]
    assert points == sorted(points, reverse=True)


def test_every_copy_is_drawn_and_what_it_replaces_is_presumed_lost(text: str) -> None:
    data = data_of(text)
    row, marks = data["chosen"][0], data["details"][0]["streams"]["out"]["k"]
    retransmissions = marks.count(RETRANSMISSION)
    assert retransmissions == row["retransmissions_out"]
    assert marks.count(LOST) == retransmissions
    assert marks.count(FIRST) == marks.count(ANSWER) == row["transfers_out"]


def test_the_ladder_holds_the_first_packets_in_order(text: str) -> None:
    ladder = data_of(text)["details"][0]["ladder"]
    assert len(ladder) == LADDER_PACKETS
    assert [rung[2] for rung in ladder[:2]] == ["syn 1", "syn ack 1 answers 0"]
    assert [rung[0] for rung in ladder] == sorted(rung[0] for rung in ladder)


def test_the_goodput_over_time_adds_up_to_the_messages(text: str) -> None:
    data = data_of(text)
    timeline = data["details"][0]["timeline"]
    sent_bytes = data["chosen"][0]["transfers_out"] * 1_000
    assert sum(timeline["goodput_out"]) * timeline["step"] == pytest.approx(sent_bytes)


def test_broken_rules_name_the_frame_to_open(lake: Path, text: str) -> None:
    frame = DeltaTable(lake / "tables" / "violations").to_pyarrow_table().to_pylist()[0]["frame"]
    assert f"frame {frame} of link.pcapng" in text
    assert f"wireshark -r &#x27;link.pcapng&#x27; -g {frame}" in text
    assert [broken[0] for broken in data_of(text)["details"][0]["violations"]] == ["UDPC-3.4", "UDPC-5.1", "UDPC-6.2w"]


def test_the_same_tables_give_the_same_page(lake: Path, text: str) -> None:
    assert capture_report(lake) == text


def test_a_session_that_went_well_gets_details_when_it_is_asked_for(lake: Path) -> None:
    choice = Choice(detailed=2, sessions=("mrp-000001",))
    assert data_of(capture_report(lake, choice))["chosen"][0]["session"] == "mrp-000001"
    with pytest.raises(BadOption, match="no session has the key nobody"):
        capture_report(lake, Choice(sessions=("nobody",)))


def charts_of(text: str) -> dict[str, dict[str, Any]]:
    """Return the descriptions of the charts, by their titles."""
    told = [json.loads(unescape(found)) for found in re.findall(r'data-chart="([^"]*)"', text)]
    return {picture["title"]: picture for picture in told}


def test_the_goodput_of_all_sessions_is_summed_second_by_second(lake: Path, text: str, tmp_path: Path) -> None:
    rows = DeltaTable(lake / "tables" / "timeline").to_pyarrow_table().to_pylist()
    for piece in range(4):
        put(tmp_path, TIMELINE, rows[piece::4])
    put(tmp_path, SESSIONS, DeltaTable(lake / "tables" / "sessions").to_pyarrow_table().to_pylist())
    for page in (text, capture_report(tmp_path)):
        lines = {line["name"]: line for line in charts_of(page)["Goodput"]["lines"]}
        for protocol in ("udpc", "mrp", "rup"):
            first_s, second_s = lines[protocol]["x"][:2]
            sent = sum(row["goodput_out"] for row in rows if row["protocol"] == protocol)
            assert sum(lines[protocol]["y"]) * (second_s - first_s) == pytest.approx(sent)


def test_rules_are_shown_where_they_were_seen_broken(tmp_path: Path) -> None:
    tables = Tables()
    transmission(tables, 1, point="client", messages=60, broken=("UDPC-3.4",))
    transmission(tables, 2, point="server", messages=50, broken=("UDPC-5.1", "UDPC-5.1"))
    client, server = re.split(r'<div data-point="server">', capture_report(tables.write(tmp_path)))
    assert "UDPC-5.1" not in client
    assert "The rule broken most is UDPC-5.1, 2 times." in server


def test_points_are_never_added_up(tmp_path: Path) -> None:
    tables = Tables()
    for point in ("client", "server"):
        transmission(tables, 1, point=point, messages=50, loss=0.1)
    text = capture_report(tables.write(tmp_path))
    assert text.count("<dt>Sessions</dt><dd>1</dd>") == 2
    assert re.findall(r'<div data-point="([^"]*)">', text) == ["client", "server"]
    details = data_of(text)["details"]
    assert len(details) == 2
    assert details[0]["streams"] == details[1]["streams"]


@pytest.mark.parametrize("gone", [table.name for table in CAPTURE_TABLES])
def test_a_missing_table_is_named_and_the_rest_is_shown(gone: str, tmp_path: Path) -> None:
    tables = alone(20, loss=0.2, broken=("UDPC-3.4",))
    text = capture_report(tables.write(tmp_path, leave_out=(gone,)))
    assert f"This lake lacks tables: {gone} (" in text
    assert ("<dt>Sessions</dt>" in text) == (gone != "sessions")
    assert ("<dt>Broken rules</dt><dd>–</dd>" in text) == (gone == "violations")


def test_records_that_could_not_be_read_are_counted_by_the_reason(tmp_path: Path) -> None:
    tables = alone(20)
    packets = tables.rows["packets"]
    stray = dict(packets[0]) | {"session": None, "message": None, "from_caller": None}
    packets += [stray | {"protocol": "unknown", "kind": None}] * 3
    packets += [stray | {"kind": "malformed", "reason": "zero_index"}] * 2
    text = capture_report(tables.write(tmp_path))
    assert re.search(r"zero index</td>.{0,200}>udpc<.{0,200}data-order=\"2\">2<", text)
    assert re.search(r"as far as its bytes tell</td>.{0,200}>unknown<.{0,200}data-order=\"3\">3<", text)
    assert f"Of {len(packets)} records" in text


def test_a_lake_without_a_session_says_how_to_name_a_port(tmp_path: Path) -> None:
    tables = alone(20)
    put(tmp_path, PACKETS, [row | {"protocol": "unknown", "session": None} for row in tables.rows["packets"]])
    assert "None of 42 records belongs to a session. fairway analyze --map" in capture_report(tmp_path)


def test_a_lake_of_which_all_was_read_says_nothing_of_it(text: str) -> None:
    assert "Records that could not be read" not in text


def test_empty_tables_make_a_page(tmp_path: Path) -> None:
    assert "<h1>" in capture_report(Tables().write(tmp_path))


def test_a_hundred_thousand_sessions_make_a_small_page(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "tables" / "sessions", crowd(100_000))
    text = capture_report(tmp_path)
    assert len(text) < 3_000_000
    assert "The 2,000 worst of 100,000, worst first." in text
    assert len(data_of(text)["sessions"]) == 2_000
    assert f"<dt>Sessions</dt><dd>{100_000:,}</dd>" in text


def test_worst_first_does_not_depend_on_how_the_table_is_cut(tmp_path: Path) -> None:
    sessions = crowd(4_000)
    pages = []
    for pieces in (1, 7):
        folder = tmp_path / str(pieces) / "lake" / "tables" / "sessions"
        step = len(sessions) // pieces + 1
        for piece in range(pieces):
            write_deltalake(folder, sessions.slice(piece * step, step), mode="append")
        pages.append(capture_report(tmp_path / str(pieces) / "lake", Choice(listed=100)))
    assert pages[0] == pages[1]


def hot_packets(count: int, start: int) -> pa.Table:
    """Return many packets of one session, by columns."""
    import numpy as np

    number = np.arange(start, start + count)
    known = {
        "session": pa.array(["hot"] * count),
        "protocol": pa.array(["udpc"] * count),
        "kind": pa.array(["important"] * count),
        "from_caller": pa.array([True] * count),
        "frame": number + 1,
        "at_ns": START_US * 1_000 + number * 1_000,
        "retransmission": (number % 50 == 0).astype(np.int32),
        "message": pa.array(number).cast(pa.string()),
    }
    empty = {"string": "", "boolean": False}
    columns = []
    for column in arrow_schema(PACKETS):
        if column.name in known:
            columns.append(pa.array(known[column.name]).cast(column.type))
        elif column.nullable:
            columns.append(pa.nulls(count, column.type))
        else:
            columns.append(pa.array([empty.get(str(column.type), 0)] * count).cast(column.type))
    return pa.Table.from_arrays(columns, schema=arrow_schema(PACKETS))


def test_a_session_of_400_000_packets_is_thinned_as_it_is_read(tmp_path: Path) -> None:
    tables = alone(10)
    session = tables.rows["sessions"][0]
    session |= {"session": "hot", "point": "", "packets_out": 400_000, "packets_in": 0, "retransmissions_out": 8_000}
    put(tmp_path, SESSIONS, [session])
    for start in range(0, 400_000, 100_000):
        write_deltalake(tmp_path / "tables" / "packets", hot_packets(100_000, start), mode="append")
    kept = packets_of(LakeTables(tmp_path), [session])["hot", ""]
    assert sum(piece.num_rows for piece in kept.drawn) < 1.2 * (DRAWN_MAX + RETRANSMISSIONS_DRAWN_MAX)
    text = capture_report(tmp_path)
    detail = data_of(text)["details"][0]
    marks = detail["streams"]["out"]["k"]
    assert 0.5 * DRAWN_MAX < marks.count(FIRST) < 1.2 * DRAWN_MAX
    assert 0.5 * RETRANSMISSIONS_DRAWN_MAX < marks.count(RETRANSMISSION) < 1.2 * RETRANSMISSIONS_DRAWN_MAX
    assert detail["stride"] == 98
    assert len(text) < 2_000_000


def packet(**fields: object) -> dict[str, object]:
    """Return a row of packets as the drawings read it."""
    named = ("mrp_from_sequence", "mrp_sequence", "rup_position", "rup_total", "udpc_index", "udpc_ack")
    empty: dict[str, object] = dict.fromkeys((*named, "pydevts_success", "message", "duplicate", "retransmission"))
    return empty | {"frame": 1, "at_ns": 0, "body_bytes": 0, "file": "f", "from_caller": True} | fields


def test_a_needless_copy_declares_nothing_lost() -> None:
    rows = [
        packet(kind="data", message="5", retransmission=0),
        packet(kind="data", message="5", retransmission=1, duplicate=True, at_ns=1_000),
    ]
    assert streams("mrp", rows, 0)["out"]["k"] == [FIRST, DUPLICATE]


def test_a_bare_acknowledgement_of_mrp_is_an_answer() -> None:
    rows = [
        packet(kind="data", message="5", retransmission=0, body_bytes=9, mrp_from_sequence=0),
        packet(kind="data", message="5", from_caller=False, mrp_from_sequence=5, at_ns=1_000),
    ]
    assert streams("mrp", rows, 0)["out"]["k"] == [FIRST, ANSWER]


def test_messages_of_rup_are_laid_end_to_end() -> None:
    rows = [
        packet(kind="data", message="a", rup_position=0, rup_total=1_000, retransmission=0),
        packet(kind="data", message="b", rup_position=500, rup_total=2_000, retransmission=0, at_ns=1_000),
        packet(kind="confirm", message="b", rup_position=2_000, from_caller=False, at_ns=2_000),
    ]
    assert streams("rup", rows, 0)["out"]["y"] == [0, 1_500, 3_000]


@pytest.mark.parametrize(
    ("protocol", "row", "said"),
    [
        ("udpc", packet(kind="important_ack", udpc_index=3, udpc_ack=7), "important ack 3 answers 7"),
        ("mrp", packet(kind="data", mrp_sequence=4, mrp_from_sequence=2, body_bytes=64), "data 4 up to 2 · 64 B"),
        ("rup", packet(kind="data", rup_position=1_200, rup_total=4_096), "data at 1,200 of 4,096"),
        ("rup", packet(kind="confirm", rup_position=4_096), "confirm up to 4,096"),
        ("pydevts", packet(kind="ack", message="9", pydevts_success=1), "ack 9 CRC failed"),
    ],
)
def test_a_rung_says_what_the_packet_is(protocol: str, row: dict[str, object], said: str) -> None:
    assert words(protocol, row) == said


def test_the_severity_score_weighs_rules_before_losses_and_losses_of_many_before_those_of_few(tmp_path: Path) -> None:
    tables = Tables()
    for number in range(4):
        transmission(tables, number, messages=10)
    good, breaking, lossy, tiny = tables.rows["sessions"]
    breaking |= {"violations": 1}
    lossy |= {"packets_out": 1_000, "packets_in": 1_000, "loss_out": 0.3}
    tiny |= {"packets_out": 1, "packets_in": 1, "loss_out": 0.5}
    put(tmp_path, SESSIONS, [good, breaking, lossy, tiny])
    points = list(severity_scores(DeltaTable(tmp_path / "tables" / "sessions").to_pyarrow_table()))
    assert points[1] > points[2] > points[3] > points[0] == 0


def test_steps_of_time_are_round_and_few(lake: Path) -> None:
    tables = LakeTables(lake)
    assert step_us(tables, 0, 14_000) == 50
    assert step_us(tables, 0, 60_000_000) == 1_000_000
    assert step_us(tables, 0, 7 * 86_400_000_000) == 3_600_000_000
    for days in (0.1, 1, 30, 4_000):
        span_us = int(days * 86_400_000_000)
        assert span_us / step_us(tables, 0, span_us) <= BINS_MAX


def test_a_capture_of_milliseconds_is_shown_in_milliseconds(tmp_path: Path) -> None:
    tables = alone(100, rate_per_s=10_000, rtt_us=1_000)
    text = capture_report(tables.write(tmp_path))
    (line,) = charts_of(text)["Goodput"]["lines"]
    steps = [later - earlier for earlier, later in itertools.pairwise(line["x"])]
    assert charts_of(text)["Goodput"]["x"]["unit"] == "seconds"
    assert line["x"][0] == 0.0
    assert max(line["x"]) < 0.02
    assert max(steps) == pytest.approx(50e-6)
    assert sum(line["y"]) * 50e-6 == pytest.approx(100 * 1_000)
    timeline = data_of(text)["details"][0]["timeline"]
    assert timeline["step"] == 50e-6
    assert len(timeline["t"]) > 100
    assert sum(timeline["goodput_out"]) * timeline["step"] == pytest.approx(100 * 1_000)


def test_a_capture_of_a_week_is_shown_in_hours(tmp_path: Path) -> None:
    tables = alone(10)
    hours = [tables.rows["timeline"][0] | {"second": START_US + hour * 3_600_000_000} for hour in range(7 * 24)]
    week = {"first": START_US, "last": START_US + 7 * 24 * 3_600_000_000}
    put(tmp_path, SESSIONS, [tables.rows["sessions"][0] | week])
    put(tmp_path, TIMELINE, hours)
    text = capture_report(tmp_path)
    (line,) = charts_of(text)["Goodput"]["lines"]
    assert {later - earlier for earlier, later in itertools.pairwise(line["x"])} == {3_600.0}
    assert "each 1 h 0 min" in text


def test_a_quantile_lies_in_its_bucket() -> None:
    messages = Messages(buckets=Counter({30: 90, 40: 10}))
    median, high = messages.quantile_us(0.5), messages.quantile_us(0.95)
    assert median is not None
    assert high is not None
    assert 1_000 <= median <= 1_259
    assert 10_000 <= high <= 12_590
    assert Messages().quantile_us(0.5) is None


def test_a_long_timeline_is_summed_in_steps(tmp_path: Path) -> None:
    tables = alone(10)
    day = [dict(tables.rows["timeline"][0]) for _ in range(5_000)]
    for number, row in enumerate(day):
        row |= {"second": START_US + number * 1_000_000, "goodput_out": 100}
    put(tmp_path, SESSIONS, [tables.rows["sessions"][0] | {"first": START_US, "last": START_US + 5_000 * 1_000_000}])
    for piece in range(3):
        put(tmp_path, TIMELINE, day[piece::3])
    timeline = data_of(capture_report(tmp_path))["details"][0]["timeline"]
    assert len(timeline["t"]) <= BINS_MAX
    assert sum(timeline["goodput_out"]) * timeline["step"] == pytest.approx(500_000)


@pytest.mark.parametrize("option", [{"listed": -1}, {"detailed": 2_000}])
def test_a_page_cannot_be_asked_to_hold_everything(option: dict[str, int]) -> None:
    with pytest.raises(BadOption, match="it must be from 0 to"):
        Choice(**option)  # type: ignore[arg-type]


def test_a_folder_without_tables_is_refused_in_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["report", "--lake", str(tmp_path), "--out", str(tmp_path / "x.html")]) == 2
    said = capsys.readouterr().err
    assert "holds no tables of captures; `fairway analyze" in said
    assert said.count("\n") == 1
    assert run(["report", "--lake", str(tmp_path / "nowhere")]) == 2
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_no_parquet_is_named(tmp_path: Path) -> None:
    tables = alone(10)
    put(tmp_path, SESSIONS, tables.rows["sessions"])
    (file,) = (tmp_path / "tables" / "sessions").glob("*.parquet")
    file.write_bytes(b"PNG")
    with pytest.raises(FairwayError, match=file.name):
        capture_report(tmp_path)


def test_a_table_of_another_version_is_refused(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "tables" / "sessions", pa.table({"session": ["x"]}))
    with pytest.raises(BadOption, match="has no column protocol: another version of Fairway wrote it"):
        capture_report(tmp_path)


def test_the_command_writes_the_page_and_says_where(
    lake: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "page.html"
    assert run(["report", "--lake", str(lake), "--out", str(out), "--json", "--details", "1"]) == 0
    assert json.loads(capsys.readouterr().out) == {"path": str(out), "bytes": out.stat().st_size}
    assert len(data_of(out.read_text())["details"]) == 1
    assert list(tmp_path.iterdir()) == [out]


def test_the_command_wants_one_source(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["report"]) == 2
    assert run(["report", "--lake", str(tmp_path), "--lab", str(tmp_path)]) == 2
    assert capsys.readouterr().err == "fairway: say one of --lake DIR and --lab DIR\n" * 2


def test_a_page_that_cannot_be_written_is_said_in_one_line(
    lake: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["report", "--lake", str(lake), "--out", str(tmp_path / "no" / "x.html"), "--details", "0"]) == 1
    assert "no folder" in (said := capsys.readouterr().err)
    assert len(said.strip().splitlines()) == 1
