"""Which conversations are worth a closer look: nearly all keep the rules, and to see that costs a fraction.

The rules about numbers look at windows of whole packets, which must be sorted. A screen comes before: it packs each
packet into a few integers, groups them by the number that they speak of, and names the *owners* (a session, or the flow
of rup and pydevts) of which any group is odd. Only packets of these go on to the windows. A screen may suspect what is
fine; what it passes is not looked at again, so a rule finds what its screen lets through.

Owners and texts are hashed to 64 bits, and the packed rows of an owner are brought together once for all groupings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from fairway.lake.violations.rule import JITTER_NS, SECOND_NS, SLACK_NS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

SESSION = "session"
FLOW = "point, flow"

IMPORTANT, HEARTBEAT, REQUEST, SYN_ACK = 1, 2, 3, 4
"""What a udpc packet is that can be answered, and what an answer is for."""


def _packed(rows: DataFrame, owner: str, **columns: str) -> DataFrame:
    """Gives the owner of each row and these columns, with the rows of an owner in one place."""
    texts = {"owner": f"xxhash64({owner})", "at_ns": "at_ns", **columns}
    return rows.select(*_columns(texts)).repartition("owner")


def _columns(texts: dict[str, str]) -> list[Column]:
    return [F.expr(text).alias(name) for name, text in texts.items()]


def _exploded(rows: DataFrame, roles: str) -> DataFrame:
    """Gives a row for each role that is not null. (A filter on the array would not be compiled.)"""
    entries = rows.select("*", F.explode(F.expr(roles)).alias("entry"))
    return entries.where("entry IS NOT NULL").select("*", "entry.*")


def _grouped(rows: DataFrame, *keys: str, **columns: str) -> DataFrame:
    return rows.groupBy("owner", *keys).agg(*_columns(columns))


def _owners(groups: DataFrame, odd: str) -> DataFrame:
    """Gives the owners of odd groups; a group of which it cannot be told is odd."""
    return groups.where(f"coalesce({odd}, true)").select("owner").distinct()


def _answered_before(sent_at: str, answered_at: str) -> str:
    """SQL that is true where there is an answer, and nothing sent before that it could answer."""
    return f"({answered_at} IS NOT NULL AND NOT coalesce({sent_at} <= {answered_at} + {JITTER_NS}, false))"


def udpc_numbers(udpc: DataFrame) -> DataFrame:
    """Suspects sessions with an index used twice, a copy that comes late, or an answer to nothing."""
    asks = f"""CASE kind WHEN 'important' THEN {IMPORTANT} WHEN 'heartbeat' THEN {HEARTBEAT}
        WHEN 'request' THEN {REQUEST} WHEN 'answering_request' THEN {REQUEST} WHEN 'syn_ack' THEN {SYN_ACK} END"""
    # The handshake's ACK answers index 1, which is the SYN+ACK's.
    answers = f"""CASE WHEN kind = 'important_ack' THEN {IMPORTANT} WHEN kind = 'heartbeat_ack' THEN {HEARTBEAT}
        WHEN kind = 'response' AND udpc_ack = 1 AND body_bytes = 0 THEN NULL
        WHEN kind IN ('response', 'answering_request') THEN {REQUEST} END"""
    late = f"""CASE kind WHEN 'plain' THEN {SLACK_NS} WHEN 'fin' THEN {10 * SECOND_NS}
        WHEN 'request' THEN {15 * SECOND_NS} ELSE {40 * SECOND_NS} END"""
    packed = _packed(
        udpc,
        SESSION,
        from_caller="from_caller",
        udpc_index="udpc_index",
        udpc_ack="udpc_ack",
        asks=asks,
        answers=answers,
        late_ns=late,
        print="xxhash64(udpc_flag, udpc_ack, body_bytes, body_crc)",
    )
    roles = """array(
        named_struct('sent', true, 'side', from_caller, 'number', udpc_index),
        IF(answers IS NULL, NULL, named_struct('sent', false, 'side', NOT from_caller, 'number', udpc_ack)))"""
    entries = _exploded(packed, roles)
    numbers = _grouped(
        entries,
        "side",
        "number",
        prints="min(IF(sent, print, NULL)) <> max(IF(sent, print, NULL))",
        sent_at="min(IF(sent, at_ns, NULL))",
        sent_last_at="max(IF(sent, at_ns, NULL))",
        late_ns="min(IF(sent, late_ns, NULL))",
        asked="max(IF(sent, asks, NULL))",
        answered_at="min(IF(sent, NULL, at_ns))",
        answers_least="min(IF(sent, NULL, answers))",
        answers_most="max(IF(sent, NULL, answers))",
        responses=f"min(IF(NOT sent AND answers = {REQUEST}, udpc_index, NULL))"
        f" <> max(IF(NOT sent AND answers = {REQUEST}, udpc_index, NULL))",
    )
    wrong = "answered_at IS NOT NULL AND NOT coalesce(asked = answers_least AND asked = answers_most, false)"
    early = _answered_before("sent_at", "answered_at")
    odd = f"coalesce(prints OR responses OR sent_last_at - sent_at >= late_ns, false) OR ({wrong}) OR {early}"
    return _owners(numbers, odd)


def mrp_stamped(stamped: DataFrame, unacknowledged_ns: int) -> DataFrame:
    """Suspects connections with a sequence used twice, an ack of nothing, or a copy that comes too late."""
    packed = _packed(
        stamped,
        SESSION,
        data="kind = 'data'",
        side="from_caller = (kind = 'data')",
        number="CAST(message AS BIGINT)",
        stamp="mrp_stamp",
        print="xxhash64(body_bytes, body_crc)",
    )
    stamps = _grouped(
        packed,
        "side",
        "number",
        "stamp",
        sent_at="min(IF(data, at_ns, NULL))",
        sent_last_at="max(IF(data, at_ns, NULL))",
        acked_at="min(IF(data, NULL, at_ns))",
        print_least="min(IF(data, print, NULL))",
        print_most="max(IF(data, print, NULL))",
    )
    numbers = _grouped(
        stamps,
        "side",
        "number",
        early=f"bool_or({_answered_before('sent_at', 'acked_at')} AND NOT (number IS NULL AND stamp = 0))",
        prints="min(print_least) <> max(print_most)",
        late=f"count(acked_at) = 0 AND max(sent_last_at) - min(sent_at) > {unacknowledged_ns}",
    )
    return _owners(numbers, "coalesce(early, false) OR coalesce(prints, false) OR coalesce(late, false)")


def mrp_piggyback(piggyback: DataFrame) -> DataFrame:
    """Suspects connections with a sequence used twice, or a from_seq that is too high or goes back.

    A connection whose sequences have gone round is always suspected.
    """
    packed = _packed(
        piggyback,
        SESSION,
        from_caller="from_caller",
        own="IF(body_bytes > 0, CAST(message AS BIGINT), NULL)",
        said="CAST(mrp_from_sequence AS BIGINT)",
        print="xxhash64(body_bytes, body_crc)",
    )
    roles = """array(
        IF(own IS NULL, NULL, named_struct('sent', true, 'side', from_caller, 'number', own)),
        named_struct('sent', false, 'side', NOT from_caller, 'number', said))"""
    entries = _exploded(packed, roles)
    numbers = _grouped(
        entries,
        "side",
        "number",
        sent_at="min(IF(sent, at_ns, NULL))",
        said_at="min(IF(sent, NULL, at_ns))",
        said_last_at="max(IF(sent, NULL, at_ns))",
        prints="min(IF(sent, print, NULL)) <> max(IF(sent, print, NULL))",
    )
    sides = _grouped(
        numbers,
        "side",
        odd=f"bool_or(coalesce(prints, false) OR (number <> 0 AND {_answered_before('sent_at', 'said_at')}))",
        sent="count(sent_at)",
        highest="max(IF(said_at IS NULL, NULL, number))",
        last="max_by(number, said_last_at)",
    )
    return _owners(sides, "odd OR coalesce(highest > sent OR last < highest, false)")


def rup_messages(rup: DataFrame, copies_max: int, silence_ns: int, bad: str) -> DataFrame:
    """Suspects flows with a part or an answer that does not fit the others; `bad` is SQL of parts bad by themselves.

    A part is filed under where it ends, together with the confirms and requests of that position: what a confirm says
    that has arrived ends there.
    """
    packed = _packed(
        rup,
        FLOW,
        message="xxhash64(rup_id, forward = (kind = 'data'))",
        kind="kind",
        place="IF(kind = 'data', rup_position + body_bytes, rup_position)",
        position="rup_position",
        total="rup_total",
        bytes="body_bytes",
        bad=f"kind = 'data' AND ({bad} OR (rup_position + body_bytes < rup_total AND rup_position % body_bytes <> 0))",
        print="xxhash64(rup_position, rup_total, body_bytes, body_crc)",
    )
    data = "kind = 'data'"
    places = _grouped(
        packed,
        "message",
        "place",
        sent_at=f"min(IF({data}, at_ns, NULL))",
        sent_last_at=f"max(IF({data}, at_ns, NULL))",
        copies=f"count_if({data})",
        prints=f"min(IF({data}, print, NULL)) <> max(IF({data}, print, NULL))",
        bad="bool_or(bad)",
        total=f"min(IF({data}, total, NULL))",
        position=f"min(IF({data}, position, NULL))",
        bytes=f"max(IF({data}, bytes, NULL))",
        confirmed_at="min(IF(kind = 'confirm', at_ns, NULL))",
        confirmed_last_at="max(IF(kind = 'confirm', at_ns, NULL))",
        requested_at="min(IF(kind = 'request', at_ns, NULL))",
    )
    odd_place = f"""bad OR coalesce(prints, false) OR copies > {copies_max}
        OR coalesce(sent_last_at - sent_at > {silence_ns}, false)
        OR (place > 0 AND {_answered_before("sent_at", "confirmed_at")})
        OR (place > 0 AND requested_at IS NOT NULL AND sent_at IS NULL)"""
    messages = _grouped(
        places,
        "message",
        odd=f"bool_or({odd_place})",
        total="min(total)",
        total_most="max(total)",
        size="min(IF(place < total, bytes, NULL))",
        size_most="max(IF(place < total, bytes, NULL))",
        last="max(IF(place = total, position, NULL))",
        highest="max(position)",
        parts="count(position)",
        confirmed="max(IF(confirmed_at IS NULL, NULL, place))",
        confirmed_last="max_by(place, confirmed_last_at)",
        requested="max(IF(requested_at IS NULL, NULL, place))",
    )
    odd = """total IS NULL OR odd OR total <> total_most
        OR coalesce(size <> size_most OR last % size <> 0 OR total - last > size, false)
        OR coalesce(confirmed_last < confirmed OR parts * size < confirmed, false)
        OR coalesce(requested >= total OR requested >= highest, false)"""
    return _owners(messages, odd)


def pydevts_ids(pydevts: DataFrame, transmissions_max: int, life_ns: int, late_ns: int) -> DataFrame:
    """Suspects flows with an answer to nothing, a damaged body, too many copies, or an id used again soon."""
    packed = _packed(
        pydevts,
        FLOW,
        kind="kind",
        side="IF(kind = 'ack', NOT forward, forward)",
        id="pydevts_id",
        crc="pydevts_crc",
        failed="pydevts_success = 1",
        bad="kind = 'packet' AND body_crc <> pydevts_crc",
    )
    keys = _grouped(
        packed,
        "side",
        "id",
        "crc",
        odd="bool_or(coalesce(bad, false) OR (failed AND kind <> 'ack'))",
        sent_at="min(IF(kind = 'packet', at_ns, NULL))",
        sent_last_at="max(IF(kind = 'packet', at_ns, NULL))",
        sent="count_if(kind = 'packet')",
        acks="count_if(kind = 'ack')",
        acked_at="min(IF(kind = 'ack', at_ns, NULL))",
        asking_at="min(IF(kind = 'ack' AND (failed OR crc = 0), at_ns, NULL))",
        closed_at="min(IF(kind = 'close', at_ns, NULL))",
    )
    odd_key = f"""odd OR sent > {transmissions_max} OR acks > {transmissions_max} + 2 * sent
        OR coalesce(sent_last_at - sent_at >= {late_ns}, false)
        OR {_answered_before("sent_at", "asking_at")} OR {_answered_before("acked_at", "closed_at")}"""
    ids = _grouped(
        keys,
        "side",
        "id",
        odd=f"bool_or({odd_key})",
        uses="count(sent_at)",
        spread_ns="max(sent_at) - min(sent_at)",
    )
    return _owners(ids, f"odd OR (uses > 1 AND spread_ns < {life_ns} * (uses - 1))")
