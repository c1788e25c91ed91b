"""Which protocol a flow speaks: by port map, or by what only one protocol writes. What is not conclusive is `unknown`.

    port map   one of the flow's ports was named by the user
    magic      mrp: datagrams that start with its magic and have a known type and size
    hex id     rup: a letter, 32 hexadecimal digits and numbers in base 255
    crc        pydevts: a packet whose field is the CRC-32 of its body
    handshake  udpc: a SYN and a SYN+ACK that answers it
    session    udpc: one sessionID in every datagram, and in each direction an index that advances with them

A verdict is a function of all datagrams of the flow, whichever file or point they come from, so the order of files does
not matter. At least half of a flow must be well-formed in the protocol that is named, and of two protocols with
evidence the one with more conclusive datagrams is taken: a forged datagram changes nothing. A tie is `unknown`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from fairway.core.errors import BadOption
from fairway.core.tables import PACKETS, PROTOCOLS
from fairway.protocols import NAMES

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

PortMap = Mapping[int, str]
"""The protocol that is spoken on a port."""

LEFT_TO_THE_ANALYSIS = ("session", "from_caller", "message", "retransmission", "duplicate", "mrp_layout")
MRP_READINGS = (
    "mrp_stamped",
    "mrp_piggyback",
    "piggyback_destination",
    "piggyback_origin",
    "piggyback_sequence",
    "piggyback_body_crc",
)
RECOGNISED = (
    *(name for name in PACKETS.names if name not in LEFT_TO_THE_ANALYSIS),
    *MRP_READINGS,
    "payload",
)
"""The columns of `recognised`. `body`, `body_bytes` and `body_crc` of mrp data are those of the stamped reading where
that exists, else of the piggyback one; the other reading's are `payload` from byte 12 on, `payload_bytes - 12` and
`piggyback_body_crc`."""

SESSION_DATAGRAMS_MIN = 8
"""A sessionID that does not change proves nothing in fewer."""
INDEX_SPREAD_MAX = 65_536
"""How far a direction's indices may spread beyond the number of its datagrams: an endpoint jumps so far on restore."""
BROADCAST_FLOWS_MAX = 500_000

HEADER_BYTES = {
    "udpc": "13",
    "mrp": "CASE mrp_kind WHEN 'data' THEN IF(mrp_stamped, 14, 12) WHEN 'ignore' THEN 4 ELSE payload_bytes END",
    "rup": "CASE WHEN rup_kind = 'data' THEN 42 ELSE 38 END",
    "pydevts": "8",
}

_UDPC = "udpc_kind != 'malformed'"
_OUT = "(source, source_port) < (destination, destination_port)"
_COUNTS = {
    "datagrams": "count(udpc_kind)",
    "udpc_good": f"count_if({_UDPC})",
    "mrp_good": "count_if(mrp_kind != 'malformed')",
    "rup_good": "count_if(rup_kind != 'malformed')",
    "pydevts_good": "count_if(pydevts_kind != 'malformed')",
    "pydevts_proved": "count_if(pydevts_kind = 'packet' AND payload_bytes > 8 AND pydevts_body_crc = pydevts_crc)",
    "syn_first": "min(udpc_index) FILTER (WHERE udpc_kind = 'syn')",
    "syn_last": "max(udpc_index) FILTER (WHERE udpc_kind = 'syn')",
    "answer_first": "min(udpc_ack) FILTER (WHERE udpc_kind = 'syn_ack')",
    "answer_last": "max(udpc_ack) FILTER (WHERE udpc_kind = 'syn_ack')",
    "sessions_least": f"min(udpc_session) FILTER (WHERE {_UDPC})",
    "sessions_most": f"max(udpc_session) FILTER (WHERE {_UDPC})",
    "out_count": f"count_if({_UDPC} AND {_OUT})",
    "out_spread": f"max(udpc_index) FILTER (WHERE {_OUT}) - min(udpc_index) FILTER (WHERE {_OUT})",
    "in_spread": f"max(udpc_index) FILTER (WHERE NOT {_OUT}) - min(udpc_index) FILTER (WHERE NOT {_OUT})",
}

HANDSHAKE = "coalesce(syn_first = answer_first OR syn_last = answer_last, false)"
SESSION = (
    f"udpc_good >= {SESSION_DATAGRAMS_MIN} AND sessions_least = sessions_most"
    " AND greatest(coalesce(out_spread, 0), coalesce(in_spread, 0)) > 0"
    f" AND coalesce(out_spread, 0) <= out_count + {INDEX_SPREAD_MAX}"
    f" AND coalesce(in_spread, 0) <= udpc_good - out_count + {INDEX_SPREAD_MAX}"
)
_PROOFS = {
    "udpc": f"IF({HANDSHAKE} OR ({SESSION}), udpc_good, 0)",
    "mrp": "mrp_good",
    "rup": "rup_good",
    "pydevts": "pydevts_proved",
}
"""How many datagrams of a flow speak for a protocol, and for none of the others."""
_EVIDENCE = {
    "udpc": f"IF({HANDSHAKE}, 'handshake', 'session')",
    "mrp": "'magic'",
    "rup": "'hex id'",
    "pydevts": "'crc'",
}


