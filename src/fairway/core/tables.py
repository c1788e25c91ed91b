"""The columns of segments and tables, in one place: name, type, unit and meaning.

Every writer ends in exactly these columns, in this order; `docs/tables.md` and `docs/messages.md` are made from this
module. Times are UTC: a `timestamp` holds microseconds, a column that ends in `_ns` integer nanoseconds since 1970. A
column is null only where its meaning says so.

Two points of capture see one datagram twice. Rows of different points are never mixed: `point` is part of every key,
and a conversation that was captured at both ends has a session, transfers and a timeline for each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

PROTOCOLS = ("udpc", "mrp", "rup", "pydevts")

Type = Literal["string", "long", "int", "double", "boolean", "timestamp", "date", "binary"]


@dataclass(frozen=True)
class Column:
    """One column of a table."""

    name: str
    type: Type
    meaning: str
    nullable: bool = False


@dataclass(frozen=True)
class Table:
    """A table: its columns in order, what a row is, and by which columns its folders are cut."""

    name: str
    row: str
    columns: tuple[Column, ...]
    partitions: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns, in order."""
        return tuple(column.name for column in self.columns)

    def column(self, name: str) -> Column:
        """Return the column of this name."""
        return next(column for column in self.columns if column.name == name)


def _always(name: str, type_: Type, meaning: str) -> Column:
    return Column(name, type_, meaning)


def _maybe(name: str, type_: Type, meaning: str) -> Column:
    return Column(name, type_, meaning, nullable=True)


SEGMENT = Table(
    "segment",
    "one message that a gateway has acknowledged, in a Parquet file under `landing/GATEWAY/`",
    (
        _always("gateway", "string", "name of the gateway that took the message"),
        _always("gateway_offset", "long", "place in the gateway's order of commits, from 0, without gaps"),
        _always("protocol", "string", "udpc, mrp, rup or pydevts"),
        _maybe("port", "int", "UDP port on which the gateway received it; null if an earlier Fairway took it"),
        _always("peer", "string", "IP address of the sender"),
        _always("peer_port", "int", "UDP port of the sender"),
        _maybe("device", "string", "authenticated name of the sender; null if it came without DTLS"),
        _maybe("session", "long", "udpc sessionID or mrp sv_conid; null for rup and pydevts"),
        _always("id", "string", "the message's identity in its protocol, widened to 64 bits; rup: 32 hex digits"),
        _always("kind", "string", "message, request, or plain (udpc without acknowledgement)"),
        _always("reliable", "boolean", "false for plain udpc packets, which nobody repeats"),
        _always("received", "timestamp", "when the gateway received the message's last part"),
        _always("body", "binary", "the message's bytes"),
    ),
)

MESSAGES = Table(
    "messages",
    "one message that a gateway has acknowledged, once",
    (*SEGMENT.columns, _always("day", "date", "the UTC day of `received`")),
    ("day", "protocol"),
)

_FRAME = (
    _always("file_id", "string", "identity of the capture file's content; with `offset` the key of the row"),
    _always("file", "string", "name of the capture file"),
    _always("offset", "long", "where the record starts in the (decompressed) file, bytes"),
    _always("frame", "long", "number of the record in its file, from 1; of a damaged stretch: of the record before it"),
    _always("piece", "int", "which datagram of a record that holds several, from 1; 0 if the row is all of the record"),
    _always("point", "string", "where the datagram was captured: the interface's name, empty if the file has none"),
    _maybe("at", "timestamp", "when it was captured; null for damaged stretches of a file and records without a time"),
    _maybe("at_ns", "long", "the same in nanoseconds since 1970, as fine as the file has it"),
    _maybe("source", "string", "IP address of the sender"),
    _maybe("source_port", "int", "UDP port of the sender"),
    _maybe("destination", "string", "IP address of the receiver"),
    _maybe("destination_port", "int", "UDP port of the receiver"),
    _always("frame_bytes", "long", "size of the frame on the wire; of a damaged stretch: bytes left out"),
    _maybe("payload_bytes", "int", "size of the UDP payload on the wire"),
    _always("truncated", "boolean", "true if the record holds less than was sent: cut short, or a first fragment"),
    _maybe("flow", "long", "hash of the two endpoints, whatever the direction"),
)

