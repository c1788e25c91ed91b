"""The landed tables as a page: `python -m tests.lake.landing.page` prints docs/messages.md, with real answers."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING, NamedTuple

from fairway.core.tables import MESSAGES, REJECTED, Column, Table
from fairway.lake.landing.typed import KEYS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TYPES = {
    "string": ("STRING", "VARCHAR", "String"),
    "long": ("BIGINT", "BIGINT", "Int64"),
    "int": ("INT", "INTEGER", "Int32"),
    "double": ("DOUBLE", "DOUBLE", "Float64"),
    "boolean": ("BOOLEAN", "BOOLEAN", "Boolean"),
    "timestamp": ("TIMESTAMP", "TIMESTAMP WITH TIME ZONE", "Datetime(time_unit='us', time_zone='UTC')"),
    "date": ("DATE", "DATE", "Date"),
    "binary": ("BINARY", "BLOB", "Binary"),
}
"""What Spark SQL, DuckDB and Polars call the types of this page."""

HEAD = """# The tables of messages

`fairway stream --lake DIR` fills Delta Lake tables below `DIR/tables/`: `messages` with everything that gateways have
acknowledged, a typed table for each `--json-schema`, and `rejected` with what did not fit. [How they are filled and
kept](lake.md); [the tables of captures](tables.md). This page is made from `src/fairway/core/tables.py`:

```sh
python -m tests.lake.landing.page > docs/messages.md
```

- Times are UTC, in microseconds. Sizes are bytes. A column is null only where it says so.
- `gateway` and `gateway_offset` are the key of a message, in every table.
- An address is two columns, here and in the tables of captures: the IP address as text without brackets and scope
  (`192.0.2.1`, `2001:db8::1`: lower case, zeros shortened), and the UDP port as a number.
- No column needs quoting in Spark SQL or DuckDB.
- A filter on a column by which a table is cut into folders skips the other folders.

**A plain glob over a table's folder is wrong** (`read_parquet('lake/tables/messages/**/*.parquet')`,
`spark.read.parquet`): files that were compacted, or that belong to no commit, lie there too, and their rows count
twice. Open the table as Delta, as below. **A reader that holds a snapshot for longer than the history** (1 h, or what
`fairway stream --history` says) **gets an error** when it opens a file that is gone: open the table again for every
query, or set a longer history.

## Types

| here | Spark SQL | DuckDB | Polars |
|---|---|---|---|"""

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

EXAMPLES = """
## Examples

In Spark SQL (no jar is needed), DuckDB and Polars; `devices` is a dimension table of the user's own, a row for each
device. The answers are those of a small example. Where there is one SQL, Spark and DuckDB both take it.

```python
import fairway.lake

fairway.lake.register(spark)
for name in ("lake/tables/messages", "lake/tables/readings", "lake/tables/rejected", "devices"):
    spark.read.format("fairway.delta").load(name).createOrReplaceTempView(name.rpartition("/")[2])
```

```sql
INSTALL delta; LOAD delta; -- DuckDB
CREATE VIEW messages AS SELECT * FROM delta_scan('lake/tables/messages');
CREATE VIEW readings AS SELECT * FROM delta_scan('lake/tables/readings');
CREATE VIEW rejected AS SELECT * FROM delta_scan('lake/tables/rejected');
CREATE VIEW devices AS SELECT * FROM delta_scan('devices');
```

