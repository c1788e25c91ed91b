"""Pages of docs/ with parts that are computed: descriptions of tables, rules, and answers to questions.

    python -m tests.lake.pages

writes docs/tables.md, docs/messages.md and docs/violations.md anew; everything else on them is left as it stands.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from textwrap import dedent
from typing import Any, NamedTuple

from pyspark.sql import SparkSession

from fairway.core.tables import CAPTURE_TABLES, CAPTURES, MESSAGES, PROTOCOLS, REJECTED, Column, Table
from fairway.lake.landing.typed import KEYS
from fairway.lake.violations import rules
from fairway.lake.violations.rule import Rule
from tests.conftest import ROOT

TABLES, LANDED, VIOLATIONS = (ROOT / "docs" / f"{name}.md" for name in ("tables", "messages", "violations"))
ANSWERED = re.compile(
    r"^\d+\. (?P<text>.*)\n\n(?P<code>(?:   ```\w+\n(?:.*\n)*?   ```\n\n)+)(?P<answer>(?:   \|.*\n)+)", re.M
)
TYPED = Table(
    "typed tables",
    "one message whose body fits the schema, such as those of `readings` below",
    (
        *(MESSAGES.column(name) for name in KEYS),
        Column(
            "...", "string", "the columns of `--json-schema`, of [their types](lake.md#typed-tables)", nullable=True
        ),
        MESSAGES.column("day"),
    ),
    ("day",),
)


class Question(NamedTuple):
    """Something that a user asks, as it stands on a page: SQL for Spark, for DuckDB, and Polars."""

    text: str
    spark: str
    duckdb: str
    polars: str


def questions(page: Path) -> list[Question]:
    """Return the questions of a page."""
    found = []
    for match in ANSWERED.finditer(page.read_text()):
        blocks = [dedent(block) for block in re.findall(r"   ```\w+\n(.*?)   ```\n", match["code"], re.S)]
        found.append(Question(match["text"], blocks[0], blocks[-2], blocks[-1]))
    return found


def assert_same_answers(question: Question, spark: SparkSession, duckdb: Any, opened: dict[str, Any]) -> None:
    """See that Spark, DuckDB and Polars, for which `opened` has the tables, answer alike."""
    expected = spark.sql(question.spark).toArrow().to_pylist()
    found = duckdb.execute(question.duckdb)
    names = [column[0] for column in found.description]
    assert [dict(zip(names, row, strict=True)) for row in found.fetchall()] == expected
    assert eval(question.polars, opened).to_dicts() == expected
    assert expected


def answered(text: str, spark: SparkSession) -> str:
    """Return a page with the answers that Spark finds in the tables that are its views."""

    def answer(match: re.Match[str]) -> str:
        sql = re.search(r"```sql\n(.*?)```", match["code"], re.S)
        assert sql is not None
        found = spark.sql(sql[1]).toArrow()
        rows = [found.column_names, *(row.values() for row in found.to_pylist())]
        lines = [" | ".join("" if value is None else str(value) for value in row) for row in rows]
        shown = [f"   | {line} |\n" for line in lines]
        shown.insert(1, "   |" + "---|" * found.num_columns + "\n")
        return match[0].removesuffix(match["answer"]) + "".join(shown)

    return ANSWERED.sub(answer, text)


def described(text: str, tables: Iterable[Table], describe: Callable[[Table], list[str]]) -> str:
    """Return a page with the descriptions of tables below their headings."""
    for table in tables:
        text = under(text, table.name, describe(table))
    return text


def under(text: str, heading: str, lines: list[str]) -> str:
    """Return a page with other lines below a heading."""
    before, found, behind = text.partition(f"\n## {heading}\n")
    assert found, heading
    end = behind.find("\n## ")
    return before + found + "\n".join(["", *lines, ""]) + (behind[end:] if end >= 0 else "")


def of_captures(table: Table) -> list[str]:
    rows = [f"| {column.name} | {column.type} | {column.meaning} |" for column in table.columns]
    return [f"One row is {table.row}.", "", "| column | type | meaning |", "|---|---|---|", *rows]


def of_messages(table: Table) -> list[str]:
    cut = " and ".join(f"`{name}`" for name in table.partitions)
    head = [f"One row is {table.row}. Cut into folders by {cut}.", ""]
    head += ["| column | type | null | meaning |", "|---|---|---|---|"]
    for one in table.columns:
        kind = "as declared" if one.name == "..." else one.type
        head.append(f"| {one.name} | {kind} | {'yes' if one.nullable else ''} | {one.meaning} |")
    return head


def tables_page(spark: SparkSession) -> str:
    """Return docs/tables.md; the views are those of the example."""
    return answered(described(TABLES.read_text(), (CAPTURES, *CAPTURE_TABLES), of_captures), spark)


def messages_page(spark: SparkSession) -> str:
    """Return docs/messages.md; the views are those of the example."""
    return answered(described(LANDED.read_text(), (MESSAGES, REJECTED, TYPED), of_messages), spark)


def violations_page() -> str:
    """Return docs/violations.md."""
    text = VIOLATIONS.read_text()
    for protocol in PROTOCOLS:
        lines = dict.fromkeys(_line(rule) for rule in sorted(rules(protocol), key=_order))
        head = ["| clause | severity | from the start | expected | reported |", "|---|---|---|---|---|"]
        text = under(text, protocol, [*head, *lines])
    return text


def _line(rule: Rule) -> str:
    start = "yes" if rule.needs_start else ""
    return f"| {rule.clause} | {rule.severity} | {start} | {rule.expected} | {rule.reported} |"


def _order(rule: Rule) -> tuple[bool, int, int, str]:
    name, _, section = rule.clause.partition("-")
    chapter, _, number = section.partition(".")
    return name == "ALL", int(chapter), int(number), rule.expected


def view(spark: SparkSession, folder: Path) -> None:
    """Make a view of each table in a folder."""
    from fairway.lake import register

    register(spark)
    for path in folder.iterdir():
        spark.read.format("fairway.delta").load(str(path)).createOrReplaceTempView(path.name)


def main() -> None:
    """Make the examples and write the pages."""
    from fairway.lake.analysis.job import analyze
    from fairway.lake.session import started
    from fairway.store.lakes import Lake
    from tests.lake.analysis.example import write_example
    from tests.lake.landing.example import land_example

    VIOLATIONS.write_text(violations_page())
    with started("fairway pages", master="local[2]") as spark, tempfile.TemporaryDirectory() as folder:
        analyzed, landed = Path(folder, "analyzed"), Path(folder, "landed", "lake")
        analyze(spark, Lake(analyzed), [str(path) for path in write_example(Path(folder))])
        view(spark, analyzed / "tables")
        TABLES.write_text(tables_page(spark))
        land_example(spark, landed)
        view(spark, landed / "tables")
        spark.read.format("fairway.delta").load(str(landed.parent / "devices")).createOrReplaceTempView("devices")
        LANDED.write_text(messages_page(spark))


if __name__ == "__main__":
    main()
