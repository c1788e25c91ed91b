"""The tables as a page: `python -m tests.lake.analysis.page` prints docs/tables.md, with answers from the example."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING, NamedTuple

from fairway.core.tables import CAPTURE_TABLES, CAPTURES, Table
from fairway.lake.reader import read_table
from fairway.store.analyses import tables
from fairway.store.places import place_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HEAD = """# The tables of captures

`fairway analyze FILE... --lake DIR` writes six Delta tables below `DIR/tables/`, readable at any moment with Spark,
DuckDB, Polars or pyarrow. This page is made from `src/fairway/core/tables.py`:

```sh
python -m tests.lake.analysis.page > docs/tables.md
```

Tables are a function of the set of captures in the lake and of the port map (`--map`), which the lake keeps. A
second run changes nothing; files in any order, one by one or together, give the same rows. A run computes only the
episodes that new files touch, and replaces them in one commit for each table; another port map computes all packets
again from what the table holds, without the captures. Every commit carries the number of its run, `captures` first and
`sessions` last; who reads several tables reads each at the newest run that all of them hold, as `fairway report` does.
A run that did not reach the end is made up for by the next start. Two runs at the same time do no harm: one of them
ends with a sentence.

Two things are judged among what one run computes, and not again when later files change the answer: MRP-2.1, which
compares the connections of a node, and whether a record holds several datagrams, which is known once its flow is
recognised. Captures that are analysed together have neither limit.

```python
from fairway.lake import register

register(spark)
records = spark.read.format("fairway.capture").load("captures/*.pcapng")
decoded = spark.read.format("fairway.capture").option("map", "udpc=9000").load("captures/*.pcapng")
packets = spark.read.format("fairway.delta").load("lake/tables/packets")
```

Records are brought together by flow and sorted by time in Spark's own shuffle; one pass in Arrow batches understands
them. An episode is in the memory of one Python worker as a whole, 1.5 kB for each of its packets: 3.1 GB for 2,000,000;
all else is computed in groups of 131,072 records. A capture in an object store (`s3://...`) is read by ranges, twice:
once to find where its records begin. The other tables are computed by Spark from the stored packets, each by a function
from DataFrame to DataFrame (`fairway.lake.analysis`: `transfers`, `timeline`, `sessions`; `fairway.lake.violations`),
so that a notebook can ask for them too.

## What the words mean

- **Episode**: one flow at all points, cut where it is silent for more than 300 s, the longest idle time of the four
  protocols. What a flow speaks, sessions, copies and rules are judged within one episode. All tables but `captures`
  have its number, and `open`: true if its first packet is within 300 s of the beginning of its capture, or its last
  one of the end, so that another capture may continue it. Rows of open episodes lie in files of their own. A new file
  computes the episodes that it touches again as a whole: one that lasts for days is computed again with every file.
- **Point**: the capture's interface name. Rows of different points are never mixed. Files without interface names
  (pcap) have the empty point: captures of both ends in that form belong in two lakes.
