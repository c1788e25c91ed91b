"""Conversations, one row each (`sessions`), and their seconds (`timeline`): packets, bytes, losses and round trips.

A session ended *closed* if a FIN was seen; *refused* if an mrp connect was rejected; *unanswered* if the callee never
sent anything; *replaced* if another udpc session began on the same flow within ten seconds of its last packet, which is
when a silent one is given up; otherwise it is *open*: the capture ends before it does, or its protocol has no end.

A packet may be lost between its sender and the point, or between the point and its receiver. On both stretches the
two ways are taken to lose alike: one point sees what a loss causes, which is the same for a packet and for its
acknowledgement.

*Before* the point, numbers are left out (`gap`): what lies between the highest so far and one beyond the next was lost,
or overtaken. Their share of all numbers is the loss, unless so few packets are under way that each is sent again before
a later one passes; then more can be told from duplicates, which were sent again because an acknowledgement was lost on
the same stretch. The greater of the two shares is taken.

*Behind* the point, retransmissions that are not duplicates were sent because nothing was heard of what had passed: it
or its acknowledgement was lost, so that the loss of one way is 1 - sqrt(1 - share of retransmissions). A part of rup is
sent again because the peer asks for it, and in mrp's piggyback layout a later acknowledgement stands in for a lost one:
there a packet is sent again only when it was lost itself, and the share is the loss.

Reordering, retransmissions that were sent too early and duplicates that the network made count as loss. So it reads
high for mrp's piggyback layout, whose acknowledgements name no packet: a sender that has to guess repeats more than was
lost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from fairway.core.tables import OF_EPISODES, SESSIONS, TIMELINE

REPLACED_WITHIN_US = 10_000_000
CARRIES = """(retransmission IS NOT NULL AND message IS NOT NULL
    AND NOT (kind = 'response' AND coalesce(udpc_ack, 0) = 1 AND body_bytes = 0))"""
"""Whether a packet holds a message, or a part of one. What answers a server's first index, its SYN+ACK's, ends a
handshake and holds none."""
AT_US = "at_ns DIV 1000"
EPISODE = [column.name for column in OF_EPISODES]
"""What every table has behind its own columns: to which episode a row belongs."""
OWNERS = ["flow", "session", "protocol", "point", *EPISODE]
"""What all packets of a session have in common."""
WAYS = {"out": "from_caller", "in": "NOT from_caller"}
"""From the caller, and to it."""
QUANTILES = {"rtt_p50_us": 0.5, "rtt_p90_us": 0.9, "rtt_p99_us": 0.99}
ACCURACY = 10_000
"""Quantiles are exact for fewer samples than this, and within 1/10,000 of rank for more."""

_FLAGS = {
    "carries": CARRIES,
    "once": "coalesce(retransmission, 0) = 0",
    "cumulative": "protocol = 'rup' OR mrp_layout <=> 'piggyback'",
    "second": "timestamp_seconds(at_ns DIV 1000000000)",
}
"""Of a packet. Where acknowledgements are cumulative, only the loss of a packet itself causes a retransmission."""
_NUMBERED = "(protocol = 'udpc' OR carries)"
_ADDED = {
    "packets": "1",
    "bytes": "payload_bytes",
    "retransmissions": "int(NOT once)",
    "goodput": "IF(carries AND once, body_bytes, 0)",
    "skipped": "greatest(gap, 0)",
    "fresh": f"int({_NUMBERED} AND once)",
    "late": "int(coalesce(gap, 0) < 0 AND once)",
    "repeatable": f"int({_NUMBERED} AND retransmission IS NOT NULL)",
    "repeated": f"int({_NUMBERED} AND NOT once AND NOT duplicate AND NOT cumulative)",
    "missing": f"int({_NUMBERED} AND NOT once AND NOT duplicate AND cumulative)",
    "needless": f"int({_NUMBERED} AND coalesce(duplicate, false))",
}
"""What a packet adds to the sums of its way."""


_BEGINS = "(kind IN ('syn', 'connect', 'packet') OR (protocol = 'rup' AND kind = 'data' AND rup_start = 1))"
_ENDPOINTS = {
    "caller": "IF(from_caller, source, destination)",
    "caller_port": "IF(from_caller, source_port, destination_port)",
    "callee": "IF(from_caller, destination, source)",
    "callee_port": "IF(from_caller, destination_port, source_port)",
}
"""Of one session all packets have the same two."""
_HANDSHAKE = "kind IN ('connect', 'con_reply')"
_SEEN = {
    "first_us": ("min", AT_US),
    "last_us": ("max", AT_US),
    "begun_ns": ("min", f"IF({_BEGINS}, at_ns, NULL)"),
    "first_ns": ("min", "at_ns"),
    "called_us": ("min", f"IF(kind IN ('syn', 'connect'), {AT_US}, NULL)"),
    "answered_us": ("min", f"IF(kind IN ('syn_ack', 'con_reply'), {AT_US}, NULL)"),
    "udpc_id": ("max", "IF(kind != 'syn', udpc_session, NULL)"),
    "udpc_call": ("max", "udpc_session"),
    "caller_id": ("max", f"IF({_HANDSHAKE}, mrp_client, IF(from_caller, mrp_origin, mrp_destination))"),
    "callee_id": (
        "max",
        """CASE WHEN kind = 'con_reply' THEN mrp_server
        WHEN kind != 'connect' THEN IF(from_caller, mrp_destination, mrp_origin) END""",
    ),
    "caller_closed_at": ("max", "IF(kind = 'fin' AND from_caller, position, NULL)"),
    "callee_closed_at": ("max", "IF(kind = 'fin' AND NOT from_caller, position, NULL)"),
    "accepted": ("bool_or", "coalesce(kind = 'con_reply' AND mrp_status = 1, false)"),
    "rejected": ("bool_or", "coalesce(kind = 'con_reply' AND mrp_status = 2, false)"),
    "countable": ("sum", "int(retransmission IS NOT NULL)"),
    "duplicates": ("sum", "int(coalesce(duplicate, false))"),
    **{f"{name}_{suffix}": ("sum", f"IF({way}, {name}, 0)") for suffix, way in WAYS.items() for name in _ADDED},
}
"""What is added up, by name: how, and of what. What all seconds of a session have is added up the same way."""
_TOLD = {
    "first": "timestamp_micros(first_us)",
    "last": "timestamp_micros(last_us)",
    "duration_us": "last_us - first_us",
    "from_start": "coalesce(begun_ns = first_ns, false)",
    "handshake_us": "answered_us - called_us",
    "protocol_session": """CASE protocol WHEN 'udpc' THEN string(coalesce(udpc_id, udpc_call))
        WHEN 'mrp' THEN concat(caller_id, '/', coalesce(string(callee_id), '?')) END""",
    "retransmission_ratio": "try_divide(retransmissions_out + retransmissions_in, countable)",
    "duplicate_ratio": "try_divide(duplicates, countable)",
    "ending": f"""CASE WHEN coalesce(caller_closed_at, callee_closed_at) IS NOT NULL THEN 'closed'
        WHEN rejected AND NOT accepted THEN 'refused' WHEN packets_in = 0 THEN 'unanswered'
        WHEN protocol = 'udpc' AND next_us <= last_us + {REPLACED_WITHIN_US} THEN 'replaced' ELSE 'open' END""",
}
_FOLLOWING = "PARTITION BY point, flow, protocol ORDER BY first_us, last_us, session"


def named(expressions: Mapping[str, str]) -> list[str]:
    """Return SQL of columns with their names.

    Spark is told of a column in one call this way; built from `Column`s, a plan takes longer than what it computes.
    """
    return [f"{text} AS {name}" for name, text in expressions.items()]


def grouped(rows: DataFrame, keys: Sequence[str], expressions: Mapping[str, str]) -> DataFrame:
    """Return rows with equal keys as one, with aggregates by name."""
    return rows.groupBy(*keys).agg(*map(F.expr, named(expressions)))


def in_sessions(packets: DataFrame) -> DataFrame:
    """Return the packets that belong to a session."""
    return packets.where("session IS NOT NULL")


def seconds_of(packets: DataFrame) -> DataFrame:
    """Return what each session adds up in each of its seconds: all that the other tables ask of sessions.

    That is little beside packets; whoever makes several tables keeps it.
    """
    timed = in_sessions(packets).selectExpr("*", *named(_FLAGS | _ENDPOINTS)).selectExpr("*", *named(_ADDED))
    added = {name: f"{how}({what})" for name, (how, what) in _SEEN.items()}
    return grouped(timed, [*OWNERS, *_ENDPOINTS, "second"], added)


def whole_sessions(seconds: DataFrame, *names: str) -> DataFrame:
    """Return what sessions add up, of these names or of all."""
    return grouped(
        seconds, [*OWNERS, *_ENDPOINTS], {name: f"{_SEEN[name][0]}({name})" for name in names or tuple(_SEEN)}
    )


def timeline(packets: DataFrame, seconds: DataFrame | None = None) -> DataFrame:
    """Return the table `timeline`: a row for each second that is not empty.

    A round trip counts in the second in which it ended.
    """
    keys = ["session", "second"]
    joined = (seconds or seconds_of(packets)).join(_round_trips(packets, keys), on=keys, how="left")
    return joined.selectExpr(*OWNERS, "second", *_shown()).selectExpr(*TIMELINE.names, *EPISODE)


def sessions(
    packets: DataFrame, transfers: DataFrame, violations: DataFrame, seconds: DataFrame | None = None
) -> DataFrame:
    """Return the table `sessions`, with the transfers and violations of each counted."""
    seen = whole_sessions(seconds or seconds_of(packets))
    ordered = seen.selectExpr("*", f"lead(first_us) OVER ({_FOLLOWING}) AS next_us")
    trips = _round_trips(packets, ["session"])
    counts = {"transfers_out": "count_if(from_caller)", "transfers_in": "count_if(NOT from_caller)"}
    sent = grouped(transfers, ["session"], counts)
    broken = grouped(violations.where("session IS NOT NULL"), ["session"], {"violations": "count(*)"})
    joined = ordered
    for more in (trips, sent, broken):
        joined = joined.join(more, on="session", how="left")
    counted = joined.na.fill(0, [*counts, "violations"])
    told = counted.selectExpr(*OWNERS, *_ENDPOINTS, *counts, "violations", "duplicates", *_shown(), *named(_TOLD))
    return told.selectExpr(*SESSIONS.names, *EPISODE)


def _round_trips(packets: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Return how long round trips took, each way. A response waits for an application: it measures no network."""
    heard = in_sessions(packets).where(
        "acknowledged_sent_ns IS NOT NULL AND kind NOT IN ('response', 'answering_request')"
    )
    rtt_us = f"{AT_US} - acknowledged_sent_ns DIV 1000"
    trips = heard.selectExpr("session", "from_caller", f"{_FLAGS['second']} AS second", f"{rtt_us} AS rtt_us")
    shares = ", ".join(map(str, QUANTILES.values()))
    both: dict[str, str] = {}
    for suffix, way in WAYS.items():
        # What travelled one way is acknowledged by what comes the other way.
        trip = f"IF({way}, NULL, rtt_us)"
        both |= {
            f"rtt_samples_{suffix}": f"count({trip})",
            f"rtt_min_us_{suffix}": f"min({trip})",
            f"rtt_quantiles_{suffix}": f"percentile_approx({trip}, array({shares}), {ACCURACY})",
        }
    return grouped(trips, keys, both)


