"""What was sent and what came back for it: the step from packets to transfers, and the round trips.

An *exchange* is one datagram's worth: a message, or one part of a rup message, or one stamp of an mrp packet, with
all its copies and the acknowledgements that name it. A round trip is measured only where it is clear which datagram
was answered: it was sent once. An mrp acknowledgement echoes the stamp, so each stamp is an exchange of its own; a
rup confirm counts for the part that ends where it points. The time that a peer takes to commit before it
acknowledges is part of a round trip. Requests are left out: their answer waits for an application.

A piggyback acknowledgement covers all numbers up to its own. It becomes one acknowledgement for each message, at
the time of the first that covers it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairway.core.columns import Integers
from fairway.lake.analysis.packets import Packets
from fairway.lake.analysis.spoken import KIND, MRP, PYDEVTS, RUP, UDPC
from fairway.lake.analysis.spoken import KINDS as PACKET_KINDS
from fairway.lake.arrays import MISSING, Codes, Mask, begins, mixed

NEVER = np.iinfo(np.int64).max

KINDS = ("data", "heartbeat", "important", "message", "packet", "plain", "request", "response")
"""What a message is, in the order of the alphabet."""
_KIND = {name: number for number, name in enumerate(KINDS)}
_MEASURED = [_KIND[name] for name in ("important", "data", "message", "packet", "heartbeat")]
_SENT_AS = np.array(
    [_KIND.get({"answering_request": "request"}.get(name, name), MISSING) for name in PACKET_KINDS], dtype=np.int16
)


class Exchanges(NamedTuple):
    """What was sent under one name and when it was first acknowledged, in the order of messages; heartbeats too."""

    place: Integers
    """Where one of its records stands among those of the sessions."""
    session: Integers
    from_caller: Mask
    """Whether the caller sent it; that of the one who sends it, also where only acknowledgements were seen."""
    letter: NDArray[np.uint64]
    """A word for its message."""
    number: Integers
    part: Integers
    sent_kind: Codes
    """What was sent, as a place in `KINDS`; -1 if nothing was seen of it."""
    any_kind: Codes
    datagrams: Integers
    first_sent: Integers
    """Microseconds since 1970, as all times; `NEVER` if it was not."""
    last_sent: Integers
    """-1 if it was not."""
    attempts: Integers
    copies: Integers
    body_bytes: Integers
    """-1 if nothing was seen of it; so is the next."""
    total_bytes: Integers
    acknowledged: Integers
    failed: Integers
    rtt_us: Integers
    """The round trip; -1 where it is not clear."""


class _Sayings(NamedTuple):
    """What records say about messages."""

    place: Integers
    at: Integers
    from_caller: Mask
    number: Integers
    part: Integers
    kind: Codes
    sent: Mask
    good: Mask


def carries(packets: Packets) -> Mask:
    """Tells which records of sessions hold a message, or a part of one."""
    spoken, rows = packets.spoken, packets.sessions.rows
    protocol, kind = spoken.protocol[rows], spoken.kind[rows]
    of_udpc = np.isin(kind, [KIND[name] for name in ("plain", "important", "request", "answering_request")])
    of_udpc |= (kind == KIND["response"]) & ~_ends_handshake(packets)
    data = kind == KIND["data"]
    found = np.select(
        [protocol == UDPC, protocol == MRP, protocol == RUP],
        [of_udpc, data & ~spoken.bare[rows], data],
        kind == KIND["packet"],
    )
    mask: Mask = found.astype(np.bool_)
    return mask


def exchanges(packets: Packets) -> Exchanges:
    """Gives all exchanges of the sessions."""
    said = _joined(_sent(packets), _answered(packets), _covered(packets))
    session = packets.sessions.number[said.place]
    heartbeat = said.kind == _KIND["heartbeat"]
    letter = mixed(session * 4 + said.from_caller * 2 + heartbeat, said.number)
    order = np.lexsort((said.part, letter))
    letter, part = letter[order], said.part[order]
    starts = np.flatnonzero(begins(letter) | begins(part))
    if not len(starts):
        starts = np.zeros(0, dtype=np.int64)
    rows = packets.sessions.rows[said.place]
    earlier, body = packets.copies.earlier[said.place], packets.spoken.body_bytes[rows]
    of_rup = packets.spoken.protocol[rows] == RUP
    total = np.where(of_rup & said.sent, packets.spoken.number("rup_total")[rows], MISSING)

    def least(values: Integers, where: Mask) -> Integers:
        return _reduced(np.minimum, np.where(where, values, NEVER)[order], starts)

    def greatest(values: Integers | Codes, where: Mask | bool = True) -> Integers:
        return _reduced(np.maximum, np.where(where, values, MISSING)[order], starts)

    def counted(where: Mask) -> Integers:
        return _reduced(np.add, where[order].astype(np.int64), starts)

    sent = said.sent
    first_sent, acknowledged = least(said.at, sent), least(said.at, ~sent & said.good)
    datagrams, sent_kind = counted(sent), greatest(said.kind, sent)
    clear = (datagrams == 1) & np.isin(sent_kind, _MEASURED) & (acknowledged != NEVER) & (acknowledged >= first_sent)
    chosen = order[starts]
    return Exchanges(
        place=said.place[chosen],
        session=session[chosen],
        from_caller=said.from_caller[chosen],
        letter=letter[starts],
        number=said.number[chosen],
        part=part[starts],
        sent_kind=sent_kind.astype(np.int16),
        any_kind=greatest(said.kind).astype(np.int16),
        datagrams=datagrams,
        first_sent=first_sent,
        last_sent=greatest(said.at, sent),
        attempts=greatest(earlier + 1, sent),
        copies=counted(sent & (earlier > 0)),
        body_bytes=greatest(body, sent),
        total_bytes=greatest(total),
        acknowledged=acknowledged,
        failed=least(said.at, ~sent & ~said.good),
        rtt_us=np.where(clear, acknowledged - np.where(clear, first_sent, 0), MISSING),
    )


def _reduced(function: np.ufunc, values: Integers, starts: Integers) -> Integers:
    reduced: Integers = function.reduceat(values, starts) if len(starts) else np.zeros(0, dtype=np.int64)
    return reduced


def _joined(*sayings: _Sayings) -> _Sayings:
    return _Sayings(*(np.concatenate(columns) for columns in zip(*sayings, strict=True)))


def _ends_handshake(packets: Packets) -> Mask:
    """Tells what answers a server's first index, which is its SYN+ACK's, 1: it carries no message."""
    spoken, rows = packets.spoken, packets.sessions.rows
    answers = (spoken.kind[rows] == KIND["response"]) & (spoken.number("udpc_ack")[rows] == 1)
    found: Mask = answers & (spoken.body_bytes[rows] == 0)
    return found


def _at(packets: Packets, places: Integers) -> Integers:
    return packets.spoken.at_ns[packets.sessions.rows[places]] // 1_000


def _sent(packets: Packets) -> _Sayings:
    spoken = packets.spoken
    places = np.flatnonzero(carries(packets) | (spoken.kind[packets.sessions.rows] == KIND["heartbeat"]))
    rows = packets.sessions.rows[places]
    protocol, kind = spoken.protocol[rows], spoken.kind[rows]
    end = spoken.number("rup_position")[rows] + spoken.body_bytes[rows]
    stamp = np.where(spoken.piggyback[rows], 0, spoken.number("mrp_stamp")[rows])
    heartbeat = kind == KIND["heartbeat"]
    return _Sayings(
        place=places,
        at=_at(packets, places),
        from_caller=packets.sessions.from_caller[places],
        number=np.where(heartbeat, spoken.number("udpc_index")[rows], packets.message.number[places]),
        part=np.select([protocol == RUP, protocol == MRP], [end, stamp], 0),
        kind=np.where(protocol == RUP, _KIND["message"], _SENT_AS[kind]).astype(np.int16),
        sent=np.ones(len(places), dtype=bool),
        good=np.zeros(len(places), dtype=bool),
    )


def _answered(packets: Packets) -> _Sayings:
    spoken, message = packets.spoken, packets.message
    rows = packets.sessions.rows
    kind, acknowledged = spoken.kind[rows], spoken.number("udpc_ack")[rows]
    responds = (kind == KIND["answering_request"]) | ((kind == KIND["response"]) & ~_ends_handshake(packets))
    named = np.isin(kind, [KIND[name] for name in ("important_ack", "ack", "confirm")]) & message.exists
    heartbeat = kind == KIND["heartbeat_ack"]
    places = np.flatnonzero(named | heartbeat | (responds & (acknowledged != 0)))
    rows, kind, responds, heartbeat = rows[places], kind[places], responds[places], heartbeat[places]
    protocol = spoken.protocol[rows]
    asked = np.select(
        [kind == KIND["important_ack"], heartbeat], [_KIND["important"], _KIND["heartbeat"]], _KIND["request"]
    )
    answered = np.select(
        [protocol == UDPC, protocol == MRP, protocol == RUP], [asked, _KIND["data"], _KIND["message"]], _KIND["packet"]
    )
    number = np.select(
        [heartbeat, responds], [acknowledged[places], packets.numbers.other[places]], message.number[places]
    )
    part = np.select(
        [protocol == RUP, protocol == MRP],
        [spoken.number("rup_position")[rows], spoken.number("mrp_stamp")[rows]],
        0,
    )
    return _Sayings(
        place=places,
        at=_at(packets, places),
        from_caller=~packets.sessions.from_caller[places],
        number=number,
        part=part,
        kind=answered.astype(np.int16),
        sent=np.zeros(len(places), dtype=bool),
        good=(protocol != PYDEVTS) | (spoken.number("pydevts_success")[rows] == 0),
    )


def _covered(packets: Packets) -> _Sayings:
    """Gives one acknowledgement for each message of the piggyback layout that an acknowledgement covers.

    Sorted by falling number, the acknowledgements that cover a message are those before it. The records are in the
    order of time, so that the first of several is the one that stands first in the table.
    """
    sessions = packets.sessions
    piggyback = packets.spoken.piggyback[sessions.rows]
    places = np.flatnonzero(piggyback)
    messages = np.flatnonzero(piggyback & ~packets.spoken.bare[sessions.rows])
    session = np.concatenate((sessions.number[messages], sessions.number[places]))
    sender = np.concatenate((sessions.from_caller[messages], ~sessions.from_caller[places]))
    number = np.concatenate((packets.numbers.own[messages], packets.numbers.other[places]))
    row = np.concatenate((sessions.rows[messages], sessions.rows[places]))
    covers = np.arange(len(number)) >= len(messages)
    side = session * 2 + sender
    order = np.lexsort((~covers, -number, side))
    count = len(packets.spoken.rows) + 1
    group = np.cumsum(begins(side[order])) * -count
    rows = np.where(covers[order], row[order], count - 1)
    first = np.minimum.accumulate(group + rows) - group
    found = ~covers[order] & (first < count - 1)
    chosen = order[found]
    return _Sayings(
        place=messages[chosen],
        at=packets.spoken.at_ns[first[found]] // 1_000,
        from_caller=sender[chosen],
        number=number[chosen],
        part=np.zeros(len(chosen), dtype=np.int64),
        kind=np.full(len(chosen), _KIND["data"], dtype=np.int16),
        sent=np.zeros(len(chosen), dtype=bool),
        good=np.ones(len(chosen), dtype=bool),
    )