```python
from polars import String, col, date, len, scan_delta

messages, readings, rejected = (scan_delta(f"lake/tables/{name}") for name in ("messages", "readings", "rejected"))
devices = scan_delta("devices")
```
"""


class Question(NamedTuple):
    """Something that a user asks, in SQL and in Polars."""

    text: str
    sql: str
    polars: str
    duckdb: str = ""


QUESTIONS = (
    Question(
        "How much came on each day?",
        "SELECT day, protocol, count(*) AS messages FROM messages GROUP BY day, protocol ORDER BY day, protocol",
        'messages.group_by("day", "protocol").agg(len().alias("messages")).sort("day", "protocol")',
    ),
    Question(
        "What did one device send on one day?",
        "SELECT received, CAST(body AS STRING) AS text FROM messages"
        " WHERE day = DATE '2026-03-02' AND peer = '192.0.2.7' ORDER BY gateway_offset",
        'messages.filter(col("day") == date(2026, 3, 2), col("peer") == "192.0.2.7").sort("gateway_offset")'
        '.select(\n    "received", col("body").cast(String).alias("text")\n)',
        "SELECT received, decode(body) AS text FROM messages"
        " WHERE day = DATE '2026-03-02' AND peer = '192.0.2.7' ORDER BY gateway_offset",
    ),
    Question(
        "How hot was it at most, for each sensor?",
        "SELECT sensor, count(*) AS readings, max(celsius) AS high FROM readings GROUP BY sensor ORDER BY sensor",
        'readings.group_by("sensor").agg(len().alias("readings"), col("celsius").max().alias("high")).sort("sensor")',
    ),
    Question(
        "What did not fit, and where did it come from?",
        "SELECT typed_table, reason, peer, count(*) AS messages FROM rejected GROUP BY typed_table, reason, peer"
        " ORDER BY reason, peer",
        'rejected.group_by("typed_table", "reason", "peer").agg(len().alias("messages")).sort("reason", "peer")',
    ),
    Question(
        "How much does each site send? A device that is not in the dimension table stays visible.",
        "SELECT coalesce(site, 'unknown') AS site, count(*) AS messages, sum(octet_length(body)) AS bytes"
        " FROM messages LEFT JOIN devices ON messages.peer = devices.peer GROUP BY 1 ORDER BY 1",
        'messages.join(devices, on="peer", how="left").group_by(col("site").fill_null("unknown"))'
        '.agg(\n    len().alias("messages"), col("body").bin.size().sum().alias("bytes")\n).sort("site")',
    ),
)


def page(spark: SparkSession, lake: Path) -> str:
    """Return the whole page; the lake holds the example."""
    from fairway.lake import register

    register(spark)
    for path in (*(lake / "tables" / name for name in ("messages", "readings", "rejected")), lake.parent / "devices"):
        spark.read.format("fairway.delta").load(str(path)).createOrReplaceTempView(path.name)
    types = [f"| {name} | {' | '.join(names)} |" for name, names in TYPES.items()]
    tables = [_described(table) for table in (MESSAGES, REJECTED, TYPED)]
    answers = [_answered(spark, *item) for item in enumerate(QUESTIONS, 1)]
    return "\n".join([HEAD, *types, "", *tables]) + EXAMPLES + "\n" + "\n".join(answers)


def _described(table: Table) -> str:
    cut = " and ".join(f"`{name}`" for name in table.partitions)
    lines = [f"## {table.name}", "", f"One row is {table.row}. Cut into folders by {cut}.", ""]
    lines += ["| column | type | null | meaning |", "|---|---|---|---|"]
    for column in table.columns:
        kind = "as declared" if column.name == "..." else column.type
        lines.append(f"| {column.name} | {kind} | {'yes' if column.nullable else ''} | {column.meaning} |")
    return "\n".join([*lines, ""])


def _answered(spark: SparkSession, number: int, question: Question) -> str:
    found = spark.sql(question.sql).toArrow()
    lines = [f"{number}. {question.text}", ""]
    for language, text in (("sql", question.sql), ("sql", question.duckdb), ("python", f"{question.polars}.collect()")):
        lines += [f"   ```{language}", indent(text, "   "), "   ```", ""] if text else []
    lines += [f"   | {' | '.join(found.column_names)} |", "   |" + "---|" * found.num_columns]
    lines += [f"   | {' | '.join(str(value) for value in row.values())} |" for row in found.to_pylist()]
    return "\n".join([*lines, ""])


def main() -> None:
    """Make the example and print the page."""
    from fairway.lake.session import started
    from tests.lake.landing.example import land_example

    with started("fairway messages page", master="local[2]") as spark, tempfile.TemporaryDirectory() as folder:
        land_example(spark, Path(folder) / "lake")
        sys.stdout.write(page(spark, Path(folder) / "lake"))


if __name__ == "__main__":
    main()
