"""What survives a restart of one conversation: how far its numbers have come, and the keys that are still known.

Ages are counted from when it was taken. A machine's clock may start anew with its process; it never runs
ahead, so the time between is at least the difference of the two clocks, and never counts below 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fairway.core.events import Address, Receipt
from fairway.core.snapshots import pack, reading, restored_address, unpack
from fairway.protocols.pydevts.conversations import Conversation
from fairway.protocols.pydevts.identifiers import blocks_between
from fairway.protocols.pydevts.options import PydevtsOptions
from fairway.protocols.pydevts.receiver import Arrival, Receiver, Widener
from fairway.protocols.pydevts.wire import KEY_MASK

_VERSION = b"PDS3"
HALF_A_TURN = 1 << 15
"""Ids that may have been used after the snapshot lie behind this."""


class Remembered(NamedTuple):
    """One message of a snapshot."""

    age_us: int
    number: int
    key: int
    incoming: bool


class Snapshot(NamedTuple):
    """The state of one conversation."""

    address: Address
    taken_us: int
    highest: int
    next_id: int | None
    named: bool
    gaps: list[tuple[int, int]]
    blocks: list[tuple[int, int]]
    """Blocks of own ids that must rest, and how long ago they were used."""
    remembered: list[Remembered]


def take(conversation: Conversation, committing: Sequence[Receipt], now_us: int, options: PydevtsOptions) -> Snapshot:
    """Return the state as it will be once the receipts are committed.

    With deferred acknowledgement what is neither committed nor about to be is left out, its number free again.
    """
    receiver, sender = conversation.receiver, conversation.sender
    left_out = _left_out(receiver, _numbers(conversation, committing))
    remembered: list[Remembered] = []
    overdue = Arrival(now_us - options.remember_us, receiver.overdue())
    for first_us, keys in (overdue, *receiver.arrivals):
        for key in keys:
            number = receiver.known[key]
            if number not in left_out:
                incoming = receiver.is_incoming(key) or receiver.held(key)
                remembered.append(Remembered(now_us - first_us, number, key, incoming))
    resting_since_us = now_us - options.reuse_after_us
    blocks = conversation.used_blocks if sender is None else sender.identifiers.used_blocks(resting_since_us)
    return _numbered(conversation, left_out, now_us)._replace(
        next_id=conversation.first_id if sender is None else sender.identifiers.next & 0xFFFF,
        blocks=[(block, now_us - used_us) for block, used_us in blocks.items()],
        remembered=remembered,
    )


def take_in_pieces(conversation: Conversation, committing: Sequence[Receipt], now_us: int) -> tuple[Snapshot, Snapshot]:
    """Return how far the numbers have come, and the keys of the messages that are about to be committed.

    Those are not incoming after a restart: every duplicate is acknowledged, but the ack is not repeated by itself.
    """
    receiver, numbers = conversation.receiver, _numbers(conversation, committing)
    entries = [(number, receiver.receipts.get(number)) for number in numbers]
    added = [Remembered(0, number, entry & KEY_MASK, False) for number, entry in entries if entry is not None]
    whole = _numbered(conversation, _left_out(receiver, numbers), now_us)
    return whole, whole._replace(gaps=[], remembered=added)


def _numbers(conversation: Conversation, committing: Sequence[Receipt]) -> list[int]:
    return [
        receipt.first + position
        for receipt in committing
        if receipt.peer == conversation.peer and isinstance(receipt.first, int)
        for position in range(receipt.count)
    ]


def _left_out(receiver: Receiver, committing: list[int]) -> set[int]:
    """Return the numbers of the messages that are neither committed nor about to be."""
    return {receiver.known[key] for key in receiver.silent} | (receiver.all_held() - set(committing))


def _numbered(conversation: Conversation, left_out: set[int], now_us: int) -> Snapshot:
    """Return how far the numbers have come."""
    widener = conversation.receiver.widener.copy()
    for number in sorted(left_out):
        widener.release(number)
    next_id = None if conversation.sender is not None else conversation.first_id
    return Snapshot(
        conversation.address,
        now_us,
        widener.highest,
        next_id,
        conversation.named,
        widener.gaps,
        blocks=[],
        remembered=[],
    )


def add(snapshot: Snapshot, conversation: Conversation, now_us: int) -> bool:
    """Add the keys of a piece to a restored conversation; change nothing if one of them is known."""
    receiver = conversation.receiver
    if not snapshot.remembered or any(one.key in receiver.known for one in snapshot.remembered):
        return False
    first_us = now_us - max(0, now_us - snapshot.taken_us)
    receiver.known.update((one.key, one.number) for one in snapshot.remembered)
    receiver.arrivals.append(Arrival(first_us, tuple(one.key for one in snapshot.remembered)))
    return True


def give(snapshot: Snapshot, conversation: Conversation, now_us: int) -> None:
    """Fill a new conversation with the state of a snapshot; own ids go on half a turn ahead.

    What lies between may have been used since the snapshot, so it rests from now on.
    """
    receiver = conversation.receiver
    receiver.widener = Widener(snapshot.highest, snapshot.gaps)
    away_us = max(0, now_us - snapshot.taken_us)
    for one in sorted(snapshot.remembered, key=lambda one: one.age_us, reverse=True):
        receiver.known[one.key] = one.number
        receiver.arrivals.append(Arrival(now_us - away_us - one.age_us, (one.key,)))
    receiver.enter([one.key for one in snapshot.remembered if one.incoming])
    conversation.used_blocks = {block: now_us - away_us - age_us for block, age_us in snapshot.blocks}
    if snapshot.next_id is not None:
        conversation.first_id = (snapshot.next_id + HALF_A_TURN) & 0xFFFF
        conversation.used_blocks |= dict.fromkeys(blocks_between(snapshot.next_id, conversation.first_id), now_us)


def encode(snapshot: Snapshot) -> bytes:
    return pack(_VERSION, snapshot._asdict())


def decode(data: bytes) -> Snapshot:
    """Return the snapshot of these bytes; raises `DamagedSnapshot`."""
    with reading("pydevts"):
        state = unpack(_VERSION, data)
        return Snapshot(
            address=restored_address(state["address"]),
            taken_us=int(state["taken_us"]),
            highest=int(state["highest"]),
            next_id=None if state["next_id"] is None else int(state["next_id"]),
            named=bool(state["named"]),
            gaps=[(int(start), int(end)) for start, end in state["gaps"]],
            blocks=[(int(block), int(age_us)) for block, age_us in state["blocks"]],
            remembered=[
                Remembered(int(age_us), int(number), int(key), bool(incoming))
                for age_us, number, key, incoming in state["remembered"]
            ],
        )
