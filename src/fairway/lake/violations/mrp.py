"""The rules of mrp that a capture can show broken; clauses of docs/wire/mrp.md.

calls      connects and con replies, which are few
ids        what connects and con replies make ids of a node, whatever the flow
pairs      the ids that data and acks name, once for each pair
openings   connections whose sides speak too early or count wrongly from the start
numbers    data and acks, beside the first of their sequence and what they acknowledge
stalled    retransmissions that come when the connection should have ended
piggyback  what from_seq says of all sequences before
"""

from __future__ import annotations

from pyspark.sql import DataFrame

from fairway.lake.analysis.sessions import grouped, named
from fairway.lake.violations.rule import (
    BY_NOW,
    FRAME,
    JITTER_NS,
    MRP_CARRIES,
    SECOND_NS,
    SLACK_NS,
    WINDOW_MAX,
    Check,
    Rule,
    Seen,
    aged,
    format_rule,
    over,
    with_columns,
)

UNACKNOWLEDGED_NS = 120 * SECOND_NS
"""30 s of MRP-7.3, and as long again for each of a few restarts that begin to count anew."""
PIGGYBACK_CONID_MAX = 65_535
HALF_OPEN_NS = 5 * SECOND_NS
"""Of MRP-2.4: so long a connection is kept of which nothing but connects has come."""

_ACCEPTABLE = f"(mrp_version = 0 OR (mrp_version = 1 AND mrp_client <= {PIGGYBACK_CONID_MAX}))"
_ACCEPTS = "kind = 'con_reply' AND mrp_status = 1"


def _speakers(strands: DataFrame) -> DataFrame:
    """Return each pair of ids that one side of a flow names in data and acks, and when."""
    named = strands.where("kind IN ('data', 'ack')")
    keys = ["point", "flow", "forward", "kind", "mrp_origin", "mrp_destination"]
    return grouped(named, keys, {"named_at": "min(first_at)", "named_last_at": "max(last_at)"})


def _accepted(strands: DataFrame) -> DataFrame:
    """Return each pair of ids that a con reply of a flow made a connection, with the directions of such replies."""
    keys = ["point", "flow", "mrp_client", "mrp_server"]
    return grouped(strands.where(_ACCEPTS), keys, {"reply_forward": "collect_set(forward)"})


def _first_versions(strands: DataFrame) -> DataFrame:
    """Return for each cl_conid of a flow the ver of its first connect, and the direction of the call."""
    calls = strands.where("kind = 'connect'").selectExpr("*", "forward AS called_forward")
    version = {"version": "min_by(mrp_version, first_at)"}
    return grouped(calls, ["point", "flow", "called_forward", "mrp_client"], version)


def _whole_flows(strands: DataFrame) -> DataFrame:
    """Return the flows that have replies and whose first packet is a connect: the capture holds their beginning.

    A capture of one direction has none, and cannot tell which ids belong together.
    """
    seen = {
        "whole": "min(first_at) = min(first_at) FILTER (WHERE kind = 'connect')",
        "replies": "count_if(kind = 'con_reply')",
        "flow_begins_at": "min(first_at)",
    }
    flows = grouped(strands.where("kind <> 'ignore'"), ["point", "flow"], seen)
    return flows.where("whole AND replies > 0").selectExpr("point", "flow", "whole", "flow_begins_at")


def _calls(seen: Seen) -> DataFrame:
    """Add to connects and con replies what was called and answered before."""
    strands = seen.strands_of("mrp")
    calls = seen.of("mrp").where("kind IN ('connect', 'con_reply')")
    rows = with_columns(calls, {"called_forward": "IF(kind = 'connect', forward, NOT forward)"})
    before = over(
        ["point", "flow", "called_forward", "mrp_client"],
        connects="count_if(kind = 'connect')",
        acceptable=f"count_if(kind = 'connect' AND {_ACCEPTABLE})",
        version="min_by(mrp_version, IF(kind = 'connect', at_ns, NULL))",
        given_server=f"min(IF({_ACCEPTS}, struct(at_ns, mrp_server), NULL))",
    )
    before["given_server"] += ".mrp_server"
    pair = ["point", "flow", "forward", "given_server", "mrp_client"]
    names = ("point", "flow", "forward", "mrp_origin AS given_server", "mrp_destination AS mrp_client", "named_last_at")
    last = grouped(_speakers(strands).selectExpr(*names), pair, {"given_last_at": "max(named_last_at)"})
    known = with_columns(rows, before).join(_whole_flows(strands), ["point", "flow"], "left")
    context = ("kind", "mrp_version", "mrp_status", "mrp_client", "mrp_server", *before)
    return known.join(last, pair, "left").selectExpr(*FRAME, *context, "given_last_at", "whole", "flow_begins_at")


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