_FIELDS = (
    _maybe("udpc_index", "long", "index"),
    _maybe("udpc_session", "long", "sessionID"),
    _maybe("udpc_ack", "long", "ackIndex; null without ACK"),
    _maybe("udpc_flag", "int", "flag byte"),
    _maybe("mrp_version", "int", "ver of a connect"),
    _maybe("mrp_status", "int", "stat of a con reply"),
    _maybe("mrp_client", "long", "cl_conid of a connect or con reply"),
    _maybe("mrp_server", "long", "sv_conid of a con reply"),
    _maybe("mrp_destination", "long", "dest_conid of data and acks"),
    _maybe("mrp_origin", "long", "from_conid of data and acks"),
    _maybe("mrp_sequence", "int", "sequence of data and acks"),
    _maybe("mrp_stamp", "int", "stamp of stamped data and acks"),
    _maybe("mrp_from_sequence", "int", "from_seq of piggyback data"),
    _maybe("rup_id", "string", "id, 32 hex digits"),
    _maybe("rup_position", "long", "from, or confirmed-to, or the requested position"),
    _maybe("rup_total", "long", "total of a data part"),
    _maybe("rup_start", "int", "start byte of a data part"),
    _maybe("pydevts_id", "int", "message id"),
    _maybe("pydevts_success", "int", "success byte"),
    _maybe("pydevts_crc", "long", "crc field"),
)

_READINGS = (
    *(_maybe(f"{name}_kind", "string", f"what it is if it is {name}; malformed if it cannot be") for name in PROTOCOLS),
    *(_maybe(f"{name}_reason", "string", f"why it cannot be {name}") for name in PROTOCOLS),
    *(
        _maybe(f"{name}_body_crc", "long", f"CRC-32 of the body behind {name}'s header; null if malformed or cut short")
        for name in (*PROTOCOLS, "piggyback")
    ),
    _maybe("dtls", "boolean", "whether it begins with a whole record of DTLS 1.0 or 1.2"),
    _maybe("udpc_idle_ack", "boolean", "whether ackIndex is not 0 though ACK is not set"),
    _maybe("piggyback_destination", "long", "dest_conid, if an mrp data packet has the piggyback layout"),
    _maybe("piggyback_origin", "long", "from_conid, in that case"),
    _maybe("piggyback_sequence", "int", "sequence, in that case"),
    _maybe("mrp_stamped", "boolean", "whether mrp data can be read as stamped"),
    _maybe("mrp_piggyback", "boolean", "whether mrp data can be read as piggyback"),
)

RECORDS = Table(
    "records",
    "one record of a capture, or one datagram of a record that holds several: what `fairway.capture` reads",
    (
        _always("file_id", "long", "identity of the capture file's content, as a number"),
        _always("offset", "long", "where the record starts in the (decompressed) file, bytes"),
        _always("frame", "long", "number of the record in its file, from 1; of a damaged stretch: of the one before"),
        _always("piece", "int", "which datagram the row may be of a record that may hold several; 0 for all of it"),
        _maybe("merged_as", "int", "whose datagrams those would be, as a number; null if the record holds one"),
        _always("damages_before", "long", "how many damaged stretches of the file lie before the record"),
        _always("point", "string", "the interface's name, empty if the file has none"),
        _maybe("at_ns", "long", "when it was captured, nanoseconds since 1970; null if that is not known"),
        _always("flow", "long", "hash of the two endpoints; of a record without a datagram, of its place"),
        _maybe("source", "binary", "IP address of the sender, 4 or 16 bytes"),
        _maybe("source_port", "int", "UDP port of the sender"),
        _maybe("destination", "binary", "IP address of the receiver, 4 or 16 bytes"),
        _maybe("destination_port", "int", "UDP port of the receiver"),
        _always("frame_bytes", "long", "size of the frame on the wire; of a damaged stretch: bytes left out"),
        _maybe("payload_bytes", "int", "size of the UDP payload on the wire"),
        _always("truncated", "boolean", "true if the record holds less than was sent: cut short, or a first fragment"),
        _always("undecoded", "int", "why the record holds no whole UDP datagram, as a number; 0 if it does"),
        _maybe("head", "binary", "the first 64 bytes of the UDP payload; all of it if that was asked for"),
        _maybe("payload_crc", "long", "CRC-32 of the UDP payload; null if the capture does not hold all of it"),
    ),
)

