"""The way to one peer: its address, and which index the next datagram takes."""

from __future__ import annotations

from typing import NamedTuple

from fairway.core.events import Peer
from fairway.core.machine import Buffer
from fairway.core.outputs import Outputs

INDEX_MASK = (1 << 32) - 1
NEVER = 1 << 63
"""Later than every deadline."""


def following(index: int, count: int = 1) -> int:
    """Return the wide index `count` after this one; 0 is skipped at each wrap."""
    wide = index + count
    return wide if wide >> 32 == index >> 32 else wide + 1


class Handshake(NamedTuple):
    """How a session was agreed upon: what both sides must remember to answer repeated handshake packets."""

    called: bool
    """Whether the peer called us."""
    caller_id: int
    """The provisional sessionID of the SYN."""
    syn_index: int
    syn_ack_index: int

    @property
    def own_index(self) -> int:
        return self.syn_ack_index if self.called else self.syn_index

    @property
    def peer_index(self) -> int:
        return self.syn_index if self.called else self.syn_ack_index


class Link:
    """Where the datagrams of one session go, and which index the next one takes."""

    __slots__ = (
        "address", "armed_us", "index_limit", "moved_index", "next_index", "outbox", "outputs", "peer", "proved",
        "session_id", "wake_us",
    )  # fmt: skip

    def __init__(self, outputs: Outputs[Link], peer: Peer, session_id: int, next_index: int) -> None:
        self.outputs = outputs
        self.outbox = outputs.outbox
        self.peer = peer
        self.address = peer.address
        self.session_id = session_id
        self.next_index = next_index
        self.index_limit = NEVER
        """The highest index that may be used for now: so far past the oldest packet that waits."""
        self.proved = True
        """False only at an address to which the session moved and that has not answered yet."""
        self.moved_index = 0
        """The first index that was sent to the present address."""
        self.wake_us = NEVER
        """The earliest deadline since the last wake."""
        self.armed_us = NEVER
        """The deadline that the machine has noted for this session."""

    def mark_ready(self, now_us: int) -> None:
        """Have the session send what may leave before the machine's next output."""
        self.outputs.ready[self] = now_us

    def wake_by(self, due_us: int) -> None:
        self.wake_us = min(self.wake_us, due_us)

    def take_index(self, count: int = 1) -> int:
        """Return the first of `count` new indices, which must not cross the wrap; 0 is skipped after it."""
        index = self.next_index
        wide = index + count
        self.next_index = wide if wide & INDEX_MASK else wide + 1
        return index

    def indices_to_wrap(self) -> int:
        """Return how many indices follow one another before 0 is skipped."""
        return INDEX_MASK + 1 - (self.next_index & INDEX_MASK)

    def transmit(self, data: Buffer, segment_bytes: int, count: int = 1) -> None:
        """Send datagrams, unless the three-times limit withholds them."""
        if self.proved:
            self.outbox.send(self.address, data, segment_bytes, count)
        else:
            self.outbox.send_unproved(self.address, data, segment_bytes, count)