def _ids(seen: Seen) -> DataFrame:
    """Return the first packet that gives a node an id which another of its connections has.

    A node is an address at a point. A caller chooses cl_conid when it connects and the called side sv_conid when it
    accepts; the id is in use until the last packet of the connection, and for as long as one is half open.
    """
    strands = seen.strands_of("mrp").where("session IS NOT NULL")
    last = grouped(strands, ["flow", "session"], {"last_at": "max(last_at)"})
    mrp = seen.of("mrp").where(f"session IS NOT NULL AND (kind = 'connect' OR ({_ACCEPTS}))")
    given = mrp.selectExpr(
        *FRAME,
        "IF(kind = 'connect', mrp_client, mrp_server) AS id",
        "struct(source, source_port) AS node",
        "struct(destination, destination_port, mrp_client, kind) AS connection",
    )
    life = {
        "first": f"min(struct(at_ns AS begins_at, {', '.join(FRAME)}))",
        "ends_at": f"max(greatest(last_at, at_ns + {HALF_OPEN_NS}))",
    }
    of_life = ["flow", "session", "point", "node", "id", "connection"]
    lives = grouped(given.join(last, ["flow", "session"], "left"), of_life, life)
    earlier = (
        "PARTITION BY point, node, id ORDER BY first.at_ns, connection ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING"
    )
    known = with_columns(lives, {"other": f"max(struct(ends_at, connection)) OVER ({earlier})"})
    return known.selectExpr(*(f"first.{name}" for name in FRAME), "id", "connection", "other")


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


def _pairs(seen: Seen) -> DataFrame:
    """Return the first data and the first ack of each pair of ids that is odd, with what is known of the pair.

    `agreed` says that these ids, in this direction, are a connection; `exchanged` that they are the other way round.
    """
    strands = seen.strands_of("mrp")
    versions = _first_versions(strands)
    replies = _accepted(strands).selectExpr(
        "point",
        "flow",
        "inline(array(named_struct('mrp_origin', mrp_client, 'mrp_destination', mrp_server, 'client', true,"
        " 'replies', reply_forward), named_struct('mrp_origin', mrp_server, 'mrp_destination', mrp_client,"
        " 'client', false, 'replies', reply_forward)))",
    )
    keys = ["point", "flow", "mrp_origin", "mrp_destination"]
    either = {
        "client_reply_forward": "any_value(IF(client, replies, NULL), true)",
        "server_reply_forward": "any_value(IF(client, NULL, replies), true)",
    }
    rejections = strands.where("kind = 'con_reply' AND mrp_status = 2")
    caller = ["point", "flow", "forward", "mrp_origin"]
    rejected = rejections.selectExpr("point", "flow", "NOT forward AS forward", "mrp_client AS mrp_origin")
    speakers = _speakers(strands).join(_whole_flows(strands), ["point", "flow"], "inner")
    named = speakers.join(grouped(replies, keys, either), keys, "left")
    known = named.join(grouped(rejected, caller, {"rejected": "true"}), caller, "left")
    for step in _PAIRED:
        known = with_columns(known, step)
    told = known.join(versions, ["point", "flow", "called_forward", "mrp_client"], "left")
    known_of_pair = ("agreed", "exchanged", "rejected", "version", "flow_begins_at")
    names = [*keys, "forward", "kind"]
    odd = told.where("NOT agreed OR (kind = 'ack' AND version = 1)").selectExpr(*names, "named_at", *known_of_pair)
    joined = seen.of("mrp").join(odd, names, "inner").where("at_ns = named_at")
    return joined.selectExpr(*FRAME, "kind", "mrp_origin", "mrp_destination", *known_of_pair)