MAPPED = Table(
    "mapped",
    "one record of a capture, decoded by its ports: what `fairway.capture` reads with the option `map`",
    (
        *RECORDS.columns,
        _maybe("protocol", "string", "the protocol that the map names for one of the two ports; null if none"),
        _maybe("kind", "string", "the protocol's name for such a datagram; malformed if it breaks the format"),
        _maybe("reason", "string", "why it is malformed; null if it is not"),
        *_FIELDS,
    ),
)

CAPTURES = Table(
    "captures",
    "one capture file that was read",
    (
        _always("file_id", "string", "identity of the file's content; the same in every table"),
        _always("file", "string", "name of the file"),
        _always("path", "string", "where it was read from"),
        _always("size_bytes", "long", "its size, compressed if it is"),
        _always("records", "long", "records that it holds"),
        _always("damages", "long", "damaged stretches and records"),
        _maybe("first", "timestamp", "its first record; null if no record has a time"),
        _maybe("last", "timestamp", "its last record"),
        _always("payload", "boolean", "whether the bodies of its datagrams were kept"),
        _always("port_map", "string", "the port map that all tables are made with, as JSON"),
        _always("run", "long", "number of the analysis that has read it"),
    ),
)

DATAGRAMS = Table(
    "datagrams",
    "one record of a capture, read as each of the four protocols: what is known before the protocol of its flow is",
    (
        *_FRAME,
        _maybe("undecoded", "string", "why the record holds no whole UDP datagram; null if it does"),
        _maybe("merged_as", "int", "whose datagrams the record may hold several of, as a number; null if it holds one"),
        _maybe("damages_before", "long", "how many damaged stretches of the file lie before the record"),
        *_READINGS,
        *_FIELDS,
        _maybe("payload", "binary", "the UDP payload, if it was asked for"),
    ),
)

