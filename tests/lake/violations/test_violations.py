"""Each rule is reported where it is broken, alone, and none where our own endpoints suffer a bad network.

All captures go through one job, by the way that `fairway analyze` goes: planning costs more than judging.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from fairway.core.tables import PROTOCOLS, VIOLATIONS
from fairway.lake.analysis.job import SMALL
from fairway.lake.analysis.sessions import EPISODE
from fairway.lake.schemas import spark_schema
from fairway.lake.violations import CHECKS, Rule, rules, violations
from fairway.sim.swarm import draw
from tests.conftest import ROOT
from tests.lake.pages import VIOLATIONS as PAGE
from tests.lake.pages import violations_page
from tests.lake.violations import mrp_cases, pydevts_cases, rup_cases, udpc_cases
from tests.lake.violations.cases import Case
from tests.lake.violations.worlds import PORTS, keeps_to_the_standard, packets, simulated

CASES: dict[str, tuple[Case, ...]] = {
    "udpc": udpc_cases.CASES,
    "mrp": mrp_cases.CASES,
    "rup": rup_cases.CASES,
    "pydevts": pydevts_cases.CASES,
}
LEGAL = [
    ("mrp", "two ends choose the same id", mrp_cases.SAME_IDS),
    ("mrp", "one packet is old while others advance", mrp_cases.PROGRESS),
    *(("rup", name, steps) for name, steps in rup_cases.LEGAL.items()),
]
NODES = {
    "broken: two clients": mrp_cases.TWO_CLIENTS,
    "broken: two servers": mrp_cases.TWO_SERVERS,
    "broken: both roles": mrp_cases.BOTH_ROLES,
    "one after the other": mrp_cases.ONE_AFTER_THE_OTHER,
    "of others": mrp_cases.OF_OTHERS,
}
BROKEN_NODES = {"broken: two clients": 5, "broken: two servers": 4, "broken: both roles": 4}
"""The frame that gives the id a second time: a con reply or a connect."""
ALL_CASES = [(protocol, case) for protocol in PROTOCOLS for case in CASES[protocol]]
PORT_OF = {protocol: port for port, protocol in PORTS.items()}
SEEDS_EACH = 5
LATE, DAMAGED = "late ", "damaged "
"""Cases without their first datagram, and cases with a damaged stretch of the file behind it."""
Row = dict[str, Any]


def _seeds(protocol: str) -> list[int]:
    """The first seeds of the swarm in which nobody lies and no counter starts where the standard does not let it."""
    fit = (seed for seed in range(10_000) if keeps_to_the_standard(protocol, seed))
    return [next(fit) for _ in range(SEEDS_EACH)]


SEEDS = [(protocol, seed) for protocol in PROTOCOLS for seed in _seeds(protocol)]


def _liars(protocol: str) -> list[int]:
    """The first seeds of the swarm in which somebody lies."""
    return [seed for seed in range(100) if draw(protocol, seed).hostile_actions][:2]


LIARS = [(protocol, seed) for protocol in PROTOCOLS for seed in _liars(protocol)]


@pytest.fixture(scope="module")
def judged(spark: SparkSession) -> DataFrame:
    """`packets` of every case, of each without its beginning, and of the simulated runs."""
    captures = [
        (f"{protocol} {case.name}", case.capture(number, PORT_OF[protocol]))
        for number, (protocol, case) in enumerate(ALL_CASES)
    ]
    captures += [
        (f"{LATE}{protocol} {case.name}", case.without_beginning().capture(len(ALL_CASES) + number, PORT_OF[protocol]))
        for number, (protocol, case) in enumerate(ALL_CASES)
        if len(case.steps) > 1
    ]
    captures += [
        (f"{DAMAGED}{protocol} {case.name}", case.capture(2 * len(ALL_CASES) + number, PORT_OF[protocol]))
        for number, (protocol, case) in enumerate(ALL_CASES)
    ]
    captures += [
        (name, mrp_cases.nodes_capture(sent, number, PORT_OF["mrp"]))
        for number, (name, sent) in enumerate(NODES.items())
    ]
    captures += [simulated(protocol, seed) for protocol, seed in (*SEEDS, *LIARS)]
    captures += [
        (f"{protocol} {name}", Case("", "", steps).capture(3 * len(ALL_CASES) + number, PORT_OF[protocol]))
        for number, (protocol, name, steps) in enumerate(LEGAL)
    ]
    return packets(spark, captures, PORTS, damaged=[name for name, _ in captures if name.startswith(DAMAGED)])


@pytest.fixture(scope="module", autouse=True)
def uncompiled(spark: SparkSession) -> Iterator[None]:
    """Judge few rows as `fairway analyze` does."""
    usual = {name: spark.conf.get(name) for name in SMALL}
    for name, value in SMALL.items():
        spark.conf.set(name, value)
    yield
    for name, earlier in usual.items():
        spark.conf.set(name, str(earlier))


@pytest.fixture(scope="module")
def verdicts(judged: DataFrame) -> DataFrame:
    return violations(judged).localCheckpoint()


@pytest.fixture(scope="module")
def by_file(verdicts: DataFrame) -> Mapping[str, list[Row]]:
    """The violations of each file."""
    found: dict[str, list[Row]] = defaultdict(list)
    for row in verdicts.toArrow().to_pylist():
        found[row["file"]].append(row)
    return found


@pytest.mark.parametrize(
    ("protocol", "case"), ALL_CASES, ids=[f"{protocol} {case.name}" for protocol, case in ALL_CASES]
)
def test_a_broken_rule_is_reported_and_no_other(by_file: Mapping[str, list[Row]], protocol: str, case: Case) -> None:
    found = by_file.get(f"{protocol} {case.name}", [])
    assert {row["rule"] for row in found} == {case.clause, *case.also}
    reported = [row for row in found if row["rule"] == case.clause]
    rule = rule_of(protocol, case)
    assert {(row["expected"], row["severity"]) for row in reported} == {(rule.expected, rule.severity)}
    assert all(row["protocol"] == protocol and row["found"] and row["point"] == "middle" for row in reported)


def rule_of(protocol: str, case: Case) -> Rule:
    of_clause = (rule for rule in rules(protocol) if rule.clause == case.clause)
    (found,) = (rule for rule in of_clause if case.expected in (rule.expected, ""))
    return found


def test_every_rule_has_a_case() -> None:
    told = {(protocol, rule.clause, rule.expected) for protocol in PROTOCOLS for rule in rules(protocol)}
    assert told == {(protocol, case.clause, rule_of(protocol, case).expected) for protocol, case in ALL_CASES}


def test_there_are_at_least_fifty_rules_and_some_for_each_protocol() -> None:
    clauses = {rule.clause for check in CHECKS for rule in check.rules}
    assert len(clauses) >= 50
    assert all(len(rules(protocol)) >= 10 for protocol in PROTOCOLS)


@pytest.mark.parametrize("how", [LATE, DAMAGED])
def test_a_rule_that_needs_the_beginning_is_silent_without_it_and_behind_a_damage(
    by_file: Mapping[str, list[Row]], how: str
) -> None:
    for protocol, case in ALL_CASES:
        needing = {rule.expected for rule in rules(protocol) if rule.needs_start}
        needing |= {rule.expected for rule in rules(protocol) if rule.all_since != "NULL" and how == DAMAGED}
        found = by_file.get(f"{how}{protocol} {case.name}", [])
        assert [row for row in found if row["expected"] in needing] == []


def test_a_damage_hides_nothing_that_needs_no_beginning(by_file: Mapping[str, list[Row]]) -> None:
    for protocol, case in ALL_CASES:
        whole, damaged = (by_file.get(f"{how}{protocol} {case.name}", []) for how in ("", DAMAGED))
        needing = {rule.expected for rule in rules(protocol) if rule.needs_start or rule.all_since != "NULL"}
        told = [[row["expected"] for row in rows if row["expected"] not in needing] for rows in (whole, damaged)]
        assert sorted(told[0]) == sorted(told[1]), case.name


@pytest.mark.parametrize("name", [name for name in NODES if "broken" in name])
def test_an_id_that_a_node_uses_for_two_connections_is_reported_once(
    by_file: Mapping[str, list[Row]], name: str
) -> None:
    (row,) = by_file[name]
    assert (row["rule"], row["severity"], row["frame"]) == ("MRP-2.1", "warning", BROKEN_NODES[name])


@pytest.mark.parametrize("name", [name for name in NODES if "broken" not in name])
def test_an_id_may_be_used_again_later_or_by_another_node(by_file: Mapping[str, list[Row]], name: str) -> None:
    assert by_file.get(name, []) == []


@pytest.mark.parametrize(("protocol", "seed"), SEEDS, ids=[f"{protocol}-{seed}" for protocol, seed in SEEDS])
def test_nothing_is_reported_on_our_own_endpoints(by_file: Mapping[str, list[Row]], protocol: str, seed: int) -> None:
    """Under loss, copies, reordering, crashes, partitions and moves; what damage explains may be a warning."""
    found = by_file.get(f"{protocol}-{seed}", [])
    damaged = protocol == "pydevts" and draw(protocol, seed).faults.corrupt > 0
    assert [row for row in found if row["severity"] != "warning" or not damaged] == []
    assert {row["rule"] for row in found} <= {"PYDEVTS-1.1", "PYDEVTS-1.5", "PYDEVTS-1.6"}


@pytest.mark.parametrize(("protocol", "name"), [case[:2] for case in LEGAL], ids=[case[1] for case in LEGAL])
def test_what_the_standard_allows_is_not_reported(by_file: Mapping[str, list[Row]], protocol: str, name: str) -> None:
    assert by_file.get(f"{protocol} {name}", []) == []


def test_a_violation_names_the_frame_that_breaks_the_rule(by_file: Mapping[str, list[Row]]) -> None:
    (row,) = by_file["udpc UDPC-3.2 an index used twice"]
    assert (row["frame"], row["found"]) == (5, "index 102 again, for another plain")
    (back,) = (row for row in by_file["rup RUP-3.1 confirm goes back"])
    assert (back["frame"], back["found"]) == (4, "confirm 10 after 20")


def test_the_table_has_exactly_its_columns(verdicts: DataFrame) -> None:
    wanted = [(field.name, field.dataType) for field in spark_schema(VIOLATIONS)]
    assert [(field.name, field.dataType) for field in verdicts.drop(*EPISODE).schema] == wanted


@pytest.mark.parametrize("chosen", [("pydevts",), pytest.param(PROTOCOLS, marks=pytest.mark.long)], ids=["one", "all"])
def test_without_its_sql_a_rule_loses_its_violations_and_no_other_does(
    judged: DataFrame, verdicts: DataFrame, chosen: tuple[str, ...]
) -> None:
    """The judgement stands in the SQL alone: nothing before it knows which packets a rule would name."""
    checks = [check for check in CHECKS if check.rules[0].clause.partition("-")[0].lower() in chosen]
    left = tuple(replace(check, rules=check.rules[::2]) for check in checks)
    kept = {(rule.clause, rule.expected) for check in left for rule in check.rules}
    found = violations(judged, checks=left).toArrow().to_pylist()
    expected = [row for row in verdicts.toArrow().to_pylist() if (row["rule"], row["expected"]) in kept]
    assert 0 < len(kept) < len({(rule.clause, rule.expected) for check in checks for rule in check.rules})
    assert sorted(map(repr, found)) == sorted(map(repr, expected))


def test_whatever_liars_send_is_judged(by_file: Mapping[str, list[Row]]) -> None:
    """A part of no bytes in a message of many, for instance, once ended the whole job: a division by zero."""
    assert {protocol for protocol, seed in LIARS if by_file[f"{protocol}-{seed}"]} == set(PROTOCOLS)


def test_every_clause_of_a_rule_stands_in_the_standard() -> None:
    pages = "".join(path.read_text() for path in (ROOT / "docs" / "wire").glob("*.md"))
    clauses = set(re.findall(r"\*\*([A-Z]+-\d+\.\d+)\*\*", pages))
    assert {rule.clause for check in CHECKS for rule in check.rules} <= clauses


def test_the_page_lists_the_rules_as_they_are() -> None:
    assert PAGE.read_text() == violations_page()
