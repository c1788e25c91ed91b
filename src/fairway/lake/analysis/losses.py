"""How many packets were lost, as far as one point can tell.

A packet may be lost between its sender and the point, or between the point and its receiver. On both stretches the
two ways are taken to lose alike: one point sees what a loss causes, which is the same for a packet and for its
acknowledgement.

*Before* the point, numbers are skipped (udpc index, mrp sequence, pydevts id, rup part): what lies between the highest
so far and one beyond the next was lost, or overtaken. Their share of all numbers is the loss, unless so few packets
are under way that each is repeated before a later one passes; then more can be told from duplicates, which were sent
again because an acknowledgement was lost on the same stretch. The greater of the two shares is taken.

*Behind* the point, copies that are not duplicates were sent because nothing was heard of what had passed: it or its
acknowledgement was lost, so that the loss of one way is 1 - sqrt(1 - share of copies). A part of rup is sent again
because the peer asks for it, and in mrp's piggyback layout a later acknowledgement stands in for a lost one: there a
packet is sent again only when it was lost itself, and the share is the loss.

Reordering, copies that were sent too early and copies that the network made count as loss. So it reads high for mrp's
piggyback layout, whose acknowledgements name no packet: a sender that has to guess repeats more than was lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairway.core.columns import Integers
from fairway.lake.analysis.packets import Packets
from fairway.lake.analysis.spoken import KIND, RUP, UDPC
from fairway.lake.arrays import MISSING, Mask, begins, mixed, most_before, together

SKIP_MAX = 32_768
"""A greater step is no gap: an endpoint that restores a snapshot jumps, and a forged number may be anything."""


class Losses(NamedTuple):
    """What the estimate is made of, for each record of the sessions."""

    skipped: Integers
    fresh: Mask
    late: Mask
    """Its number was skipped before."""
    repeatable: Mask
    repeated: Mask
    missing: Mask
    """Sent again where only the loss of the packet itself causes that."""
    needless: Mask


def losses(packets: Packets, carries: Mask) -> Losses:
    """Looks at the numbers of each sender in the order of time."""
    spoken, rows = packets.spoken, packets.sessions.rows
    protocol = spoken.protocol[rows]
    of_rup, of_udpc = protocol == RUP, protocol == UDPC
    counted = of_udpc | np.where(of_rup, spoken.kind[rows] == KIND["data"], carries)
    number = np.select(
        [of_udpc, of_rup], [spoken.number("udpc_index")[rows], spoken.number("rup_position")[rows]], packets.numbers.own
    )
    size = np.maximum(spoken.body_bytes[rows], 1)
    strand = packets.sessions.number * 2 + packets.sessions.from_caller
    if of_rup.any():
        strand = mixed(strand, np.where(of_rup, packets.message.number, 0)).view(np.int64)
    order = together(strand)
    first = begins(strand[order])
    following = number + np.where(of_rup, size, 1)
    expected = np.empty(len(rows), dtype=np.int64)
    expected[order] = most_before(following[order], counted[order], first)
    step = number - np.where(of_rup & (expected == MISSING), 0, expected)
    known = counted & (of_rup | (expected != MISSING))
    gap = known & (step > 0)
    skipped = np.where(gap & (step <= SKIP_MAX), step, 0)
    if of_rup.any():
        part = np.empty(len(rows), dtype=np.int64)
        before = most_before(size[order], counted[order], first)
        part[order] = np.maximum(before, size[order])
        skipped = np.where(of_rup, np.where(gap, -(-step // part), 0), skipped)
    once, copies = packets.copies.earlier == 0, packets.copies
    again, marked = counted & ~once & ~copies.duplicate, of_rup | spoken.piggyback[rows]
    return Losses(
        skipped=skipped,
        fresh=counted & once,
        late=known & (step < 0) & once,
        repeatable=counted & copies.countable,
        repeated=again & ~marked,
        missing=again & marked,
        needless=counted & copies.duplicate,
    )


def estimate(total: Mapping[str, Integers]) -> tuple[NDArray[np.float64], Mask]:
    """Gives the estimate from the totals of what was counted, and where there is none: no packet has a number."""
    skipped, fresh, repeatable = total["skipped"], total["fresh"], total["repeatable"]
    missed = _share(skipped, fresh + skipped - total["late"])
    before = np.maximum(missed, _share(total["needless"], repeatable))
    behind, missing = _share(total["repeated"], repeatable), _share(total["missing"], repeatable)
    return 1 - (1 - before) * np.sqrt(1 - behind) * (1 - missing), fresh + skipped <= 0


def _share(some: Integers, whole: Integers) -> NDArray[np.float64]:
    share: NDArray[np.float64] = np.where(whole != 0, some / np.where(whole != 0, whole, 1), 0.0)
    return share