PACKETS = Table(
    "packets",
    "one record of a capture; a record that holds no whole UDP datagram, or one that cannot be decoded, says why",
    (
        *_FRAME,
        _maybe("episode", "long", "number of the episode: one flow at all points, cut where it is silent for 300 s"),
        _always("protocol", "string", "udpc, mrp, rup, pydevts, dtls for what is encrypted, or unknown"),
        _maybe(
            "evidence",
            "string",
            "how the flow was recognised: port map, magic, hex id, crc, handshake, session, records",
        ),
        _maybe("kind", "string", "the protocol's name for such a datagram; malformed if it breaks the format"),
        _maybe("reason", "string", "why the record could not be decoded; null if it was"),
        _maybe("session", "string", "key of the session; null outside any session"),
        _maybe("from_caller", "boolean", "true if sent by the side that opened the conversation"),
        _maybe("position", "long", "its number in its session, from 1: by time, then by file and offset"),
        _maybe("message", "string", "identity of the message that it carries or acknowledges, widened to 64 bits"),
        _maybe(
            "retransmission", "int", "how many earlier copies the point saw; 0 for the first, null if not countable"
        ),
        _maybe("duplicate", "boolean", "true for a copy that arrived though an earlier one did"),
        _maybe("acknowledges", "string", "identity of the message that it acknowledges as a whole; null if none"),
        _maybe(
            "acknowledged_sent_ns",
            "long",
            "when the datagram that it answers was sent, nanoseconds; null unless that had been sent once by then",
        ),
        _maybe(
            "gap",
            "long",
            "numbers (rup: parts) left out since its sender's highest before; below 0 if it is behind that one",
        ),
        _maybe("first_at_ns", "long", "`at_ns` of the first packet that its sender sent under its number and kind"),
        _maybe("differs", "string", "in what it differs from that one: kind, ack, size, body; null if in nothing"),
        _maybe("acknowledges_kind", "string", "kind of the first packet under the number that it acknowledges"),
        _maybe("acknowledges_at_ns", "long", "`at_ns` of that one; null if none was captured"),
        _maybe("echoes_at_ns", "long", "`at_ns` of the first transmission with the stamp or crc that it repeats"),
        _maybe("body_bytes", "int", "size of the body behind the protocol's header"),
        _maybe("body_crc", "long", "CRC-32 of the body; null if the capture does not hold all of it"),
        _maybe("body", "binary", "the body, if it was asked for"),
        *_FIELDS,
        _maybe("mrp_layout", "string", "stamped or piggyback, of data and acks, by the connection they belong to"),
        _maybe("head", "binary", "the first 64 bytes of the UDP payload; all of it if bodies were asked for"),
        _maybe("payload_crc", "long", "CRC-32 of the UDP payload; null if the capture does not hold all of it"),
        _always("damages_before", "long", "how many damaged stretches of the file lie before the record"),
        _always(
            "open", "boolean", "true if the episode is so near an edge of its capture that another may continue it"
        ),
    ),
    ("open",),
)

SESSIONS = Table(
    "sessions",
    "one conversation of two endpoints, as seen at one point",
    (
        _always("session", "string", "key of the session; the same in every table"),
        _always("protocol", "string", "udpc, mrp, rup or pydevts"),
        _always("point", "string", "where it was captured"),
        _always("flow", "long", "hash of the two endpoints"),
        _always("caller", "string", "address of the side that opened it, or that was seen first"),
        _always("caller_port", "int", "its port"),
        _always("callee", "string", "address of the other side"),
        _always("callee_port", "int", "its port"),
        _maybe("protocol_session", "string", "sessionID, or cl_conid/sv_conid; null for rup and pydevts"),
        _always("first", "timestamp", "its first packet"),
        _always("last", "timestamp", "its last packet"),
        _always("duration_us", "long", "from the first packet to the last, microseconds"),
        _always("from_start", "boolean", "true if the capture holds the beginning: rules that need it apply"),
        _maybe("handshake_us", "long", "from the first call to the first answer, microseconds; null if not seen"),
        _always("packets_out", "long", "datagrams from the caller"),
        _always("packets_in", "long", "datagrams to the caller"),
        _always("bytes_out", "long", "their UDP payload, bytes"),
        _always("bytes_in", "long", "their UDP payload, bytes"),
        _always("transfers_out", "long", "messages from the caller"),
        _always("transfers_in", "long", "messages to the caller"),
        _always("retransmissions_out", "long", "copies sent by the caller"),
        _always("retransmissions_in", "long", "copies sent by the callee"),
        _always("duplicates", "long", "copies that arrived though an earlier one did, both ways"),
        _maybe("retransmission_ratio", "double", "copies per packet that may be repeated; null if there was none"),
        _maybe("duplicate_ratio", "double", "duplicates per packet that may be repeated; null if there was none"),
        _always("rtt_samples", "long", "round trips measured without ambiguity"),
        _maybe("rtt_min_us", "long", "shortest round trip, microseconds"),
        _maybe("rtt_p50_us", "long", "median round trip, microseconds"),
        _maybe("rtt_p90_us", "long", "90th percentile, microseconds"),
        _maybe("rtt_p99_us", "long", "99th percentile, microseconds"),
        _maybe("loss_out", "double", "estimated share of the caller's packets that were lost"),
        _maybe("loss_in", "double", "estimated share of the callee's packets that were lost"),
        _always("violations", "long", "rules found broken in it"),
        _always("ending", "string", "closed, replaced, refused, unanswered, or open (the capture ends before it does)"),
    ),
)

