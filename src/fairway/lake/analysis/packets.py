"""Every record with its session, its direction, its message, and whether it is a copy: the table `packets`.

A *conversation* is what one id names at one point of one flow: udpc's sessionID, mrp's pair of conids; the flow
itself for rup and pydevts, which have no id. A *session* is a conversation cut where it was silent for longer than
its protocol lets a peer live; so an id, or a port, that is used again later is another session. Its key is made
from the point, the flow, the id and the time of its first record.

The *caller* is who sent the SYN or the connect. Where neither was seen, it is who sent the first record, or whoever
that record answers.

A *copy* is a record that repeats an earlier one of its sender at this point: same udpc index and kind, same mrp
sequence, same rup id and position, same pydevts id. It is a *duplicate* if an acknowledgement of what it carries
passed the point before it, because then an earlier one had arrived. Copies that the network makes faster than the
receiver acknowledges are copies and not duplicates; and a copy of a request is not a duplicate, since requests are
not acknowledged but answered.

Windows see only what they need; all other columns travel beside them as one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from fairway.core.tables import PACKETS
from fairway.lake.analysis.calls import FORWARD, IN_TIME, answered_calls
from fairway.lake.analysis.layouts import CHOSEN, flow_layouts
from fairway.lake.analysis.numbers import OTHER, OWN, TURN, nearest, turned
from fairway.lake.analysis.scale import TASK_RECORDS
from fairway.lake.captures.recognition import LEFT_TO_THE_ANALYSIS, recognised

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.window import WindowSpec

    from fairway.lake.captures.recognition import PortMap

IDLE_S = {"udpc": 60, "mrp": 300, "rup": 60, "pydevts": 60}
"""A silence that ends a session. mrp forgets a connection after five minutes; the others are over much sooner."""

BUCKETS = 16
"""Into how many parts tables are cut, by flow: one part is replaced at a time, and computed by one task."""

FEW_RECORDS = 20_000_000
"""Up to so many records what is known of flows and calls is sent to every task, instead of shuffling all records."""

_ANSWERS = """(kind IN ('syn_ack', 'important_ack', 'heartbeat_ack', 'con_reply', 'ack', 'confirm')
    OR (protocol = 'rup' AND kind = 'request'))"""
"""What speaks to the caller, if it is the first that was seen."""

_BARE = "(mrp_layout = 'piggyback' AND body_bytes = 0)"
"""An acknowledgement without a message."""

_CONVERSATION = """CASE
    WHEN protocol = 'unknown' OR kind IS NULL OR kind IN ('malformed', 'ignore') OR at_ns IS NULL THEN NULL
    WHEN kind = 'syn' THEN coalesce(CAST(answer AS STRING), concat('call ', udpc_session))
    WHEN protocol = 'udpc' THEN CAST(udpc_session AS STRING)
    WHEN kind = 'connect' THEN IF(forward, concat(mrp_client, '/', coalesce(CAST(answer AS STRING), '?')),
        concat(coalesce(CAST(answer AS STRING), '?'), '/', mrp_client))
    WHEN kind = 'con_reply' THEN IF(forward, concat(mrp_server, '/', mrp_client), concat(mrp_client, '/', mrp_server))
    WHEN protocol = 'mrp' THEN IF(forward, concat(mrp_origin, '/', mrp_destination),
        concat(mrp_destination, '/', mrp_origin))
    ELSE '' END"""

_COPIED = f"""CASE protocol
    WHEN 'udpc' THEN IF(kind IN ('important_ack', 'heartbeat', 'heartbeat_ack'), NULL, kind)
    WHEN 'mrp' THEN IF(kind = 'data' AND NOT {_BARE} OR kind IN ('connect', 'con_reply'), kind, NULL)
    WHEN 'rup' THEN IF(kind = 'data', CAST(rup_position AS STRING), NULL)
    WHEN 'pydevts' THEN IF(kind = 'packet', kind, NULL) END"""
"""What two records of one number have in common if one repeats the other; null for what is never counted as a copy."""

_SAYS = f"""CASE
    WHEN protocol = 'rup' THEN 'name'
    WHEN kind IN ('plain', 'important', 'request', 'response', 'answering_request', 'packet', 'close') THEN 'own'
    WHEN kind = 'data' AND NOT {_BARE} THEN 'own'
    WHEN kind IN ('important_ack', 'ack', 'data') THEN 'other' END"""
"""Which of its numbers names a record's message."""

_IDLE_NS = "CASE protocol " + " ".join(f"WHEN '{name}' THEN {s}000000000" for name, s in IDLE_S.items()) + " END"