- **Session**: what one id (udpc sessionID, mrp's pair of conids) names on one flow at one point, or the flow itself
  for rup and pydevts, cut where it was silent for more than 60 s (mrp: 300 s).
- **Caller**: who sent the SYN or the connect; where none was seen, who sent the first packet or whom it answered: the
  receiver of a first acknowledgement, response or ACK+REQ, but the sender of the empty ACK that ends a handshake.
- **Order**: by time; of records with equal times, by file and by their order in it. `position` counts a session's
  packets in this order.
- **Message numbers** are widened: the shortest step from one number of a sender to its next is added up, from the
  first one that the point saw. An acknowledgement is widened to what is nearest to the last number that it can
  mean.
- **mrp layout**: that of the connect's version. Where no connect was seen, the one in which the flow is consistent.
- **Retransmission** (`retransmission` above 0; "copy" in other columns): same sender, and same udpc index and kind, mrp
  sequence, rup id and position, or pydevts id as a packet before. SYN, SYN+ACK, FIN, connect and con reply count like
  messages; acknowledgements and heartbeats are not counted. At the sender's end these are its retransmissions; at the
  receiver's end they are what arrived again, whether the sender or the network made them.
- **Duplicate**: a retransmission before which an acknowledgement of what it carries had passed the point: an earlier
  one had arrived. One that comes before that acknowledgement is not called a duplicate.
- **Acknowledges**: an acknowledgement names its message; a response, and so an ACK+REQ, the request that it answers; a
  rup confirm its message, once it confirms the whole of it; data of mrp's piggyback layout the highest number that it
  covers. What comes later takes no acknowledgement back.
- **Round trip**: from a packet to its first acknowledgement (`acknowledged_sent_ns`), if it had been sent once by then:
  one stamp of an mrp packet, the part of a rup message that ends where a confirm points, the highest message that a
  piggyback acknowledgement covers for the first time. Responses are left out, because they wait for an application. Of
  the two directions the one with the longer median is shown: an end sees the whole way of what it sends, and of what it
  receives only how fast it answers itself. Quantiles are values that occur: exact below 10,000 samples, within 1/10,000
  of rank above (`percentile_approx`).
- **Loss** is an estimate from one point, 1 - (1 - before) * (1 - behind). *Before* the point: the share of numbers
  that were skipped, or the share of duplicates if that is greater. *Behind* it: 1 - sqrt(1 - share of retransmissions
  that are not duplicates), because one is sent when the packet or its acknowledgement was lost; for rup and mrp's
  piggyback layout that share itself, because there only the packet's own loss causes one. So the two ways are taken to
  lose alike; what one way loses more, half of it is shown on the other. Reordering, retransmissions sent too early and
  duplicates made by the network count as loss. With captures of both ends the lost packets are counted: what left one
  end less what was seen at the other, as far as both captures hold everything and none is under way at their ends
  (question 5).
- **Merged datagrams**: Linux hands a batch of equal datagrams through its stack as one (UDP GSO and GRO), and
  captures taken on a host hold it as one frame of up to 64 kB. Where the protocol's framing makes the cuts certain,
  each datagram is a row of its own: same `frame`, `offset` one higher each, `frame_bytes` as if it had travelled
  alone. A merged frame that the snap length cut off stays one row, marked `truncated`.
- **Outcome** of a message: *acknowledged* (rup: its total was confirmed; a request: it was answered), *repaired*
  (acknowledged after a failed CRC), *refused* (not acknowledged, and its receiver closed the session later),
  *unreliable* (plain packets and responses), otherwise *unacknowledged*. An ACK+REQ is a request of its own, and the
  response to the one that it answers. A message of which only acknowledgements were seen has a row, except in pydevts,
  where an ack without its packet asks for a keepalive, and in mrp's piggyback layout.
- **Beginning** (`from_start`): among the packets of a session's first instant is a SYN or a connect. rup and pydevts
  open nothing: there it is a data part with the start byte, or any packet, so that a capture which begins between two
  messages counts as one from the start.
- **Ending** of a session: *closed* (FIN), *refused* (mrp reply), *unanswered* (nothing came back), *replaced* (another
  udpc session on the same flow within 10 s of its last packet), otherwise *open*. rup and pydevts end nothing on the
  wire (pydevts' close ends the transfer of one packet): they are unanswered or open.

Rows balance: every record of a capture is one row of `packets`, or one for each datagram that was merged into it (a
run that loses or doubles a row of a file that it replaces commits nothing);
every packet with a session counts once in `sessions` and in `timeline`; every row of `transfers` counts once in
`sessions`.
"""


EXAMPLES = """## From a folder of captures to a plot

In a notebook, or any Python program with a Spark session:

```python
from pathlib import Path

import fairway.lake
from fairway.lake.analysis.job import analyze
from fairway.lake.analysis.sessions import timeline
from fairway.report.charts import Axis, Chart, Line, chart
from fairway.report.page import page
from fairway.store.lakes import Lake

analyze(spark, Lake("lake"), ["captures"])
fairway.lake.register(spark)
packets = spark.read.format("fairway.delta").load("lake/tables/packets")
seconds = timeline(packets.where("protocol = 'mrp' AND point = 'server'")).orderBy("second").toPandas()
since = (seconds.second - seconds.second[0]).dt.total_seconds()
goodput = Line(name="mrp", x=since.tolist(), y=seconds.goodput_out.tolist())
picture = Chart(title="Goodput", x=Axis(label="seconds"), y=Axis(label="bytes per second"), lines=[goodput])
Path("goodput.html").write_text(page(title="Goodput", about="mrp at the server", blocks=[chart(picture)]))
```

## Examples

In Spark SQL (no jar is needed), DuckDB and Polars, asked of the example (`tests.lake.analysis.example`): one
simulated conversation of each protocol over a bad link, captured at both ends. Spark and DuckDB both take the SQL; the
answers are made with this page.

```python
import fairway.lake

fairway.lake.register(spark)
for name in ("captures", "packets", "sessions", "transfers", "violations", "timeline"):
    spark.read.format("fairway.delta").load(f"lake/tables/{name}").createOrReplaceTempView(name)
```

```sql
INSTALL delta; LOAD delta; -- DuckDB
CREATE VIEW captures AS SELECT * FROM delta_scan('lake/tables/captures');
CREATE VIEW packets AS SELECT * FROM delta_scan('lake/tables/packets');
CREATE VIEW sessions AS SELECT * FROM delta_scan('lake/tables/sessions');
CREATE VIEW transfers AS SELECT * FROM delta_scan('lake/tables/transfers');
CREATE VIEW violations AS SELECT * FROM delta_scan('lake/tables/violations');
CREATE VIEW timeline AS SELECT * FROM delta_scan('lake/tables/timeline');
```

```python
from polars import col, len, scan_delta

captures, packets, sessions, transfers, violations, timeline = (
    scan_delta(f"lake/tables/{name}")
    for name in ("captures", "packets", "sessions", "transfers", "violations", "timeline")
)
```
"""


class Question(NamedTuple):
    """Something that a user asks, in SQL and in Polars."""

    text: str
    sql: str
    polars: str


QUESTIONS = (
    Question(
        "Which captures were read?",
        "SELECT file, records, damages FROM captures ORDER BY file",
        'captures.select("file", "records", "damages").sort("file")',
    ),
    Question(
        "Who talked, and how much?",
        "SELECT protocol, point, packets_out, packets_in, ending FROM sessions ORDER BY protocol, point",
        'sessions.select("protocol", "point", "packets_out", "packets_in", "ending").sort("protocol", "point")',
    ),
    Question(
        "Which sessions repeat most?",
        "SELECT protocol, point, round(retransmission_ratio, 3) AS ratio FROM sessions"
        " ORDER BY ratio DESC, protocol, point LIMIT 3",
        'sessions.select("protocol", "point", col("retransmission_ratio").round(3).alias("ratio"))\n'
        '.sort("ratio", "protocol", "point", descending=[True, False, False]).limit(3)',
    ),
    Question(
        "How long is the round trip at the sender's end, in milliseconds?",
        "SELECT protocol, rtt_samples, rtt_p50_us / 1000 AS median, rtt_p99_us / 1000 AS p99 FROM sessions"
        " WHERE point = 'client 1' ORDER BY protocol",
        'sessions.filter(col("point") == "client 1").sort("protocol").select(\n'
        '    "protocol",\n    "rtt_samples",\n    (col("rtt_p50_us") / 1000).alias("median"),\n'
        '    (col("rtt_p99_us") / 1000).alias("p99"),\n)',
    ),
    Question(
        "How many of the caller's packets left one end, and how many were seen at the other?",
        "SELECT protocol, sum(packets_out) FILTER (WHERE point = 'client 1') AS sent,"
        " sum(packets_out) FILTER (WHERE point = 'server') AS arrived FROM sessions"
        " GROUP BY protocol ORDER BY protocol",
        'sessions.group_by("protocol").agg(\n'
        '    col("packets_out").filter(col("point") == "client 1").sum().alias("sent"),\n'
        '    col("packets_out").filter(col("point") == "server").sum().alias("arrived"),\n).sort("protocol")',
    ),
    Question(
        "And what does one end estimate?",
        "SELECT protocol, round(loss_out, 3) AS loss FROM sessions WHERE point = 'client 1' ORDER BY protocol",
        'sessions.filter(col("point") == "client 1")\n'
        '.select("protocol", col("loss_out").round(3).alias("loss")).sort("protocol")',
    ),
    Question(
        "What became of the messages?",
        "SELECT protocol, outcome, count(*) AS messages FROM transfers WHERE point = 'client 1'"
        " GROUP BY protocol, outcome ORDER BY protocol, outcome",
        'transfers.filter(col("point") == "client 1").group_by("protocol", "outcome").agg(len().alias("messages"))\n'
        '.sort("protocol", "outcome")',
    ),
    Question(
        "Which messages took longest?",
        "SELECT protocol, size_bytes, attempts, latency_us FROM transfers WHERE point = 'client 1'"
        " ORDER BY latency_us DESC NULLS LAST, protocol, message LIMIT 3",
        'transfers.filter(col("point") == "client 1")\n'
        '.sort("latency_us", "protocol", "message", descending=[True, False, False], nulls_last=True)\n'
        '.limit(3).select("protocol", "size_bytes", "attempts", "latency_us")',
    ),
    Question(
        "Which packets arrived for nothing?",
        "SELECT protocol, kind, count(*) AS duplicates FROM packets WHERE duplicate AND point = 'server'"
        " GROUP BY protocol, kind ORDER BY protocol, kind",
        'packets.filter(col("duplicate"), col("point") == "server").group_by("protocol", "kind")'
        '.agg(len().alias("duplicates"))\n.sort("protocol", "kind")',
    ),
    Question(
        "How much arrived in the best second?",
        "SELECT protocol, max(goodput_out) AS goodput FROM timeline WHERE point = 'server'"
        " GROUP BY protocol ORDER BY protocol",
        'timeline.filter(col("point") == "server").group_by("protocol")\n'
        '.agg(col("goodput_out").max().alias("goodput")).sort("protocol")',
    ),
    Question(
        "Was a rule broken?",
        "SELECT severity, rule, count(*) AS times FROM violations GROUP BY severity, rule ORDER BY severity, rule",
        'violations.group_by("severity", "rule").agg(len().alias("times")).sort("severity", "rule")',
    ),
)


def page(spark: SparkSession, lake: Path) -> str:
    """Return the whole page; the lake holds the example."""
    for name, table in tables(place_of(lake)).items():
        read_table(spark, table).createOrReplaceTempView(name)
    answers = [_answered(spark, *item) for item in enumerate(QUESTIONS, 1)]
    described = (_described(table) for table in (CAPTURES, *CAPTURE_TABLES))
    return "\n".join([HEAD, *described, EXAMPLES, *answers])


def _described(table: Table) -> str:
    lines = [f"## {table.name}", "", f"One row is {table.row}.", "", "| column | type | meaning |", "|---|---|---|"]
    lines += [f"| {column.name} | {column.type} | {column.meaning} |" for column in table.columns]
    return "\n".join([*lines, ""])


def _answered(spark: SparkSession, number: int, question: Question) -> str:
    found = spark.sql(question.sql).toArrow()
    lines = [f"{number}. {question.text}", ""]
    for language, text in (("sql", question.sql), ("python", _formatted(f"({question.polars}).collect()"))):
        lines += [f"   ```{language}", indent(text, "   "), "   ```", ""]
    lines += [f"   | {' | '.join(found.column_names)} |", "   |" + "---|" * found.num_columns]
    rows = found.to_pylist()
    lines += [f"   | {' | '.join('' if value is None else str(value) for value in row.values())} |" for row in rows]
    return "\n".join([*lines, ""])


def _formatted(code: str) -> str:
    """Return code as the formatter leaves it on the page."""
    command = [sys.executable, "-m", "ruff", "format", "-"]
    return subprocess.run(command, input=code, capture_output=True, text=True, check=True).stdout.rstrip()


def main() -> None:
    """Makes the example, analyses it and prints the page."""
    from fairway.lake.analysis.job import analyze
    from fairway.lake.session import start
    from fairway.store.lakes import Lake
    from tests.lake.analysis.example import write_example

    spark = start("fairway tables page", master="local[2]")
    try:
        with tempfile.TemporaryDirectory() as folder:
            lake = Lake(Path(folder) / "lake")
            analyze(spark, lake, [str(path) for path in write_example(Path(folder))])
            sys.stdout.write(page(spark, lake.path))
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
