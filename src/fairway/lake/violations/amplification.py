"""The three-times limit of docs/wire/common.md, as far as a capture can show it broken.

A side that only ever answered, to an address that only ever called, may send three times what it got. The network may
double what it got behind the point, and what it sends before the point: only more than twelve times proves anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from fairway.core.tables import PROTOCOLS
from fairway.lake.violations.limits import AMPLIFICATION_MAX as LIMIT
from fairway.lake.violations.rule import FORWARD, FRAME, Check, Rule

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_ASKS = "kind IN ('syn', 'connect', 'packet') OR (protocol = 'rup' AND kind = 'data')"
_PROVES = f"protocol IN ('udpc', 'mrp') AND NOT ({_ASKS})"
"""For rup and pydevts nothing proves."""
_ANSWERS = """kind IN ('syn_ack', 'con_reply', 'confirm', 'close') OR (protocol = 'rup' AND kind = 'request')
    OR (protocol = 'pydevts' AND kind = 'ack')"""


def _limited(packets: DataFrame) -> DataFrame:
    """Return the last packet of each side that sent more than the limit allows, with the bytes of both."""
    rows = packets.where(F.col("protocol").isin(*PROTOCOLS) & F.col("at_ns").isNotNull())
    directed = rows.withColumn("forward", F.expr(FORWARD))
    facts = directed.groupBy("point", "flow").agg(
        *_side("forward", "forward", "NOT forward"), *_side("backward", "NOT forward", "forward")
    )
    suspects = _suspects(facts, "forward").unionByName(_suspects(facts, "backward"))
    joined = directed.join(F.broadcast(suspects), on=["point", "flow", "forward"], how="inner")
    return joined.where("at_ns = last_at").select(*FRAME, "sent", "got")


def _side(name: str, ours: str, theirs: str) -> list[Column]:
    texts = {
        "limited": f"""bool_or(coalesce({theirs} AND ({_ASKS}), false))
            AND NOT bool_or(coalesce({theirs} AND {_PROVES}, false))
            AND NOT bool_or(coalesce({ours} AND NOT ({_ANSWERS}), false))""",
        "sent": f"sum(IF({ours}, payload_bytes, 0))",
        "got": f"sum(IF({theirs}, payload_bytes, 0))",
        "last_at": f"max(IF({ours}, at_ns, NULL))",
    }
    return [F.expr(text).alias(f"{name}_{column}") for column, text in texts.items()]


def _suspects(facts: DataFrame, name: str) -> DataFrame:
    return facts.where(f"{name}_limited AND {name}_sent > {LIMIT} * {name}_got").select(
        "point",
        "flow",
        F.lit(name == "forward").alias("forward"),
        *(F.col(f"{name}_{column}").alias(column) for column in ("sent", "got", "last_at")),
    )


_RULES = (
    Rule(
        clause="ALL-6.1",
        where="true",
        holds=f"sent <= {LIMIT} * got",
        found="concat(sent, ' bytes to an address from which ', got, ' came')",
        expected="at most three times the bytes that came from an address that has proved nothing",
        reported=f"more than {LIMIT} times",
        needs_start=True,
    ),
)

CHECKS = (Check(context=_limited, rules=_RULES),)
