"""Which layout an mrp datagram has: the stamped or the piggyback one.

Data can often be read both ways; only its connection tells. A connection has the layout of its connect's version,
and a flow whose connects all ask for one layout has that one. In a flow with both, data whose ids an accepted
piggyback connect agreed on is piggyback. Where no connect was seen, the reading is taken that is consistent over
the flow: acknowledgements (type 4) belong to the stamped layout, and data too short for it to the other; and where
there are neither, ids that stay the same in the piggyback reading and change in the stamped one, which takes the
sequence for a part of an id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from fairway.lake.analysis.calls import FORWARD

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_DATA = "mrp_kind = 'data'"
_VOTES = {
    "oldest": "min(mrp_version)",
    "newest": "max(mrp_version)",
    "acks": "count_if(mrp_kind = 'ack')",
    "short": f"count_if({_DATA} AND NOT mrp_stamped)",
    "stamped_ids": f"count(DISTINCT IF({_DATA}, mrp_origin, NULL))",
    "piggyback_ids": f"count(DISTINCT IF({_DATA}, piggyback_origin, NULL))",
}
_LAYOUT = """CASE WHEN oldest = 0 AND newest = 0 THEN 'stamped' WHEN oldest = 1 AND newest = 1 THEN 'piggyback'
    WHEN oldest = 0 THEN 'both' WHEN acks > 0 THEN 'stamped' WHEN short > 0 THEN 'piggyback'
    WHEN piggyback_ids <= 2 AND stamped_ids > 2 THEN 'piggyback' ELSE 'stamped' END"""

PAIR = f"""concat(IF({FORWARD}, piggyback_origin, piggyback_destination), '/',
    IF({FORWARD}, piggyback_destination, piggyback_origin))"""
"""The ids of both ends, if a datagram has the piggyback layout."""

CHOSEN = f"""CASE WHEN protocol != 'mrp' OR kind NOT IN ('data', 'ack') THEN NULL
    WHEN kind = 'ack' OR NOT mrp_piggyback THEN 'stamped' WHEN NOT mrp_stamped THEN 'piggyback'
    WHEN flow_layout = 'both' THEN IF(array_contains(piggyback_pairs, {PAIR}), 'piggyback', 'stamped')
    ELSE coalesce(flow_layout, 'stamped') END"""
"""The layout of a record, with what `flow_layouts` says of its flow beside it."""


def flow_layouts(datagrams: DataFrame) -> DataFrame:
    """Gives `flow`, `flow_layout` and, for flows with both layouts, `piggyback_pairs`, of all flows with mrp data."""
    mrp = datagrams.where("mrp_kind IN ('data', 'ack', 'connect', 'con_reply')")
    votes = mrp.groupBy("flow").agg(*(F.expr(text).alias(name) for name, text in _VOTES.items()))
    decided = votes.selectExpr("flow", f"{_LAYOUT} AS flow_layout")
    mixed = decided.where("flow_layout = 'both'").select("flow")
    return decided.join(_piggyback_pairs(mrp, mixed), on="flow", how="left").select(
        "flow", "flow_layout", "piggyback_pairs"
    )


def _piggyback_pairs(mrp: DataFrame, mixed: DataFrame) -> DataFrame:
    """Gives the pairs of ids that accepted piggyback connects agreed on: one for each connection, not each packet."""
    handshakes = mrp.where("mrp_kind IN ('connect', 'con_reply')").join(mixed, on="flow", how="left_semi")
    agreed = handshakes.groupBy(
        "flow", "mrp_client", F.expr(f"IF(mrp_kind = 'connect', {FORWARD}, NOT {FORWARD}) AS caller_forward")
    ).agg(
        F.expr("min_by(mrp_version, IF(mrp_kind = 'connect', at_ns, NULL)) AS version"),
        F.expr("min_by(mrp_server, IF(mrp_status = 1, at_ns, NULL)) AS server"),
    )
    pair = "IF(caller_forward, concat(mrp_client, '/', server), concat(server, '/', mrp_client)) AS pair"
    pairs = agreed.where("version = 1 AND server IS NOT NULL").selectExpr("flow", pair)
    return pairs.groupBy("flow").agg(F.collect_set("pair").alias("piggyback_pairs"))
