"""The rules of mrp about who may speak to whom, from when on; clauses 1.6, 1.7 and 2 of docs/wire/mrp.md.

calls      connects and con replies, which are few
ids        what connects and con replies make ids of a node, whatever the flow
pairs      the ids that data and acks name, once for each pair
openings   connections whose sides speak too early or count wrongly from the start
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from fairway.lake.violations.limits import HALF_OPEN_NS, JITTER_NS, PIGGYBACK_CONID_MAX, SECOND_NS, SLACK_NS, WINDOW_MAX
from fairway.lake.violations.rule import FRAME, Check, Rule, of_protocol, over, until_now

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ACCEPTABLE = f"(mrp_version = 0 OR (mrp_version = 1 AND mrp_client <= {PIGGYBACK_CONID_MAX}))"
_ACCEPTS = "kind = 'con_reply' AND mrp_status = 1"
_CARRIES = "(kind = 'data' AND (mrp_layout = 'stamped' OR body_bytes > 0))"
"""A piggyback packet with an empty payload is a bare acknowledgement."""


def _speakers(mrp: DataFrame) -> DataFrame:
    """Return each pair of ids that one side of a flow names in data and acks, and when."""
    named = mrp.where("kind IN ('data', 'ack')")
    return named.groupBy("point", "flow", "forward", "kind", "mrp_origin", "mrp_destination").agg(
        F.min("at_ns").alias("named_at"), F.max("at_ns").alias("named_last_at")
    )


def _accepted(mrp: DataFrame) -> DataFrame:
    """Return each pair of ids that a con reply of a flow made a connection, with the directions of such replies."""
    replies = mrp.where(_ACCEPTS)
    return replies.groupBy("point", "flow", "mrp_client", "mrp_server").agg(
        F.collect_set("forward").alias("reply_forward")
    )


def _first_versions(mrp: DataFrame) -> DataFrame:
    """Return for each cl_conid of a flow the ver of its first connect, and the direction of the call."""
    connects = mrp.where("kind = 'connect'").groupBy("point", "flow", "forward", "mrp_client")
    return connects.agg(F.min_by("mrp_version", "at_ns").alias("version"))


def _whole_flows(mrp: DataFrame) -> DataFrame:
    """Return the flows that have replies and whose first packet is a connect: the capture holds their beginning.

    A capture of one direction has none, and cannot tell which ids belong together.
    """
    flows = (
        mrp.where("kind <> 'ignore'")
        .groupBy("point", "flow")
        .agg(
            F.expr("min(at_ns) = min(at_ns) FILTER (WHERE kind = 'connect')").alias("whole"),
            F.expr("count_if(kind = 'con_reply')").alias("replies"),
            F.min("at_ns").alias("flow_begins_at"),
        )
    )
    return flows.where("whole AND replies > 0").select("point", "flow", "whole", "flow_begins_at")


def _calls(packets: DataFrame) -> DataFrame:
    """Add to connects and con replies what was called and answered before."""
    mrp = of_protocol(packets, "mrp")
    rows = mrp.where("kind IN ('connect', 'con_reply')").withColumn(
        "called_forward", F.expr("IF(kind = 'connect', forward, NOT forward)")
    )
    of_call = until_now("point", "flow", "called_forward", "mrp_client")
    known = rows.withColumns(
        over(
            of_call,
            connects="count_if(kind = 'connect')",
            acceptable=f"count_if(kind = 'connect' AND {_ACCEPTABLE})",
            version="min_by(mrp_version, IF(kind = 'connect', at_ns, NULL))",
            given=f"min(IF({_ACCEPTS}, struct(at_ns, mrp_server), NULL))",
        )
    ).withColumn("given_server", F.col("given.mrp_server"))
    spoken = _speakers(mrp).groupBy(
        "point",
        "flow",
        "forward",
        F.col("mrp_origin").alias("given_server"),
        F.col("mrp_destination").alias("mrp_client"),
    )
    last = spoken.agg(F.max("named_last_at").alias("given_last_at"))
    joined = known.join(_whole_flows(mrp), on=["point", "flow"], how="left").join(
        last, on=["point", "flow", "forward", "given_server", "mrp_client"], how="left"
    )
    context = ("kind", "mrp_version", "mrp_status", "mrp_client", "mrp_server", "connects", "acceptable", "version")
    return joined.select(*FRAME, *context, "given_server", "given_last_at", "whole", "flow_begins_at")


_VERSION = "concat(mrp_version DIV 16, '.', mrp_version % 16)"

_CALL_RULES = (
    Rule(
        clause="MRP-2.3",
        where="kind = 'connect'",
        holds="mrp_version = version",
        found=f"concat('a connect of client ', mrp_client, ' with another version, ', {_VERSION})",
        expected="a connect is repeated byte for byte",
    ),
    Rule(
        clause="MRP-2.4",
        where="kind = 'con_reply' AND whole",
        holds="connects > 0",
        found="concat('a con reply for client ', mrp_client, ', which never called')",
        expected="a con reply answers a connect",
        all_since="flow_begins_at",
    ),
    Rule(
        clause="MRP-2.5",
        where=f"{_ACCEPTS} AND connects > 0",
        holds="acceptable > 0",
        found="concat('client ', mrp_client, ' accepted with version ', version DIV 16, '.', version % 16)",
        expected="stat 2 for any version but 0.0 and 0.1, and for 0.1 with a cl_conid above 65,535",
    ),
    Rule(
        clause="MRP-2.6",
        where=f"{_ACCEPTS} AND given_last_at > at_ns + {SLACK_NS}",
        holds="mrp_server = given_server",
        found="concat('sv_conid ', mrp_server, ' for a call that got ', given_server, ', which is still used')",
        expected="a repeated connect gets the first reply again",
    ),
    Rule(
        clause="MRP-2.11",
        where=f"{_ACCEPTS} AND version = 1",
        holds=f"mrp_server <= {PIGGYBACK_CONID_MAX}",
        found="concat('sv_conid ', mrp_server, ' for the piggyback layout')",
        expected="both ids of a piggyback connection are below 65,536",
    ),
)


def _ids(packets: DataFrame) -> DataFrame:
    """Return the first packet that gives a node an id which another of its connections has.

    A node is an address at a point. A caller chooses cl_conid when it connects and the called side sv_conid when it
    accepts; the id is in use until the last packet of the connection, and for as long as one is half open.
    """
    mrp = of_protocol(packets, "mrp").where("session IS NOT NULL")
    last = mrp.groupBy("session").agg(F.max("at_ns").alias("last_at"))
    given = mrp.where(f"kind = 'connect' OR ({_ACCEPTS})").select(
        *FRAME,
        F.expr("IF(kind = 'connect', mrp_client, mrp_server)").alias("id"),
        F.expr("struct(source, source_port)").alias("node"),
        F.expr("struct(destination, destination_port, mrp_client, kind)").alias("connection"),
    )
    lives = (
        given.join(last, on="session", how="left")
        .groupBy("point", "node", "id", "connection", "session")
        .agg(
            F.expr(f"min(struct(at_ns AS begins_at, {', '.join(FRAME)}))").alias("first"),
            F.expr(f"max(greatest(last_at, at_ns + {HALF_OPEN_NS}))").alias("ends_at"),
        )
        .withColumn("at_ns", F.col("first.at_ns"))
    )
    before = Window.partitionBy("point", "node", "id").orderBy("at_ns", "connection")
    earlier = before.rowsBetween(Window.unboundedPreceding, -1)
    known = lives.withColumns(over(earlier, other="max(struct(ends_at, connection))"))
    return known.select(*(f"first.{name}" for name in FRAME), "id", "connection", "other")


_PEER = "concat('client ', {0}.mrp_client, ', ', {0}.destination, ' port ', {0}.destination_port)"

_ID_RULES = (
    Rule(
        clause="MRP-2.1",
        severity="warning",
        where="other IS NOT NULL",
        holds="other.ends_at < at_ns OR other.connection = connection",
        found=f"concat('id ', id, ' for ', {_PEER.format('connection')}, ' while ', {_PEER.format('other.connection')},"
        " ' has it')",
        expected="an id is unique among those of its node",
        reported=f"while the other is in use, or for {HALF_OPEN_NS // SECOND_NS} s after its last connect or con reply",
    ),
)


def _pairs(packets: DataFrame) -> DataFrame:
    """Return the first data and the first ack of each pair of ids that is odd, with what is known of the pair.

    `agreed` says that these ids, in this direction, are a connection; `exchanged` that they are the other way round.
    """
    mrp = of_protocol(packets, "mrp")
    accepted, versions = _accepted(mrp), _first_versions(mrp)
    as_client = accepted.select(
        "point",
        "flow",
        F.col("mrp_client").alias("mrp_origin"),
        F.col("mrp_server").alias("mrp_destination"),
        F.col("reply_forward").alias("client_reply_forward"),
    )
    as_server = accepted.select(
        "point",
        "flow",
        F.col("mrp_server").alias("mrp_origin"),
        F.col("mrp_client").alias("mrp_destination"),
        F.col("reply_forward").alias("server_reply_forward"),
    )
    rejected = mrp.where("kind = 'con_reply' AND mrp_status = 2").select(
        "point",
        "flow",
        (~F.col("forward")).alias("forward"),
        F.col("mrp_client").alias("mrp_origin"),
        F.lit(True).alias("rejected"),
    )
    keys = ["point", "flow", "mrp_origin", "mrp_destination"]
    known = (
        _speakers(mrp)
        .join(_whole_flows(mrp), on=["point", "flow"], how="inner")
        .join(as_client, on=keys, how="left")
        .join(as_server, on=keys, how="left")
        .join(rejected.distinct(), on=["point", "flow", "forward", "mrp_origin"], how="left")
        .withColumns(
            {
                # Both ends may have chosen the same number: then either reading may be the one that fits.
                "as_client": F.expr("coalesce(array_contains(client_reply_forward, NOT forward), false)"),
                "as_server": F.expr("coalesce(array_contains(server_reply_forward, forward), false)"),
                "named": F.expr("client_reply_forward IS NOT NULL OR server_reply_forward IS NOT NULL"),
            }
        )
        .withColumns(
            {
                "agreed": F.expr("as_client OR as_server"),
                "exchanged": F.expr("named AND NOT as_client AND NOT as_server"),
                "is_client": F.expr("as_client OR (client_reply_forward IS NOT NULL AND NOT as_server)"),
            }
        )
        .withColumns(
            {
                "called_forward": F.expr("IF(is_client, forward, NOT forward)"),
                "mrp_client": F.expr("IF(is_client, mrp_origin, mrp_destination)"),
            }
        )
        .join(
            versions.withColumnRenamed("forward", "called_forward"),
            on=["point", "flow", "called_forward", "mrp_client"],
            how="left",
        )
    )
    odd = known.where("NOT agreed OR (kind = 'ack' AND version = 1)").select(
        *keys, "forward", "kind", "named_at", "agreed", "exchanged", "rejected", "version", "flow_begins_at"
    )
    joined = mrp.join(F.broadcast(odd), on=[*keys, "forward", "kind"], how="inner").where("at_ns = named_at")
    known_of_pair = ("agreed", "exchanged", "rejected", "version", "flow_begins_at")
    return joined.select(*FRAME, "kind", "mrp_origin", "mrp_destination", *known_of_pair)


_IDS = "concat(kind, ' from ', mrp_origin, ' to ', mrp_destination)"

_PAIR_RULES = (
    Rule(
        clause="MRP-1.6",
        where="kind = 'ack' AND agreed",
        holds="version <> 1",
        found="'an ack in a piggyback connection'",
        expected="type 4 belongs to the stamped layout",
    ),
    Rule(
        clause="MRP-1.7",
        where="kind = 'ack'",
        holds="NOT exchanged",
        found=_IDS,
        expected="the dest_conid of an ack is the from_conid of the data",
    ),
    Rule(
        clause="MRP-2.7",
        where="rejected AND NOT agreed AND NOT exchanged",
        holds="false",
        found=f"concat({_IDS}, ', although the call was rejected')",
        expected="stat 2 refuses the connection",
        all_since="flow_begins_at",
    ),
    Rule(
        clause="MRP-2.9",
        where="NOT agreed AND NOT (exchanged AND kind = 'ack') AND rejected IS NULL",
        holds="false",
        found=f"concat({_IDS}, ', which no con reply of this flow joined')",
        expected="dest_conid and from_conid are those of one connection",
        all_since="flow_begins_at",
    ),
)


def _openings(packets: DataFrame) -> DataFrame:
    """Return the packets of connections whose sides seem to speak too early, or whose first sequence is odd."""
    mrp = of_protocol(packets, "mrp").where("session IS NOT NULL")
    speaks = "kind IN ('data', 'ack')"
    facts = mrp.groupBy("session").agg(
        F.expr("min(at_ns) FILTER (WHERE kind = 'con_reply' AND mrp_status = 1)").alias("given_at"),
        F.expr(f"min(at_ns) FILTER (WHERE from_caller AND {speaks})").alias("caller_at"),
        F.expr(f"min(at_ns) FILTER (WHERE NOT from_caller AND {speaks})").alias("called_at"),
        # By time, then by place: a batch is captured at one instant.
        *(
            F.expr(f"min(IF({side} AND {_CARRIES}, struct(at_ns, file_id, offset, mrp_sequence), NULL))").alias(name)
            for name, side in (("caller_first", "from_caller"), ("called_first", "NOT from_caller"))
        ),
    )
    odd = f"""caller_at < given_at OR called_at < coalesce(caller_at, {1 << 62})
        OR caller_first.mrp_sequence NOT BETWEEN 1 AND {WINDOW_MAX}
        OR called_first.mrp_sequence NOT BETWEEN 1 AND {WINDOW_MAX}"""
    joined = mrp.join(F.broadcast(facts.where(odd)), on="session", how="inner")
    first = "IF(from_caller, caller_first, called_first)"
    told = joined.withColumn("is_first", F.expr(f"file_id = {first}.file_id AND offset = {first}.offset"))
    context = ("kind", "from_caller", "mrp_sequence", "given_at", "caller_at", "called_at", "is_first")
    return told.select(*FRAME, *context)


_OPENING_RULES = (
    Rule(
        clause="MRP-2.8",
        where="from_caller AND kind IN ('data', 'ack') AND at_ns = caller_at AND given_at IS NOT NULL",
        holds=f"given_at <= at_ns + {JITTER_NS}",
        found="concat(kind, ' of the client before the con reply')",
        expected="the client sends packets with sv_conid after the reply that gives it",
        needs_start=True,
    ),
    Rule(
        clause="MRP-2.10",
        where="NOT from_caller AND kind IN ('data', 'ack') AND at_ns = called_at AND given_at IS NOT NULL",
        holds=f"caller_at <= at_ns + {JITTER_NS}",
        found="concat(kind, ' of the server before any packet of the client with sv_conid')",
        expected="the server sends no data before the client's first packet",
        needs_start=True,
    ),
    Rule(
        clause="MRP-3.1",
        where="is_first",
        holds=f"mrp_sequence BETWEEN 1 AND {WINDOW_MAX}",
        found="concat('a first message with sequence ', mrp_sequence)",
        expected="in each direction the first message has sequence 1",
        needs_start=True,
    ),
)

CHECKS = (
    Check(context=_ids, rules=_ID_RULES),
    Check(context=_calls, rules=_CALL_RULES),
    Check(context=_pairs, rules=_PAIR_RULES),
    Check(context=_openings, rules=_OPENING_RULES),
)