def _shown() -> list[str]:
    """Return the columns that sessions and seconds have in common."""
    # A point at one end sees the whole way of what that end sends, and of what it receives only how fast it answers: of
    # the two ways the one that takes longer is shown.
    longer = "coalesce(rtt_quantiles_out[0], -1) >= coalesce(rtt_quantiles_in[0], -1)"
    told = {f"loss_{suffix}": _loss(suffix) for suffix in WAYS}
    told["rtt_samples"] = f"coalesce(IF({longer}, rtt_samples_out, rtt_samples_in), 0)"
    told["rtt_min_us"] = f"IF({longer}, rtt_min_us_out, rtt_min_us_in)"
    told |= {
        name: f"IF({longer}, rtt_quantiles_out[{index}], rtt_quantiles_in[{index}])"
        for index, name in enumerate(QUANTILES)
    }
    sent = [f"{name}_{suffix}" for suffix in WAYS for name in ("packets", "bytes", "retransmissions", "goodput")]
    return [*sent, *named(told)]


def _loss(way: str) -> str:
    """SQL of the share of one way's packets that were lost; null if no packet has a number."""

    def share(some: str, whole: str) -> str:
        return f"coalesce(try_divide({some}_{way}, {whole}), 0D)"

    repeatable = f"repeatable_{way}"
    before = (
        f"greatest({share('skipped', f'(fresh_{way} + skipped_{way} - late_{way})')}, {share('needless', repeatable)})"
    )
    behind, missing = share("repeated", repeatable), share("missing", repeatable)
    return f"IF(fresh_{way} + skipped_{way} > 0, 1 - (1 - {before}) * sqrt(1 - {behind}) * (1 - {missing}), NULL)"
