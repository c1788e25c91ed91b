"""Which flows are worth a closer look: nearly all keep the rules, and to see that costs a fraction.

The rules look at windows of whole packets, which must be sorted. A screen comes before: it groups what packets say by
the number that they speak of, in arrays, and names the flows of which any group is odd. Only packets of these go on to
the windows. A screen may suspect what is fine; what it passes is not looked at again, so a rule finds what its screen
lets through. Rules of one check look at one flow at a time, so that a flow is judged alike whatever else was captured.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from fairway.core.columns import Integers
from fairway.lake.analysis.spoken import KIND, MRP, PYDEVTS, RUP, UDPC
from fairway.lake.arrays import Mask, begins, mixed, most_before, start_of, sum_until
from fairway.lake.violations.groups import NEVER, NOTHING, Groups, Seen, Speakers
from fairway.lake.violations.limits import (
    AMPLIFICATION_MAX,
    FIN_NS,
    IMPORTANT_NS,
    JITTER_NS,
    NEARBY,
    PIGGYBACK_CONID_MAX,
    PYDEVTS_LATE_NS,
    PYDEVTS_LIFE_NS,
    PYDEVTS_TRANSMISSIONS_MAX,
    REQUEST_NS,
    RUP_PARTS_MAX,
    RUP_SILENCE_NS,
    SLACK_NS,
    UDPC_TURN,
    UNACKNOWLEDGED_NS,
    WINDOW_MAX,
)

Screen = Callable[[Seen], Integers]
"""Gives the flows that are suspected."""


_REQUEST, _IMPORTANT, _HEARTBEAT, _SYN_ACK = 1, 2, 3, 4
"""What a udpc packet is that can be answered, and what an answer is for; 0 for none."""


def _flows(flow: NDArray[np.generic], odd: Mask) -> Integers:
    return np.unique(flow[odd]).astype(np.int64)


def _early(sent_at: Integers, answered_at: Integers) -> Mask:
    """Tells where there is an answer, and nothing sent before that it could answer."""
    early: Mask = (answered_at != NEVER) & ((sent_at == NEVER) | (sent_at - JITTER_NS > answered_at))
    return early


def _goes_back(key: NDArray[np.generic], number: Integers, at: Integers) -> Mask:
    """Tells where a number is below an earlier one of its group, which began long enough ago to rule out reordering.

    The rows of a group are in the order of time.
    """
    groups = Groups(key)
    first = np.zeros(len(number), dtype=bool)
    first[groups.starts] = True
    ordered, times = number[groups.order], at[groups.order]
    begun = times[start_of(first)]
    back = np.empty(len(number), dtype=bool)
    back[groups.order] = (ordered < most_before(ordered, np.ones_like(first), first)) & (times - begun >= SLACK_NS)
    return back


def _answered_too_early(rup: Speakers, message: NDArray[np.uint64], fresh: Mask) -> Mask:
    """Tells which confirms and requests speak of more than has been seen of their message by then.

    `fresh` are the parts that are seen for the first time. The rows of a message are in the order of time.
    """
    data, position, size = rup.has("data"), rup.number("rup_position"), rup.body_bytes
    regular = data & (size > 0) & (position + size < rup.number("rup_total"))
    groups = Groups(message)
    order = groups.order
    first = np.zeros(len(order), dtype=bool)
    first[groups.starts] = True
    seen = sum_until(fresh[order].astype(np.int64), start_of(first))
    highest = most_before(position[order], data[order], first)
    part = groups.of_each(groups.least(size, regular))[order]
    known = part != NEVER
    lacking = known & (seen * np.where(known, part, 0) < position[order])
    confirm, request = rup.has("confirm")[order], rup.has("request")[order]
    odd = np.empty(len(order), dtype=bool)
    odd[order] = ((confirm | request) & (seen == 0)) | (confirm & lacking) | (request & (highest <= position[order]))
    return odd


def malformed(seen: Seen) -> Integers:
    """Suspects flows with datagrams that break the format."""
    spoken = seen.packets.spoken
    return _flows(spoken.flow, spoken.kind == KIND["malformed"])


def udpc_numbers(seen: Seen) -> Integers:
    """Suspects sessions with an index used twice, a copy that comes late, or an answer to nothing."""
    udpc = seen.of(UDPC)
    index, ack = udpc.number("udpc_index"), udpc.number("udpc_ack")
    asks = np.zeros(len(KIND), dtype=np.int64)
    for name, what in (
        ("important", _IMPORTANT),
        ("heartbeat", _HEARTBEAT),
        ("request", _REQUEST),
        ("answering_request", _REQUEST),
        ("syn_ack", _SYN_ACK),
    ):
        asks[KIND[name]] = what
    late = np.full(len(KIND), IMPORTANT_NS)
    for name, limit_ns in (("plain", SLACK_NS), ("fin", FIN_NS), ("request", REQUEST_NS)):
        late[KIND[name]] = limit_ns
    answers = np.select(
        [
            udpc.has("important_ack"),
            udpc.has("heartbeat_ack"),
            # The handshake's ACK answers index 1, which is the SYN+ACK's.
            udpc.has("response") & (ack == 1) & (udpc.body_bytes == 0),
            udpc.has("response", "answering_request"),
        ],
        [_IMPORTANT, _HEARTBEAT, _SYN_ACK, _REQUEST],
        0,
    )
    prints = mixed(udpc.number("udpc_flag"), ack, udpc.body_bytes, udpc.crc("udpc")).view(np.int64)
    said = np.flatnonzero(answers)
    both = np.concatenate((np.arange(len(udpc.rows)), said))
    sent = np.arange(len(both)) < len(udpc.rows)
    side = udpc.from_caller[both] == sent
    number = np.where(sent, index[both], ack[both])
    groups = Groups(udpc.session[both] * 2 + side, number)
    at = udpc.at[both]
    sent_at, answered_at = groups.least(at, sent), groups.least(at, ~sent)
    asked = groups.most(asks[udpc.kind[both]], sent)
    least, most = groups.least(answers[both], ~sent), groups.most(answers[both], ~sent)
    again = groups.most(at, sent) - np.minimum(sent_at, groups.most(at, sent))
    odd = groups.differ(prints[both], sent)
    odd |= groups.differ(index[both], ~sent & (answers[both] == _REQUEST))
    odd |= (sent_at != NEVER) & (again >= groups.least(late[udpc.kind[both]], sent))
    odd |= (answered_at != NEVER) & ((asked != least) | (asked != most))
    odd |= _early(sent_at, answered_at)
    return _flows(groups.one(udpc.flow[both]), odd)


def udpc_handshakes(seen: Seen) -> Integers:
    """Suspects flows whose SYN, SYN+ACK or FIN have odd indices, or do not fit one another."""
    udpc = seen.of(UDPC)
    few = np.flatnonzero(udpc.has("syn", "syn_ack", "fin"))
    syn, syn_ack = udpc.has("syn")[few], udpc.has("syn_ack")[few]
    index, ack, id_ = (udpc.number(name)[few] for name in ("udpc_index", "udpc_ack", "udpc_session"))
    flow, at, there = udpc.flow[few], udpc.at[few], udpc.there[few]
    odd = (syn & (index >= UDPC_TURN // 2)) | (syn_ack & (index != 1))
    kept = Groups(there, udpc.forward[few], id_, udpc.kind[few])
    suspects = [_flows(flow, odd), _flows(kept.one(flow), kept.differ(index))]
    calls = Groups(there, udpc.forward[few] == syn, np.where(syn, index, ack), ~(syn | syn_ack))
    unasked = _early(calls.least(at, syn), calls.least(at, syn_ack))
    suspects.append(_flows(calls.one(flow), unasked | calls.differ(id_, syn_ack)))
    return np.unique(np.concatenate(suspects))


def _openings(rows: Speakers, calls: Mask, gives: Mask, other: Mask) -> tuple[Groups, Mask]:
    """Suspects sessions whose sides seem to speak too early: groups by session, and which of them."""
    groups = Groups(rows.session)
    given_at = groups.least(rows.at, gives)
    caller_at = groups.least(rows.at, rows.from_caller & ~calls & other)
    called_at = groups.least(rows.at, ~rows.from_caller & ~gives & other)
    odd = ((caller_at < given_at) & (given_at != NEVER)) | (called_at < caller_at)
    return groups, odd


def udpc_openings(seen: Seen) -> Integers:
    """Suspects sessions whose sides seem to speak too early, or after their end."""
    udpc = seen.of(UDPC)
    every = np.ones(len(udpc.rows), dtype=bool)
    groups, odd = _openings(udpc, udpc.has("syn"), udpc.has("syn_ack"), every)
    index, fin = udpc.number("udpc_index"), udpc.has("fin")
    asks = udpc.has("plain", "important", "request", "answering_request", "heartbeat")
    for side in (udpc.from_caller, ~udpc.from_caller):
        ended, newest = groups.least(index, side & fin), groups.most(index, side & asks)
        known = (ended != NEVER) & (newest != NOTHING)
        beyond = np.where(known, newest, 0) - np.where(known, ended, 0)
        odd |= known & (beyond % UDPC_TURN >= 1) & (beyond % UDPC_TURN <= NEARBY)
    return _flows(groups.one(udpc.flow), odd)


def udpc_strangers(seen: Seen) -> Integers:
    """Suspects flows with a SYN+ACK, and a sessionID that none of them gave."""
    udpc = seen.of(UDPC)
    ids = Groups(udpc.there, udpc.number("udpc_session"))
    strange = ids.any(~udpc.has("syn")) & ~ids.any(udpc.has("syn_ack"))
    given = np.unique(udpc.flow[udpc.has("syn_ack")])
    return np.intersect1d(_flows(ids.one(udpc.flow), strange), given)


def mrp_calls(seen: Seen) -> Integers:
    """Suspects flows whose connects and con replies do not fit one another."""
    mrp = seen.of(MRP)
    few = np.flatnonzero(mrp.has("connect", "con_reply"))
    connect = mrp.has("connect")[few]
    version, status, client, server = (
        mrp.number(name)[few] for name in ("mrp_version", "mrp_status", "mrp_client", "mrp_server")
    )
    accepts = ~connect & (status == 1)
    flow, at, called_forward = mrp.flow[few], mrp.at[few], mrp.forward[few] == connect
    acceptable = (version == 0) | ((version == 1) & (client <= PIGGYBACK_CONID_MAX))
    calls = Groups(mrp.there[few], called_forward, client)
    odd = calls.differ(version, connect) | _early(calls.least(at, connect), calls.least(at, ~connect))
    odd |= calls.any(accepts) & calls.any(connect & ~acceptable)
    odd |= calls.differ(server, accepts)
    odd |= calls.any(connect & (version == 1)) & (calls.most(server, accepts) > PIGGYBACK_CONID_MAX)
    servers = Groups(mrp.there[few], called_forward, server, accepts)
    shared = servers.differ(client, accepts)
    return np.union1d(_flows(calls.one(flow), odd), _flows(servers.one(flow), shared))


def mrp_pairs(seen: Seen) -> Integers:
    """Suspects flows with con replies, and data or acks of a connection that none of them made."""
    mrp = seen.of(MRP)
    speaks, replies = mrp.has("data", "ack"), mrp.has("con_reply")
    groups = Groups(mrp.session)
    unagreed = groups.any(speaks) & ~groups.any(replies & (mrp.number("mrp_status") == 1))
    flows = Groups(mrp.flow)
    misplaced = flows.any(mrp.has("ack")) & flows.any(mrp.has("connect") & (mrp.number("mrp_version") == 1))
    odd = np.union1d(_flows(groups.one(mrp.flow), unagreed), _flows(flows.one(mrp.flow), misplaced))
    return np.intersect1d(odd, np.unique(mrp.flow[replies]))


def mrp_openings(seen: Seen) -> Integers:
    """Suspects connections whose sides seem to speak too early, or whose first sequence is odd."""
    mrp = seen.of(MRP)
    accepts = mrp.has("con_reply") & (mrp.number("mrp_status") == 1)
    groups, odd = _openings(mrp, mrp.has("connect"), accepts, mrp.has("data", "ack"))
    carries = mrp.has("data") & ~seen.packets.spoken.bare[mrp.rows]
    sequence = seen.packets.spoken.mrp_sequence[mrp.rows]
    outside = (sequence < 1) | (sequence > WINDOW_MAX)
    suspects = [_flows(groups.one(mrp.flow), odd)]
    for side in (mrp.from_caller, ~mrp.from_caller):
        # In the order of time, so that the first that carries something is the first message.
        places = np.flatnonzero(side & carries)
        first = places[begins(mrp.session[places])]
        suspects.append(_flows(mrp.flow[first], outside[first]))
    return np.unique(np.concatenate(suspects))


def mrp_stamped(seen: Seen) -> Integers:
    """Suspects connections with a sequence used twice, an ack of nothing, or a copy that comes too late."""
    mrp = seen.of(MRP)
    spoken = mrp.has("data", "ack") & ~seen.packets.spoken.piggyback[mrp.rows]
    data = mrp.has("data")
    number, exists = seen.packets.message.number[mrp.places], seen.packets.message.exists[mrp.places]
    stamp = mrp.number("mrp_stamp")
    nothing = spoken & ~exists & (stamp == 0)
    chosen = np.flatnonzero(spoken & ~nothing)
    data, at, flow = data[chosen], mrp.at[chosen], mrp.flow[chosen]
    letter = mixed(mrp.session[chosen] * 4 + (mrp.from_caller[chosen] == data) * 2 + exists[chosen], number[chosen])
    stamps = Groups(letter, stamp[chosen])
    suspects = [_flows(stamps.one(flow), _early(stamps.least(at, data), stamps.least(at, ~data)))]
    numbers = Groups(letter)
    prints = mixed(mrp.body_bytes[chosen], mrp.crc("mrp")[chosen]).view(np.int64)
    first, acked = numbers.least(at, data), numbers.of_each(numbers.least(at, ~data))
    last = numbers.most(at, data & (at <= acked))
    sent = (first != NEVER) & (last != NOTHING)
    late = np.where(sent, last, 0) - np.where(sent, first, 0) > UNACKNOWLEDGED_NS
    suspects.append(_flows(numbers.one(flow), late | numbers.differ(prints, data)))
    return np.unique(np.concatenate(suspects))


def mrp_piggyback(seen: Seen) -> Integers:
    """Suspects connections with a sequence used twice, or a from_seq that is too high or goes back.

    A connection whose sequences have gone round is always suspected.
    """
    mrp = seen.of(MRP)
    rows = np.flatnonzero(seen.packets.spoken.piggyback[mrp.rows])
    sends = rows[~seen.packets.spoken.bare[mrp.rows[rows]]]
    both = np.concatenate((sends, rows))
    sent = np.arange(len(both)) < len(sends)
    side = mrp.session[both] * 2 + (mrp.from_caller[both] == sent)
    own = seen.packets.message.number[mrp.places]
    number = np.where(sent, own[both], mrp.number("mrp_from_sequence")[both])
    prints = mixed(mrp.body_bytes, mrp.crc("piggyback")).view(np.int64)[both]
    at, flow = mrp.at[both], mrp.flow[both]
    numbers = Groups(side, number)
    sent_at, said_at = numbers.least(at, sent), numbers.least(at, ~sent)
    odd = numbers.differ(prints, sent) | ((numbers.one(number) != 0) & _early(sent_at, said_at))
    suspects = [_flows(numbers.one(flow), odd)]
    in_time = np.lexsort((both, side))
    fresh = np.zeros(len(both), dtype=bool)
    fresh[numbers.first(sent)] = True
    known = sum_until(fresh[in_time].astype(np.int64), start_of(begins(side[in_time])))
    ahead = ~sent[in_time] & (number[in_time] > known)
    suspects.append(_flows(flow[in_time], ahead))
    suspects.append(_flows(flow[~sent], _goes_back(side[~sent], number[~sent], at[~sent])))
    return np.unique(np.concatenate(suspects))


def rup_messages(seen: Seen) -> Integers:
    """Suspects flows with a part or an answer that does not fit the others.

    A part is filed under where it ends, together with the confirms and requests of that position: what a confirm says
    that has arrived ends there.
    """
    rup = seen.of(RUP)
    data, confirm, request = rup.has("data"), rup.has("confirm"), rup.has("request")
    position, total, size = rup.number("rup_position"), rup.number("rup_total"), rup.body_bytes
    end = np.where(data, position + size, position)
    regular = data & (end < total)
    fits = (end <= total) & ((size > 0) | (total == 0))
    bad = data & (~fits | ((rup.number("rup_start") == 1) != (position == 0)))
    bad |= regular & ((total > size * RUP_PARTS_MAX) | (position % np.maximum(size, 1) != 0))
    message = mixed(rup.there, seen.packets.message.number[rup.places], rup.forward == data)
    prints = mixed(position, total, size, rup.crc("rup")).view(np.int64)
    places = Groups(message, end)
    place = places.one(end)
    sent_at, sent_last = places.least(rup.at, data), places.most(rup.at, data)
    sent = sent_at != NEVER
    odd = places.any(bad) | places.differ(prints, data)
    odd |= np.where(sent, sent_last, 0) - np.where(sent, sent_at, 0) > RUP_SILENCE_NS
    confirmed_at, requested_at = places.least(rup.at, confirm), places.least(rup.at, request)
    odd |= (place > 0) & (_early(sent_at, confirmed_at) | ((requested_at != NEVER) & ~sent))
    fresh = np.zeros(len(rup.rows), dtype=bool)
    fresh[places.first(data)] = True
    suspects = [
        _flows(places.one(rup.flow), odd),
        _flows(rup.flow, _answered_too_early(rup, message, fresh)),
    ]

    of_message = places.one(message)
    whole, least_total = places.least(total, data), places.least(size, regular)
    greatest = places.most(size, regular)
    starts = places.least(position, data)
    groups = Groups(of_message)
    total_least, total_most = groups.least(whole, sent), groups.most(places.most(total, data), sent)
    size_least, size_most = groups.least(least_total), groups.most(greatest)
    known = size_least != NEVER
    step = np.where(known, size_least, 1)
    last = groups.most(np.where(sent, starts, NOTHING), sent & (place == whole))
    final = last != NOTHING
    back = _goes_back(message[confirm], position[confirm], rup.at[confirm])
    suspects.append(_flows(rup.flow[confirm], back))
    requested = groups.most(place, requested_at != NEVER)
    odd = (total_least == NEVER) | (total_least != total_most)
    odd |= known & (size_least != size_most)
    shown = known & final
    end_part = np.where(shown, last, 0)
    odd |= shown & ((end_part % np.maximum(step, 1) != 0) | (total_least - end_part > step))
    odd |= (requested != NOTHING) & (requested >= total_least)
    suspects.append(_flows(groups.one(places.one(rup.flow)), odd))
    return np.unique(np.concatenate(suspects))


def pydevts_ids(seen: Seen) -> Integers:
    """Suspects flows with an answer to nothing, a damaged body, too many copies, or an id used again soon."""
    rows = seen.of(PYDEVTS)
    packet, ack, close = rows.has("packet"), rows.has("ack"), rows.has("close")
    crc, failed = rows.number("pydevts_crc"), rows.number("pydevts_success") == 1
    unread = seen.packets.spoken.rows.missing("pydevts_body_crc")[rows.rows]
    bad = packet & ~unread & (rows.crc("pydevts") != crc)
    id_ = mixed(rows.there, rows.forward != ack, rows.number("pydevts_id"))
    keys = Groups(id_, crc)
    sent_at, sent = keys.least(rows.at, packet), keys.count(packet)
    known = sent > 0
    odd = keys.any(bad | (failed & ~ack)) | (sent > PYDEVTS_TRANSMISSIONS_MAX)
    odd |= keys.count(ack) > PYDEVTS_TRANSMISSIONS_MAX
    last = keys.most(rows.at, packet)
    odd |= np.where(known, last, 0) - np.where(known, sent_at, 0) >= PYDEVTS_LATE_NS[1]
    odd |= _early(sent_at, keys.least(rows.at, ack & (failed | (crc == 0))))
    odd |= _early(keys.least(rows.at, ack), keys.least(rows.at, close))
    suspects = [_flows(keys.one(rows.flow), odd)]
    # Another body under an id whose last packet has not outlived its life.
    places = np.flatnonzero(packet)
    order = places[np.argsort(id_[places], kind="stable")]
    again = ~begins(id_[order]) & begins(crc[order])
    again[1:] &= rows.at[order][1:] - rows.at[order][:-1] <= PYDEVTS_LIFE_NS
    suspects.append(_flows(rows.flow[order], again))
    return np.unique(np.concatenate(suspects))


def amplification(seen: Seen) -> Integers:
    """Suspects flows of which one side only answered, and sent far more than it got from one that proved nothing."""
    spoken = seen.packets.spoken
    rows = np.flatnonzero((spoken.protocol <= PYDEVTS) & ~spoken.rows.missing("at_ns"))
    protocol, kind, flow = spoken.protocol[rows], spoken.kind[rows], spoken.flow[rows]
    size, forward = spoken.number("payload_bytes")[rows], spoken.forward[rows]
    asks = np.isin(kind, [KIND[name] for name in ("syn", "connect", "packet")])
    asks |= (protocol == RUP) & (kind == KIND["data"])
    # For rup and pydevts nothing proves.
    proves = ((protocol == UDPC) | (protocol == MRP)) & ~asks
    answers = np.isin(kind, [KIND[name] for name in ("syn_ack", "con_reply", "confirm", "close")])
    answers |= (protocol == RUP) & (kind == KIND["request"])
    answers |= (protocol == PYDEVTS) & (kind == KIND["ack"])
    _, place, group = np.unique(mixed(spoken.point[rows], flow), return_index=True, return_inverse=True)

    def total(where: Mask, values: Integers | None = None) -> Integers:
        weights = np.ones(len(rows), dtype=np.int64) if values is None else values
        return np.bincount(group[where], weights[where], minlength=len(place)).astype(np.int64)

    odd = np.zeros(len(place), dtype=bool)
    for ours, theirs in ((forward, ~forward), (~forward, forward)):
        limited = (total(theirs & asks) > 0) & (total(theirs & proves) == 0) & (total(ours & ~answers) == 0)
        odd |= limited & (total(ours, size) > AMPLIFICATION_MAX * total(theirs, size))
    return _flows(flow[place], odd)
