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

from fairway.lake.violations.rule import (
    BY_NOW,
    ECHOED,
    FRAME,
    JITTER_NS,
    MRP_CARRIES,
    NAMED,
    SECOND_NS,
    SLACK_NS,
    WINDOW_MAX,
    Check,
    Rule,
    aged,
    columns,
    format_rule,
    over,
)

UNACKNOWLEDGED_NS = 120 * SECOND_NS
"""30 s of MRP-7.3, and as long again for each of a few restarts that begin to count anew."""
PIGGYBACK_CONID_MAX = 65_535
HALF_OPEN_NS = 5 * SECOND_NS
"""Of MRP-2.4: so long a connection is kept of which nothing but connects has come."""

_ACCEPTABLE = f"(mrp_version = 0 OR (mrp_version = 1 AND mrp_client <= {PIGGYBACK_CONID_MAX}))"
_ACCEPTS = "kind = 'con_reply' AND mrp_status = 1"


_BEFORE = over(
    ["point", "flow", "called_forward", "mrp_client"],
    connects="count_if(kind = 'connect')",
    acceptable=f"count_if(kind = 'connect' AND {_ACCEPTABLE})",
    version="min_by(mrp_version, IF(kind = 'connect', at_ns, NULL))",
    given=f"min(IF({_ACCEPTS}, struct(at_ns, mrp_server), NULL))",
)

VIEWS = {
    # The pairs of ids that one side of a flow names in data and acks, and when.
    "mrp_speakers": """
        SELECT point, flow, forward, kind, mrp_origin, mrp_destination, min(first_at) AS named_at,
            max(last_at) AS named_last_at
        FROM mrp_strands WHERE kind IN ('data', 'ack') GROUP BY ALL""",
    # The flows that have replies and whose first packet is a connect: the capture holds their beginning. One of a
    # single direction has none, and cannot tell which ids belong together.
    "mrp_flows": """
        SELECT point, flow, min(first_at) = min(first_at) FILTER (WHERE kind = 'connect') AS whole,
            min(first_at) AS flow_begins_at
        FROM mrp_strands WHERE kind <> 'ignore' GROUP BY ALL HAVING whole AND count_if(kind = 'con_reply') > 0""",
    "mrp_calls": """
        SELECT *, IF(kind = 'connect', forward, NOT forward) AS called_forward
        FROM mrp_packets WHERE kind IN ('connect', 'con_reply')""",
    # Of each call the ver of its first connect.
    "mrp_versions": """
        SELECT point, flow, forward AS called_forward, mrp_client, min_by(mrp_version, first_at) AS version
        FROM mrp_strands WHERE kind = 'connect' GROUP BY ALL""",
    # The pairs of ids that a con reply made a connection, both ways, with the directions of such replies.
    "mrp_connections": f"""
        SELECT point, flow, mrp_origin, mrp_destination,
            any_value(IF(client, replies, NULL), true) AS client_reply_forward,
            any_value(IF(client, NULL, replies), true) AS server_reply_forward
        FROM (SELECT point, flow, inline(array(
                named_struct('mrp_origin', mrp_client, 'mrp_destination', mrp_server, 'client', true,
                    'replies', reply_forward),
                named_struct('mrp_origin', mrp_server, 'mrp_destination', mrp_client, 'client', false,
                    'replies', reply_forward)))
            FROM (SELECT point, flow, mrp_client, mrp_server, collect_set(forward) AS reply_forward
                FROM mrp_strands WHERE {_ACCEPTS} GROUP BY ALL))
        GROUP BY ALL""",
    "mrp_rejected": """
        SELECT DISTINCT point, flow, NOT forward AS forward, mrp_client AS mrp_origin, true AS rejected
        FROM mrp_strands WHERE kind = 'con_reply' AND mrp_status = 2""",
    # `agreed`: these ids, in this direction, are a connection; `exchanged`: they are the other way round. Both ends may
    # have chosen the same number: then either reading may be the one that fits.
    "mrp_pairs": """
        SELECT *, coalesce(array_contains(client_reply_forward, NOT forward), false) AS as_client,
            coalesce(array_contains(server_reply_forward, forward), false) AS as_server,
            as_client OR as_server AS agreed,
            (client_reply_forward IS NOT NULL OR server_reply_forward IS NOT NULL) AND NOT agreed AS exchanged,
            as_client OR (client_reply_forward IS NOT NULL AND NOT as_server) AS is_client,
            IF(is_client, forward, NOT forward) AS called_forward,
            IF(is_client, mrp_origin, mrp_destination) AS mrp_client
        FROM mrp_speakers
        JOIN mrp_flows USING (point, flow)
        LEFT JOIN mrp_connections USING (point, flow, mrp_origin, mrp_destination)
        LEFT JOIN mrp_rejected USING (point, flow, forward, mrp_origin)""",
    # An id is in use from the connect or con reply that gives it to a node until the last packet of the connection,
    # and for as long as one is half open.
    "mrp_lives": f"""
        SELECT flow, session, point, node, id, connection, min(struct(at_ns AS begins_at, {FRAME})) AS first,
            max(greatest(session_last_at, at_ns + {HALF_OPEN_NS})) AS ends_at
        FROM (SELECT {FRAME}, IF(kind = 'connect', mrp_client, mrp_server) AS id,
                struct(source, source_port) AS node,
                struct(destination, destination_port, mrp_client, kind) AS connection
            FROM mrp_packets WHERE session IS NOT NULL AND (kind = 'connect' OR ({_ACCEPTS})))
        LEFT JOIN (SELECT flow, session, max(last_at) AS session_last_at FROM mrp_strands
            WHERE session IS NOT NULL GROUP BY ALL) USING (flow, session)
        GROUP BY flow, session, point, node, id, connection""",
}