TRANSFERS = Table(
    "transfers",
    "one message, as seen at one point",
    (
        _always("session", "string", "key of the session"),
        _always("protocol", "string", "udpc, mrp, rup or pydevts"),
        _always("point", "string", "where it was captured"),
        _always("from_caller", "boolean", "true if the caller sent it"),
        _always("message", "string", "identity of the message, widened to 64 bits; rup: 32 hex digits"),
        _always(
            "kind", "string", "plain, important, request, response (udpc); data (mrp); message (rup); packet (pydevts)"
        ),
        _maybe("size_bytes", "long", "size of the message; null if no part that tells it was seen"),
        _always("parts", "long", "datagrams it takes at least, as seen"),
        _maybe("first_sent", "timestamp", "its first datagram; null if only acknowledgements were seen"),
        _maybe("last_sent", "timestamp", "its last datagram, copies included"),
        _always("attempts", "long", "most often that any of its datagrams was sent"),
        _always("copies", "long", "datagrams of it beyond the first of each part"),
        _maybe(
            "acknowledged", "timestamp", "the first acknowledgement (rup: confirm of the total; request: its response)"
        ),
        _maybe("latency_us", "long", "from `first_sent` to `acknowledged`, microseconds"),
        _always(
            "outcome",
            "string",
            "acknowledged, repaired (acknowledged after a failed CRC), refused, unacknowledged, or unreliable (plain)",
        ),
    ),
)

VIOLATIONS = Table(
    "violations",
    "one breach of a numbered clause of docs/wire",
    (
        _always("rule", "string", "the clause, such as UDPC-2.2"),
        _always("severity", "string", "error (the peer is wrong), or warning (harmless or explicable by loss)"),
        _always("protocol", "string", "udpc, mrp, rup or pydevts"),
        _maybe("session", "string", "key of the session; null outside any"),
        _always("point", "string", "where it was captured"),
        _always("file_id", "string", "identity of the capture file"),
        _always("file", "string", "name of the capture file"),
        _always("offset", "long", "where the record starts in the file"),
        _always("frame", "long", "number of the record that breaks the rule"),
        _always("at", "timestamp", "when it was captured"),
        _always("found", "string", "what was found"),
        _always("expected", "string", "what the rule asks for"),
    ),
)

TIMELINE = Table(
    "timeline",
    "one second of one session",
    (
        _always("session", "string", "key of the session"),
        _always("protocol", "string", "udpc, mrp, rup or pydevts"),
        _always("point", "string", "where it was captured"),
        _always("second", "timestamp", "the start of the second"),
        _always("packets_out", "long", "datagrams from the caller"),
        _always("packets_in", "long", "datagrams to the caller"),
        _always("bytes_out", "long", "their UDP payload, bytes"),
        _always("bytes_in", "long", "their UDP payload, bytes"),
        _always("goodput_out", "long", "bodies seen for the first time from the caller, bytes"),
        _always("goodput_in", "long", "bodies seen for the first time to the caller, bytes"),
        _always("retransmissions_out", "long", "copies sent by the caller"),
        _always("retransmissions_in", "long", "copies sent by the callee"),
        _maybe("loss_out", "double", "estimated share of the caller's packets of this second that were lost"),
        _maybe("loss_in", "double", "estimated share of the callee's packets of this second that were lost"),
        _always("rtt_samples", "long", "round trips that ended in this second, unambiguous ones"),
        _maybe("rtt_p50_us", "long", "median, microseconds"),
        _maybe("rtt_p90_us", "long", "90th percentile, microseconds"),
        _maybe("rtt_p99_us", "long", "99th percentile, microseconds"),
    ),
)

REJECTED = Table(
    "rejected",
    "one message whose body does not fit the schema that was asked for",
    (
        _always("typed_table", "string", "the typed table that it was meant for"),
        _always("reason", "string", "why its body does not fit"),
        *MESSAGES.columns,
    ),
    ("day", "typed_table"),
)