_PAIRED = (
    {
        # Both ends may have chosen the same number: then either reading may be the one that fits.
        "as_client": "coalesce(array_contains(client_reply_forward, NOT forward), false)",
        "as_server": "coalesce(array_contains(server_reply_forward, forward), false)",
        "named": "client_reply_forward IS NOT NULL OR server_reply_forward IS NOT NULL",
    },
    {
        "agreed": "as_client OR as_server",
        "exchanged": "named AND NOT as_client AND NOT as_server",
        "is_client": "as_client OR (client_reply_forward IS NOT NULL AND NOT as_server)",
    },
    {
        "called_forward": "IF(is_client, forward, NOT forward)",
        "mrp_client": "IF(is_client, mrp_origin, mrp_destination)",
    },
)


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
        found=f"concat({_IDS}, ', although the call was rejected')",
        expected="stat 2 refuses the connection",
        all_since="flow_begins_at",
    ),
    Rule(
        clause="MRP-2.9",
        where="NOT agreed AND NOT (exchanged AND kind = 'ack') AND rejected IS NULL",
        found=f"concat({_IDS}, ', which no con reply of this flow joined')",
        expected="dest_conid and from_conid are those of one connection",
        all_since="flow_begins_at",
    ),
)


def _openings(seen: Seen) -> DataFrame:
    """Return the packets of connections whose sides seem to speak too early, or whose first sequence is odd."""
    speaks = "kind IN ('data', 'ack')"
    when = {"given_at": f"min(first_at) FILTER (WHERE {_ACCEPTS})"}
    for side, way in (("caller", "from_caller"), ("called", "NOT from_caller")):
        when[f"{side}_at"] = f"min(first_at) FILTER (WHERE {way} AND {speaks})"
        when[f"{side}_carried_at"] = f"min(carried_at) FILTER (WHERE {way})"
        when[f"{side}_odd_at"] = f"min(odd_at) FILTER (WHERE {way})"
    odd = f"""caller_at < given_at OR called_at < coalesce(caller_at, {1 << 62})
        OR caller_odd_at = caller_carried_at OR called_odd_at = called_carried_at"""
    of_session = ["flow", "session"]
    told = grouped(seen.strands_of("mrp").where("session IS NOT NULL"), of_session, when).where(odd)
    joined = seen.of("mrp").where("session IS NOT NULL").join(told, of_session, "inner")
    # By time, then by place: a batch is captured at one instant.
    first = (
        f"min(IF({MRP_CARRIES}, struct(at_ns, file_id, offset), NULL)) OVER (PARTITION BY flow, session, from_caller)"
    )
    known = with_columns(joined, {"first": first})
    context = ("kind", "from_caller", "mrp_sequence", "given_at", "caller_at", "called_at")
    return known.selectExpr(*FRAME, *context, "first = struct(at_ns, file_id, offset) AS is_first")


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


def _spoken(seen: Seen) -> DataFrame:
    return seen.of("mrp").where("session IS NOT NULL AND kind IN ('data', 'ack')")


def _numbers(seen: Seen) -> DataFrame:
    """Add to data and acks whether what they acknowledge, and the stamp that they repeat, was seen by now."""
    known = {
        "sent": f"coalesce(acknowledges_at_ns {BY_NOW}, false)",
        "stamped": f"coalesce(echoes_at_ns {BY_NOW}, false)",
    }
    fields = ("kind", "mrp_layout", "mrp_sequence", "mrp_stamp", "mrp_from_sequence", "differs")
    return _spoken(seen).selectExpr(*FRAME, *fields, *named(known))


_ACKNOWLEDGES = "kind = 'ack' AND mrp_layout = 'stamped' AND NOT (mrp_sequence = 0 AND mrp_stamp = 0)"
"""In a piggyback connection an ack is out of place, whatever it names: MRP-1.6."""

_NUMBER_RULES = (
    Rule(
        clause="MRP-3.8",
        where="kind = 'data'",
        holds="differs IS NULL",
        found="concat('sequence ', mrp_sequence, ' again, with another payload')",
        expected="a sequence stands for one message",
    ),
    Rule(
        clause="MRP-4.2",
        where=_ACKNOWLEDGES,
        holds="sent",
        found="concat('an ack of sequence ', mrp_sequence, ', which was never sent')",
        expected="an ack names a packet that was sent",
        needs_start=True,
    ),
    Rule(
        clause="MRP-4.3",
        where=f"{_ACKNOWLEDGES} AND sent",
        holds="stamped",
        found="concat('an ack of sequence ', mrp_sequence, ' with stamp ', mrp_stamp, ', which no transmission had')",
        expected="an ack repeats the stamp of the packet that it acknowledges",
        needs_start=True,
    ),
    Rule(
        clause="MRP-5.6",
        where="mrp_layout = 'piggyback' AND mrp_from_sequence <> 0",
        holds="sent",
        found="concat('from_seq ', mrp_from_sequence, ', which was never sent')",
        expected="from_seq acknowledges what was sent",
        needs_start=True,
    ),
)