def parsed_port_map(entries: Iterable[str]) -> dict[int, str]:
    """Gives the port map that entries such as `udpc=9000` describe."""
    ports: dict[int, str] = {}
    for entry in entries:
        name, _, port = entry.partition("=")
        if name not in NAMES or not port.isdigit() or not 0 < int(port) < 65_536:
            raise BadOption(f"{entry!r} names no port; it must be a protocol and a port, such as udpc=9000")
        if ports.get(int(port), name) != name:
            raise BadOption(f"port {port} is given to {ports[int(port)]} and to {name}; it can have one protocol")
        ports[int(port)] = name
    return ports


def recognised(datagrams: DataFrame, port_map: PortMap | None = None, *, flows: int | None = None) -> DataFrame:
    """Gives every record with its flow's protocol and that protocol's reading of it: the columns `RECOGNISED`.

    `flows` is about how many flows there are, if that is known: few are broadcast instead of shuffling all records.
    """
    by_flow = verdicts(datagrams)
    if flows is not None and flows <= BROADCAST_FLOWS_MAX:
        by_flow = F.broadcast(by_flow)
    joined = datagrams.join(by_flow, on="flow", how="left")
    mapped = _mapped(port_map or {})
    decided = joined.withColumns(
        {
            "protocol": F.coalesce(mapped, F.col("verdict"), F.lit("unknown")),
            "evidence": F.when(mapped.isNotNull(), F.lit("port map")).otherwise(F.col("verdict_evidence")),
        }
    )
    return decided.select(*(_column(name) for name in RECOGNISED))


def verdicts(datagrams: DataFrame) -> DataFrame:
    """Gives for each flow whose content is conclusive `flow`, `verdict` and `verdict_evidence`."""
    whole = datagrams.where("udpc_kind IS NOT NULL")
    counted = whole.groupBy("flow").agg(*(F.expr(text).alias(name) for name, text in _COUNTS.items()))
    proofs = counted.select("*", *(F.expr(_proof(name)).alias(f"{name}_proof") for name in PROTOCOLS))
    best = proofs.withColumn("best", F.greatest(*(F.col(f"{name}_proof") for name in PROTOCOLS)))
    ties = sum((F.col(f"{name}_proof") == F.col("best")).cast("int") for name in PROTOCOLS)
    return best.where((F.col("best") > 0) & (ties == 1)).select(
        "flow",
        _of_best({name: F.lit(name) for name in PROTOCOLS}).alias("verdict"),
        _of_best({name: F.expr(text) for name, text in _EVIDENCE.items()}).alias("verdict_evidence"),
    )


def _proof(name: str) -> str:
    return f"IF(2 * {name}_good >= datagrams, {_PROOFS[name]}, 0)"


def _of_best(choices: Mapping[str, Column]) -> Column:
    return F.coalesce(*(F.when(F.col(f"{name}_proof") == F.col("best"), choice) for name, choice in choices.items()))


def _mapped(port_map: PortMap) -> Column:
    """Gives the protocol that the map names for a row's ports; null for none, and where the two ports disagree."""
    if not port_map:
        return F.lit(None).cast("string")
    pairs = [F.lit(part) for item in sorted(port_map.items()) for part in item]
    known = F.create_map(*pairs)
    source, destination = known[F.col("source_port")], known[F.col("destination_port")]
    agree = source.isNull() | destination.isNull() | (source == destination)
    return F.when(F.col("udpc_kind").isNotNull() & agree, F.coalesce(source, destination))


def _column(name: str) -> Column:
    match name:
        case "kind" | "body_crc":
            return _by_protocol({protocol: F.col(f"{protocol}_{name}") for protocol in PROTOCOLS}).alias(name)
        case "reason":
            readings = _by_protocol({protocol: F.col(f"{protocol}_reason") for protocol in PROTOCOLS})
            unknown = F.when(F.col("protocol") == "unknown", F.lit("protocol_unknown"))
            return F.coalesce(F.col("undecoded"), readings, unknown).alias(name)
        case "body_bytes":
            return _by_protocol({protocol: _body_bytes(protocol) for protocol in PROTOCOLS}).cast("int").alias(name)
        case "body":
            bodies = {protocol: F.expr(f"substring(payload, 1 + {HEADER_BYTES[protocol]})") for protocol in PROTOCOLS}
            return F.when(_well_formed(), _by_protocol(bodies)).alias(name)
        case _ if name.partition("_")[0] in (*PROTOCOLS, "piggyback"):
            owner = name.partition("_")[0].replace("piggyback", "mrp")
            return F.when(F.col("protocol") == owner, F.col(name)).alias(name)
    return F.col(name)


def _body_bytes(protocol: str) -> Column:
    size = F.expr(f"payload_bytes - ({HEADER_BYTES[protocol]})")
    return F.when(F.col(f"{protocol}_kind") != "malformed", size)


def _well_formed() -> Column:
    return _by_protocol({protocol: F.col(f"{protocol}_kind") != "malformed" for protocol in PROTOCOLS})


def _by_protocol(choices: Mapping[str, Column]) -> Column:
    """Gives the choice of the row's protocol; null where it is unknown."""
    return F.coalesce(*(F.when(F.col("protocol") == name, choice) for name, choice in choices.items()))