_CALLS = f"""
    SELECT {FRAME}, kind, mrp_version, mrp_status, mrp_client, mrp_server, connects, acceptable, version, given_server,
        given_last_at, whole, flow_begins_at
    FROM (SELECT *, given.mrp_server AS given_server FROM (SELECT *, {columns(_BEFORE)} FROM mrp_calls))
    LEFT JOIN mrp_flows USING (point, flow)
    LEFT JOIN (SELECT point, flow, forward, mrp_origin AS given_server, mrp_destination AS mrp_client,
            max(named_last_at) AS given_last_at FROM mrp_speakers GROUP BY ALL)
        USING (point, flow, forward, given_server, mrp_client)"""
"""Connects and con replies, with what was called and answered before."""

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


_IDS_OF_NODES = """
    SELECT first.*, id, connection, max(struct(ends_at, connection)) OVER (
        PARTITION BY point, node, id ORDER BY first.at_ns, connection
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS other
    FROM mrp_lives"""
"""The first packet of each connection that gives a node an id, with what else had that id; a node is an address at a
point. A caller chooses cl_conid when it connects and the called side sv_conid when it accepts."""

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


_PAIRS = f"""
    SELECT {FRAME}, kind, mrp_origin, mrp_destination, agreed, exchanged, rejected, version, flow_begins_at
    FROM mrp_packets JOIN (
        SELECT point, flow, forward, kind, mrp_origin, mrp_destination, named_at, agreed, exchanged, rejected, version,
            flow_begins_at
        FROM mrp_pairs LEFT JOIN mrp_versions USING (point, flow, called_forward, mrp_client)
        WHERE NOT agreed OR (kind = 'ack' AND version = 1))
    USING (point, flow, forward, kind, mrp_origin, mrp_destination)
    WHERE at_ns = named_at"""
"""The first data and the first ack of each pair of ids that is odd, with what is known of the pair."""

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


_SPEAKS = "kind IN ('data', 'ack')"
_BY_SIDE = ", ".join(
    f"""min(first_at) FILTER (WHERE {way} AND {_SPEAKS}) AS {side}_at,
        min(carried_at) FILTER (WHERE {way}) AS {side}_carried_at, min(odd_at) FILTER (WHERE {way}) AS {side}_odd_at"""
    for side, way in (("caller", "from_caller"), ("called", "NOT from_caller"))
)
# By time, then by place: a batch is captured at one instant.
_OPENINGS = f"""
    SELECT {FRAME}, kind, from_caller, mrp_sequence, given_at, caller_at, called_at,
        min(IF({MRP_CARRIES}, struct(at_ns, file_id, offset), NULL)) OVER (PARTITION BY flow, session, from_caller)
            = struct(at_ns, file_id, offset) AS is_first
    FROM mrp_packets JOIN (
        SELECT flow, session, min(first_at) FILTER (WHERE {_ACCEPTS}) AS given_at, {_BY_SIDE}
        FROM mrp_strands WHERE session IS NOT NULL GROUP BY ALL
        HAVING caller_at < given_at OR called_at < coalesce(caller_at, {1 << 62})
            OR caller_odd_at = caller_carried_at OR called_odd_at = called_carried_at) USING (flow, session)"""
