"""What a session leaves behind for a restart: JSON, small while packets arrive in order.

`own_index` is the next index; a restore starts 65,536 further, because what was sent since the snapshot is not known
and an index used twice would be taken for a duplicate and lost.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Sequence
from typing import Any

from fairway.core.events import Peer, Receipt
from fairway.core.outputs import Outputs
from fairway.core.receipts import ReceiptSlots
from fairway.core.serial import Seen, subtract
from fairway.core.snapshots import pack, reading, restored_address, unpack
from fairway.protocols.udpc.options import UdpcOptions
from fairway.protocols.udpc.receiver import BITMAP_SPAN
from fairway.protocols.udpc.session import Handshake, Session, following

_VERSION = b"UDC2"
RESTORED_AFTER = 65_536


def write(session: Session, committing: Sequence[Receipt]) -> bytes:
    """Return the session as it will be once the receipts are committed."""
    receiver, answers = session.receiver, session.receiver.answers
    committed = sorted(
        (receipt.first, receipt.first + receipt.count - 1)
        for receipt in committing
        if receipt.peer == session.peer and isinstance(receipt.first, int)
    )
    kept = answers.kept()
    answered = sorted((request, request) for request, _ in kept)
    uncommitted = subtract(subtract(receiver.receipts.ranges(), committed), answered)
    absent = {request for first, last in uncommitted for request in answers.waiting() if first <= request <= last}
    state = {
        "peer_address": session.peer.address,
        "address": session.address,
        "proved": session.proved,
        "session_id": session.session_id,
        "handshake": session.handshake,
        "own_index": session.next_index,
        "seen": subtract(receiver.seen.ranges(), uncommitted),
        "newest_plain": receiver.newest_plain,
        "waiting": [request for request in answers.waiting() if request not in absent],
        "responses": [(request, b64encode(response).decode("ascii")) for request, response in kept],
    }
    return pack(_VERSION, state)


def read(snapshot: bytes, outputs: Outputs[Session], options: UdpcOptions, slots: ReceiptSlots, now_us: int) -> Session:
    """Return the session again; raises `DamagedSnapshot`."""
    with reading("udpc"):
        return _restored(unpack(_VERSION, snapshot), outputs, options, slots, now_us)


def _restored(
    state: dict[str, Any], outputs: Outputs[Session], options: UdpcOptions, slots: ReceiptSlots, now_us: int
) -> Session:
    called, *numbers = state["handshake"]
    handshake = Handshake(bool(called), *(_counter(number) for number in numbers))
    peer = Peer(restored_address(state["peer_address"]), _counter(state["session_id"]))
    seen = [(_counter(first), _counter(last)) for first, last in state["seen"]]
    own_index = following(_counter(state["own_index"]), RESTORED_AFTER)
    newest_plain = _counter(state["newest_plain"] + 1) - 1
    waiting = [_counter(request) for request in state["waiting"]]
    responses = [(_counter(request), b64decode(response, validate=True)) for request, response in state["responses"]]
    session = Session(outputs, options, slots, peer, handshake, now_us)
    session.address = restored_address(state["address"])
    session.proved = bool(state["proved"])
    session.next_index = own_index
    session.receiver.newest_plain = newest_plain
    session.receiver.seen = Seen.from_ranges(BITMAP_SPAN, seen or [(handshake.peer_index, handshake.peer_index)])
    for request in waiting:
        session.receiver.answers.asked(request, now_us)
    for request, response in responses:
        session.receiver.answers.keep(request, response, now_us)
    return session


def _counter(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < 1 << 63:
        raise ValueError(f"{value!r} is no counter")
    return value