_PREPARED = {
    "turn": TURN,
    "own_raw": f"CAST({OWN} AS BIGINT)",
    "other_raw": f"CAST({OTHER} AS BIGINT)",
    "to_caller": _ANSWERS,
    "copied": _COPIED,
    "says": _SAYS,
    "of_other": f"kind IN ('important_ack', 'ack', 'confirm') OR (protocol = 'rup' AND kind = 'request') OR {_BARE}",
    "acknowledges": "IF(kind = 'important_ack' OR (kind = 'ack' AND coalesce(pydevts_success, 0) = 0), true, NULL)",
    "confirms": "IF(kind = 'confirm', rup_position, NULL)",
    "reaches": "IF(protocol = 'rup' AND kind = 'data', rup_position + greatest(body_bytes, 1), NULL)",
    "covers": "mrp_layout = 'piggyback'",
    "idle_ns": _IDLE_NS,
    "strand": "IF(conversation IS NULL, xxhash64(file_id, offset), xxhash64(point, flow, protocol, conversation))",
}
"""What the windows need of a record. A strand is the records of one conversation; those outside any would gather in
one, and each gets its own."""

_KEYS = ("point", "flow", "protocol", "conversation", "forward", "rup_id", *IN_TIME)
_SESSION = """IF(conversation IS NULL, NULL, concat(protocol, '-',
    translate(lpad(hex(xxhash64(point, flow, protocol, conversation, start_ns)), 16, '0'), 'ABCDEF', 'abcdef')))"""
"""Not lower(): that loads the case rules of all languages, which takes longer than a small capture."""
_MESSAGE = """IF(session IS NULL, NULL, CASE says WHEN 'name' THEN rup_id WHEN 'own' THEN CAST(own AS STRING)
    WHEN 'other' THEN IF(protocol = 'mrp' AND other = 0, NULL, CAST(other AS STRING)) END)"""
"""mrp's number 0 is before the first message: an acknowledgement of it says that nothing has come yet."""
_LETTER = "IF(session IS NULL, strand, xxhash64(session, of_forward, message))"
"""All that carries or acknowledges one message."""
_COPY = "xxhash64(letter, forward, copied, own)"
"""A datagram and what repeats it."""
_SENDS = {"forward": "forward", "backward": "NOT forward"}
_FOUND = ("session", "from_caller", "message", "retransmission", "duplicate")


def bucket(buckets: int) -> Column:
    """Gives the part of the tables that a record belongs to; records without a flow go by their file."""
    return F.expr(f"CAST(pmod(coalesce(flow, xxhash64(file_id)), {buckets}) AS INT)").alias("bucket")