RUNS = Table(
    "runs",
    "one simulated run of a sweep",
    (
        _always("cell", "long", "number of the cell in its folder; `fairway lab replay` takes it"),
        _always("key", "string", "hash of everything that the run is a function of"),
        _always("protocol", "string", "udpc, mrp, rup or pydevts"),
        _always("variant", "string", "the protocol with the options that the grid sets for it"),
        _always("controller", "string", "congestion controller: model, newreno or eager"),
        _always("window", "long", "packets in flight at the most"),
        _always("options", "string", "the options that the grid sets, as JSON"),
        _always("loss", "double", "average share of datagrams lost, each way"),
        _always("burst_length", "double", "mean length of a burst of losses, datagrams; 1 is independent loss"),
        _always("delay_ms", "double", "delay one way, milliseconds"),
        _always("jitter_ms", "double", "added to the delay up to this, milliseconds"),
        _always("bandwidth", "long", "bytes a second; 0 is unlimited"),
        _always("queue_bytes", "long", "what waits in front of a limited link at the most, bytes"),
        _always("reorder", "double", "share of datagrams that are overtaken"),
        _always("duplicate", "double", "share of datagrams that arrive twice"),
        _always("corrupt", "double", "share of datagrams that are damaged"),
        _always("messages", "long", "messages of each flow"),
        _always("size_bytes", "long", "size of a message, bytes"),
        _always("interval_ms", "double", "between two messages, milliseconds; 0 is as fast as it goes"),
        _always("flows", "long", "nodes that send at the same time, sharing the link if it has a bandwidth"),
        _always("seed", "long", "seed of the run"),
        _always("delivered", "long", "messages delivered before the time was over"),
        _always("acknowledged", "long", "messages whose sender was told so"),
        _always("failed", "long", "messages reported as failed, or without an outcome when the time was over"),
        _maybe("latency_p50_us", "long", "from acceptance to hand-over, median, microseconds; null if nothing arrived"),
        _maybe("latency_p90_us", "long", "90th percentile"),
        _maybe("latency_p99_us", "long", "99th percentile"),
        _maybe("acknowledgement_p50_us", "long", "from acceptance to acknowledgement, median, microseconds"),
        _maybe("acknowledgement_p99_us", "long", "99th percentile"),
        _always(
            "goodput_bytes_per_s", "double", "bodies delivered per second, from first acceptance to last hand-over"
        ),
        _always("load_us", "long", "from the first message accepted to the last outcome, microseconds"),
        _always("datagrams", "long", "datagrams sent by all nodes, closing included"),
        _always("datagrams_per_message", "double", "datagrams per message delivered"),
        _always("bytes_per_message", "double", "UDP payload per message delivered, bytes"),
        _always("retransmissions", "long", "datagrams sent again"),
        _always("duplicates", "long", "copies that receivers recognised"),
        _maybe("fairness", "double", "Jain's index of the flows' rates; null for a single flow"),
        _always("passed", "boolean", "false if a promise of the protocol was broken"),
        _always("digest", "string", "hash of all that happened in the run"),
    ),
)

CAPTURE_TABLES = (PACKETS, SESSIONS, TRANSFERS, VIOLATIONS, TIMELINE)
"""What `fairway analyze` makes of captures."""

OF_EPISODES = tuple(PACKETS.column(name) for name in ("episode", "open"))
"""What the stored tables behind `packets` have beside their own columns: by them rows are replaced."""

ANALYSIS_TABLES = (
    CAPTURES,
    PACKETS,
    *(
        Table(table.name, table.row, (*table.columns, *OF_EPISODES), PACKETS.partitions)
        for table in (TIMELINE, TRANSFERS, VIOLATIONS, SESSIONS)
    ),
)
"""What `fairway analyze` writes, in the order of its commits."""

LANDED_TABLES = (MESSAGES, REJECTED)
"""What `fairway stream` writes, besides the typed tables that it is asked for."""