"""The packets of connections whose sides seem to speak too early, or whose first sequence is odd."""

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


_SPOKEN = f"session IS NOT NULL AND {_SPEAKS}"

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
        holds=NAMED,
        found="concat('an ack of sequence ', mrp_sequence, ', which was never sent')",
        expected="an ack names a packet that was sent",
        needs_start=True,
    ),
    Rule(
        clause="MRP-4.3",
        where=f"{_ACKNOWLEDGES} AND {NAMED}",
        holds=ECHOED,
        found="concat('an ack of sequence ', mrp_sequence, ' with stamp ', mrp_stamp, ', which no transmission had')",
        expected="an ack repeats the stamp of the packet that it acknowledges",
        needs_start=True,
    ),
    Rule(
        clause="MRP-5.6",
        where="mrp_layout = 'piggyback' AND mrp_from_sequence <> 0",
        holds=NAMED,
        found="concat('from_seq ', mrp_from_sequence, ', which was never sent')",
        expected="from_seq acknowledges what was sent",
        needs_start=True,
    ),
)


_PROGRESS = over(["flow", "session", "side"], advanced_at="max(IF(kind = 'ack' AND at_ns = first_at_ns, at_ns, NULL))")
_STALLED = f"""
    SELECT {FRAME}, first_at_ns, advanced_at FROM (
        SELECT *, {columns(_PROGRESS)} FROM (
            SELECT *, from_caller = (kind = 'data') AS side
            FROM mrp_packets LEFT SEMI JOIN (
                SELECT flow, session FROM mrp_strands WHERE kind = 'data' AND late_ns > {UNACKNOWLEDGED_NS})
            USING (flow, session)
            WHERE {_SPOKEN} AND mrp_layout = 'stamped'))
    WHERE kind = 'data' AND NOT duplicate AND at_ns - first_at_ns > {UNACKNOWLEDGED_NS}"""
"""Late retransmissions of stamped data, with when a sequence of their sender was last newly acknowledged."""

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


_COUNTED = over(
    ["flow", "session"],
    of_caller="count_if(from_caller AND retransmission = 0)",
    of_callee="count_if(NOT from_caller AND retransmission = 0)",
)
_LONG_AGO = over(
    ["flow", "session"],
    aged(to_ns=SLACK_NS),
    caller_said="max_by(mrp_from_sequence, IF(from_caller, at_ns, NULL))",
    callee_said="max_by(mrp_from_sequence, IF(from_caller, NULL, at_ns))",
)
_PIGGYBACK = f"""
    SELECT {FRAME}, mrp_from_sequence, acknowledges_at_ns, IF(from_caller, of_callee, of_caller) AS seen,
        IF(from_caller, caller_said, callee_said) AS said
    FROM (SELECT *, {columns(_COUNTED | _LONG_AGO)} FROM mrp_packets
        WHERE {_SPOKEN} AND kind = 'data' AND mrp_layout = 'piggyback')"""
"""Piggyback data, with how much of the other side from_seq may speak of, and what it said long enough ago.

`seen` counts the sequences that the other side has used up to now; beyond half a turn it no longer says anything.
"""

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
    Check(rows=_IDS_OF_NODES, rules=_ID_RULES),
    Check(rows=_CALLS, rules=_CALL_RULES),
    Check(rows=_PAIRS, rules=_PAIR_RULES),
    Check(rows=_OPENINGS, rules=_OPENING_RULES),
    Check(of=f"protocol = 'mrp' AND {_SPOKEN}", rules=_NUMBER_RULES),
    Check(rows=_STALLED, rules=_STALLED_RULES),
    Check(rows=_PIGGYBACK, rules=_PIGGYBACK_RULES),
)
