"""What a session remembers of its handshake."""

from __future__ import annotations

from typing import NamedTuple


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