def packets(
    datagrams: DataFrame, port_map: PortMap | None = None, *, buckets: int = BUCKETS, records: int | None = None
) -> DataFrame:
    """Gives the table `packets`, and `bucket` behind its columns, from rows of `DATAGRAMS`.

    `records` is about how many there are, if that is known: it decides only how the work is spread.
    """
    few = records is not None and records <= FEW_RECORDS
    tasks = buckets if records is None else min(buckets, 1 + records // TASK_RECORDS)
    records_read = _in_conversations(datagrams, port_map, few=few)
    narrow = _prepared(records_read, buckets, tasks)
    spread = narrow.repartitionById(tasks, F.col("task")) if tasks > 1 else narrow
    rows = _with_copies(_with_numbers(_with_sessions(spread)))
    columns = [F.col(name) if name in (*_KEYS, *_FOUND) else F.col(f"rest.{name}") for name in PACKETS.names]
    return rows.select(*columns, "bucket")


def _in_conversations(datagrams: DataFrame, port_map: PortMap | None, *, few: bool) -> DataFrame:
    """Gives the columns of `packets` but the last ones, read in the right layout, and `conversation`.

    That is the id that names it, from the view of both directions; null outside any.
    """
    known = recognised(datagrams, port_map, flows=0 if few else None)
    layouts, calls = flow_layouts(datagrams), answered_calls(datagrams)
    joined = known.join(F.broadcast(layouts) if few else layouts, on="flow", how="left").join(
        F.broadcast(calls) if few else calls, on=["file_id", "offset"], how="left"
    )
    chosen = joined.withColumns({"mrp_layout": F.expr(CHOSEN), "forward": F.expr(FORWARD)})
    kept = [name for name in PACKETS.names if name not in LEFT_TO_THE_ANALYSIS]
    read = chosen.select(*(_read(name) for name in kept), "mrp_layout", "forward", "answer")
    return read.withColumn("conversation", F.expr(_CONVERSATION))


_PIGGYBACK_READING = {
    "mrp_destination": "IF({piggyback}, piggyback_destination, mrp_destination)",
    "mrp_origin": "IF({piggyback}, piggyback_origin, mrp_origin)",
    "mrp_sequence": "IF({piggyback}, piggyback_sequence, mrp_sequence)",
    "mrp_stamp": "IF({piggyback}, NULL, mrp_stamp)",
    "mrp_from_sequence": "IF({piggyback}, mrp_from_sequence, NULL)",
    "body_bytes": "IF({piggyback}, payload_bytes - 12, body_bytes)",
    "body_crc": "IF({piggyback}, piggyback_body_crc, body_crc)",
    "body": "IF({piggyback}, substring(payload, 13), body)",
}


def _read(name: str) -> Column:
    text = _PIGGYBACK_READING.get(name)
    return F.col(name) if text is None else F.expr(text.format(piggyback="mrp_layout <=> 'piggyback'")).alias(name)


def _prepared(records: DataFrame, buckets: int, tasks: int) -> DataFrame:
    rest = [name for name in (*PACKETS.names,) if name not in (*_KEYS, *_FOUND)]
    return records.select(
        *_KEYS,
        *(F.expr(text).alias(name) for name, text in _PREPARED.items()),
        F.struct(*rest).alias("rest"),
        bucket(buckets),
        F.pmod(bucket(buckets), F.lit(tasks)).cast("int").alias("task"),
    )


def _with_sessions(records: DataFrame) -> DataFrame:
    """Adds `session` and `from_caller`, and for the numbers the last one that each side used before."""
    in_time = _in_time("strand")
    looked_back = records.withColumns(
        {
            "silence_ns": F.col("at_ns") - F.lag("at_ns").over(in_time),
            **{
                f"last_{side}_{name}": _last(f"{sends} AND own_raw IS NOT NULL", name, _before(in_time))
                for side, sends in _SENDS.items()
                for name in ("own_raw", "at_ns")
            },
        }
    )
    starts = "silence_ns IS NULL OR silence_ns > idle_ns"
    start = {"start_ns": "at_ns", "caller_forward": "IF(to_caller, NOT forward, forward)"}
    return looked_back.withColumns({name: _last(starts, text, _until(in_time)) for name, text in start.items()})


def _with_numbers(records: DataFrame) -> DataFrame:
    """Adds `message`: the number of what a record carries or acknowledges, widened; and which side's message it is."""
    in_time = _in_time("strand")
    # A number from before the session began is none of its own.
    known = records.withColumns(
        {
            "session": F.expr(_SESSION),
            "from_caller": F.expr("IF(conversation IS NULL, NULL, forward = caller_forward)"),
            **{
                f"{side}_raw": F.expr(f"IF(last_{side}_at_ns >= start_ns, last_{side}_own_raw, NULL)")
                for side in _SENDS
            },
        }
    )
    turns = {
        f"{side}_turns": F.sum(F.expr(f"IF({sends}, {turned('own_raw', f'{side}_raw')}, 0)")).over(_until(in_time))
        for side, sends in _SENDS.items()
    }
    other = nearest("other_raw", "IF(forward, backward_raw, forward_raw)")
    widened = known.withColumns(turns).withColumns(
        {
            "own": F.expr("own_raw + turn * IF(forward, forward_turns, backward_turns)"),
            "other": F.expr(f"{other} + turn * IF(forward, backward_turns, forward_turns)"),
        }
    )
    covered = {
        f"{side}_covered": F.max(F.expr(f"IF(covers AND NOT ({sends}), other, NULL)")).over(_before(in_time))
        for side, sends in _SENDS.items()
    }
    named = {"message": F.expr(_MESSAGE), "of_forward": F.expr("IF(of_other, NOT forward, forward)")}
    return widened.withColumns({**covered, **named})


def _with_copies(records: DataFrame) -> DataFrame:
    """Adds `retransmission` and `duplicate`."""
    of_message, of_copies = _before(_in_time("letter")), _in_time("copy")
    arrived = F.coalesce(
        F.max("acknowledges").over(of_message),
        F.expr("own <= IF(forward, forward_covered, backward_covered)"),
        F.max("confirms").over(of_message) >= F.col("reaches"),
        F.lit(False),
    )
    lettered = records.withColumn("letter", F.expr(_LETTER)).withColumn("copy", F.expr(_COPY))
    counted = lettered.withColumn("arrived", arrived).withColumn("earlier", F.row_number().over(of_copies) - 1)
    countable = "session IS NOT NULL AND copied IS NOT NULL"
    return counted.withColumns(
        {
            "retransmission": F.expr(f"IF({countable}, earlier, NULL)").cast("int"),
            "duplicate": F.expr(f"IF({countable}, earlier > 0 AND arrived, NULL)"),
        }
    )


def _in_time(key: str) -> WindowSpec:
    """Gives the window of records with the same key, in the order of time; one task holds all of them.

    The key is a hash of 64 bits, and the first that is compared: sorting by the texts that it stands for takes longer.
    """
    return Window.partitionBy(key, "task").orderBy(*IN_TIME)


def _before(window: WindowSpec) -> WindowSpec:
    return window.rowsBetween(Window.unboundedPreceding, -1)


def _until(window: WindowSpec) -> WindowSpec:
    return window.rowsBetween(Window.unboundedPreceding, Window.currentRow)


def _last(condition: str, value: str, window: WindowSpec) -> Column:
    """Gives the last value before, among the rows that fulfil a condition."""
    return F.last(F.expr(f"IF({condition}, {value}, NULL)"), ignorenulls=True).over(window)
