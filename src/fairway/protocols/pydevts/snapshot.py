"""What survives a restart of one conversation: the state in the envelope of `core/snapshots.py`.

    offset  size   field
    0       8      when it was taken, in microseconds of the machine's clock
    8       8      highest number given to a message + 1
    16      4      id that our next message would take, or 0xffffffff
    20      4      count of gaps, then of blocks, then of arrivals, then of address bytes, four bytes each
    36      1      1 if our application named the address, else 0
    37      ...    gaps: start, end (8 each)
            ...    blocks of own ids: number of the block, age in microseconds (8 each)
            ...    arrivals: age in microseconds, number, key (8 each); bit 63 of the key says incoming
            ...    address as JSON

Ages are counted from when it was taken. A machine's clock may start anew with its process; it never runs
ahead, so the time between is at least the difference of the two clocks, and never counts below 0.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from struct import Struct, pack, unpack_from

from fairway.core.events import Address, Receipt
from fairway.core.snapshots import address_bytes, reading, restored_address, seal, unseal
from fairway.protocols.pydevts.conversations import Conversation
from fairway.protocols.pydevts.identifiers import blocks_between
from fairway.protocols.pydevts.options import PydevtsOptions
from fairway.protocols.pydevts.receiver import Arrival, Widener
from fairway.protocols.pydevts.wire import KEY_MASK

_VERSION = b"PDS2"
_HEAD = Struct(">QQIIIII?")
_NO_ID = 0xFFFFFFFF
_INCOMING = 1 << 63
HALF_A_TURN = 1 << 15
"""Ids that may have been used after the snapshot lie behind this."""


@dataclass(frozen=True, kw_only=True)
class Remembered:
    """One message of a snapshot."""

    age_us: int
    number: int
    key: int
    incoming: bool


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """The state of one conversation."""

    address: Address
    taken_us: int
    highest: int
    next_id: int | None
    named: bool
    gaps: tuple[tuple[int, int], ...]
    blocks: tuple[tuple[int, int], ...]
    """Blocks of own ids that must rest, and how long ago they were used."""
    remembered: tuple[Remembered, ...]


def take(conversation: Conversation, committing: set[int], now_us: int, options: PydevtsOptions) -> Snapshot:
    """Return the state as it will be once the messages with these numbers are committed.

    With deferred acknowledgement what is neither committed nor about to be is left out, its number free again.
    """
    receiver = conversation.receiver
    widener = receiver.widener.copy()
    left_out = {receiver.known[key] for key in receiver.silent}
    left_out |= {receiver.known[key] for key in receiver.all_held()} - committing
    for number in sorted(left_out):
        widener.release(number)
    remembered: list[Remembered] = []
    overdue = Arrival(now_us - options.remember_us, receiver.overdue())
    for first_us, keys in (overdue, *receiver.arrivals):
        for key in keys:
            number = receiver.known[key]
            if number not in left_out:
                incoming = receiver.is_incoming(key) or receiver.held(key)
                remembered.append(Remembered(age_us=now_us - first_us, number=number, key=key, incoming=incoming))
    sender = conversation.sender
    resting_since_us = now_us - options.reuse_after_us
    blocks = conversation.used_blocks if sender is None else sender.identifiers.used_blocks(resting_since_us)
    return Snapshot(
        address=conversation.address,
        taken_us=now_us,
        highest=widener.highest,
        next_id=conversation.first_id if sender is None else sender.identifiers.next & 0xFFFF,
        named=conversation.named,
        gaps=tuple(widener.gaps),
        blocks=tuple((block, now_us - used_us) for block, used_us in blocks.items()),
        remembered=tuple(remembered),
    )


def take_in_pieces(conversation: Conversation, receipts: Sequence[Receipt], now_us: int) -> tuple[Snapshot, Snapshot]:
    """Return how far the numbers have come, and the keys of the messages that are about to be committed.

    Those are not incoming after a restart: every duplicate is acknowledged, but the ack is not repeated by itself.
    """
    receiver = conversation.receiver
    widener = receiver.widener.copy()
    numbers = [number for one in receipts if isinstance(one.first, int) for number in _numbers(one)]
    entries = [(number, receiver.receipts.get(number)) for number in numbers]
    added = [
        Remembered(age_us=0, number=number, key=entry & KEY_MASK, incoming=False)
        for number, entry in entries
        if entry is not None
    ]
    left_out = {receiver.known[key] for key in receiver.silent} | receiver.receipts.keys() - set(numbers)
    for number in sorted(left_out):
        widener.release(number)
    whole = Snapshot(
        address=conversation.address,
        taken_us=now_us,
        highest=widener.highest,
        next_id=None if conversation.sender is not None else conversation.first_id,
        named=conversation.named,
        gaps=tuple(widener.gaps),
        blocks=(),
        remembered=(),
    )
    return whole, replace(whole, gaps=(), remembered=tuple(added))


def _numbers(receipt: Receipt) -> range:
    assert isinstance(receipt.first, int)
    return range(receipt.first, receipt.first + receipt.count)


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
    receiver.widener = Widener(snapshot.highest, list(snapshot.gaps))
    away_us = max(0, now_us - snapshot.taken_us)
    for one in sorted(snapshot.remembered, key=_age_us, reverse=True):
        receiver.known[one.key] = one.number
        receiver.arrivals.append(Arrival(now_us - away_us - one.age_us, (one.key,)))
    receiver.enter([one.key for one in snapshot.remembered if one.incoming])
    conversation.used_blocks = {block: now_us - away_us - age_us for block, age_us in snapshot.blocks}
    if snapshot.next_id is not None:
        conversation.first_id = (snapshot.next_id + HALF_A_TURN) & 0xFFFF
        conversation.used_blocks |= dict.fromkeys(blocks_between(snapshot.next_id, conversation.first_id), now_us)


def _age_us(one: Remembered) -> int:
    return one.age_us


def encode(snapshot: Snapshot) -> bytes:
    address = address_bytes(snapshot.address)
    next_id = _NO_ID if snapshot.next_id is None else snapshot.next_id
    counts = len(snapshot.gaps), len(snapshot.blocks), len(snapshot.remembered), len(address)
    numbers = [number for pair in (*snapshot.gaps, *snapshot.blocks) for number in pair]
    for one in snapshot.remembered:
        numbers += (one.age_us, one.number, one.key | _INCOMING if one.incoming else one.key)
    rest = _HEAD.pack(snapshot.taken_us, snapshot.highest + 1, next_id, *counts, snapshot.named)
    rest += pack(f">{len(numbers)}Q", *numbers) + address
    return seal(_VERSION, rest)


def decode(data: bytes) -> Snapshot:
    """Return the snapshot of these bytes; raises `DamagedSnapshot`."""
    state = unseal(_VERSION, data)
    with reading("pydevts"):
        return _decode(state)


def _decode(data: bytes) -> Snapshot:
    taken_us, above, next_id, gaps, blocks, count, _, named = _HEAD.unpack_from(data)
    numbers = unpack_from(f">{2 * (gaps + blocks) + 3 * count}Q", data, _HEAD.size)
    address = data[_HEAD.size + 8 * len(numbers) :]
    pairs = tuple(zip(numbers[0 : 2 * (gaps + blocks) : 2], numbers[1 : 2 * (gaps + blocks) : 2], strict=True))
    rows = iter(numbers[2 * (gaps + blocks) :])
    return Snapshot(
        address=restored_address(json.loads(address)),
        taken_us=taken_us,
        highest=above - 1,
        next_id=None if next_id == _NO_ID else next_id,
        named=named,
        gaps=pairs[:gaps],
        blocks=pairs[gaps:],
        remembered=tuple(
            Remembered(age_us=age_us, number=number, key=key & ~_INCOMING, incoming=bool(key & _INCOMING))
            for age_us, number, key in zip(rows, rows, rows, strict=True)
        ),
    )