def _stalled(seen: Seen) -> DataFrame:
    """Add to late retransmissions of stamped data when a sequence of its sender was last newly acknowledged."""
    rows = _spoken(seen).where("mrp_layout = 'stamped'")
    late = f"kind = 'data' AND NOT duplicate AND at_ns - first_at_ns > {UNACKNOWLEDGED_NS}"
    sessions = seen.strands.where(f"protocol = 'mrp' AND kind = 'data' AND late_ns > {UNACKNOWLEDGED_NS}")
    concerned = rows.join(sessions.selectExpr("flow", "session"), ["flow", "session"], "left_semi")
    spoken = with_columns(concerned, {"side": "from_caller = (kind = 'data')"})
    newly = "max(IF(kind = 'ack' AND at_ns = first_at_ns, at_ns, NULL))"
    known = with_columns(spoken, over(["flow", "session", "side"], advanced_at=newly)).where(late)
    return known.selectExpr(*FRAME, "first_at_ns", "advanced_at")


_STALLED_RULES = (
    Rule(
        clause="MRP-7.3",
        severity="warning",
        holds=f"advanced_at >= at_ns - {UNACKNOWLEDGED_NS}",
        found="concat('a retransmission ', (at_ns - first_at_ns) DIV 1000000, ' ms after the first, without progress')",
        expected="data outstanding and nothing newly acknowledged for 30 s ends the connection",
        reported=f"more than {UNACKNOWLEDGED_NS // SECOND_NS} s after the first, and after the last progress",
        needs_start=True,
    ),
)


def _piggyback(seen: Seen) -> DataFrame:
    """Add to piggyback data how much of the other side from_seq may speak of, and what it said long enough ago.

    `seen` counts the sequences that the other side has used up to now; beyond half a turn it no longer says anything.
    """
    rows = _spoken(seen).where("kind = 'data' AND mrp_layout = 'piggyback'")
    by_now = over(
        ["flow", "session"],
        of_caller="count_if(from_caller AND retransmission = 0)",
        of_callee="count_if(NOT from_caller AND retransmission = 0)",
    )
    long_ago = over(
        ["flow", "session"],
        aged(to_ns=SLACK_NS),
        caller_said="max_by(mrp_from_sequence, IF(from_caller, at_ns, NULL))",
        callee_said="max_by(mrp_from_sequence, IF(from_caller, NULL, at_ns))",
    )
    return with_columns(rows, by_now, long_ago).selectExpr(
        *FRAME,
        "mrp_from_sequence",
        "acknowledges_at_ns",
        "IF(from_caller, of_callee, of_caller) AS seen",
        "IF(from_caller, caller_said, callee_said) AS said",
    )


_PIGGYBACK_RULES = (
    Rule(
        clause="MRP-5.1",
        where=f"acknowledges_at_ns {BY_NOW} AND seen <= {WINDOW_MAX}",
        holds="mrp_from_sequence <= seen",
        found="concat('from_seq ', mrp_from_sequence, ' after only ', seen, ' messages')",
        expected="from_seq is the highest sequence with none missing below",
        needs_start=True,
    ),
    Rule(
        clause="MRP-5.9",
        where="said IS NOT NULL",
        holds="pmod(said - mrp_from_sequence, 65536) NOT BETWEEN 1 AND 32767",
        found="concat('from_seq ', mrp_from_sequence, ' after ', said)",
        expected="from_seq never goes back",
        reported=f"{SLACK_NS // SECOND_NS} s after the higher one",
    ),
)

FORMAT_RULES = (
    format_rule(
        "MRP-1.1",
        "bad_magic unknown_type too_short",
        "MRP and a type from 0 to 4",
        where="(reason <> 'too_short' OR payload_bytes < 4)",
    ),
    format_rule("MRP-1.2", "wrong_size", "8 bytes of a connect, 12 of a con reply, 14 of an ack"),
    format_rule("MRP-1.3", "too_short", "at least 12 bytes of data", where="payload_bytes >= 4"),
    format_rule("MRP-1.4", "zero_conid", "connection ids other than 0"),
    format_rule("MRP-1.5", "bad_stat", "stat 1 or 2"),
)

CHECKS = (
    Check(context=_ids, rules=_ID_RULES),
    Check(context=_calls, rules=_CALL_RULES),
    Check(context=_pairs, rules=_PAIR_RULES),
    Check(context=_openings, rules=_OPENING_RULES),
    Check(context=_numbers, rules=_NUMBER_RULES),
    Check(context=_stalled, rules=_STALLED_RULES),
    Check(context=_piggyback, rules=_PIGGYBACK_RULES),
)
