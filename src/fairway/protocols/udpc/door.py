"""Handshakes under way: our calls, and calls of others that are not complete yet."""

from __future__ import annotations

from fairway.core.events import Address
from fairway.core.outputs import Outputs
from fairway.protocols.udpc.handshake import Handshake
from fairway.protocols.udpc.link import Link
from fairway.protocols.udpc.options import UdpcOptions
from fairway.protocols.udpc.wire import ACK, HEADER_BYTES, SYN, datagram


class Call:
    """Our SYN to one address, repeated byte for byte until it is answered or given up."""

    __slots__ = (
        "_gap_us",
        "_options",
        "_repeat_us",
        "_syn",
        "address",
        "caller_id",
        "give_up_us",
        "syn_index",
        "token",
    )

    def __init__(
        self, options: UdpcOptions, address: Address, caller_id: int, syn_index: int, token: int, now_us: int
    ) -> None:
        self._options = options
        self.address = address
        self.caller_id = caller_id
        self.syn_index = syn_index
        self.token = token
        self.give_up_us = now_us + options.connect_timeout_us
        self._syn = datagram(syn_index, caller_id, 0, SYN)
        self._gap_us = options.connect_repeat_us
        self._repeat_us = now_us

    def send_due(self, outputs: Outputs[Link], now_us: int) -> None:
        """Sends the SYN when it is time to."""
        if now_us < self._repeat_us:
            return
        outputs.statistics.retransmissions += self._repeat_us > self.give_up_us - self._options.connect_timeout_us
        outputs.outbox.send(self.address, self._syn, HEADER_BYTES)
        self._repeat_us = now_us + self._gap_us
        self._gap_us = min(2 * self._gap_us, self._options.connect_repeat_us_max)

    def due_us(self) -> int:
        return min(self._repeat_us, self.give_up_us)

    def handshake(self, syn_ack_index: int) -> Handshake:
        return Handshake(False, self.caller_id, self.syn_index, syn_ack_index)


class HalfOpen:
    """A call of another side that we answered with SYN+ACK and that no packet of the session has completed."""

    __slots__ = (
        "_gap_us",
        "_left",
        "_options",
        "_repeat_us",
        "_sent",
        "_syn_ack",
        "address",
        "forget_us",
        "handshake",
        "session_id",
    )

    def __init__(
        self, options: UdpcOptions, address: Address, session_id: int, handshake: Handshake, now_us: int
    ) -> None:
        self._options = options
        self.address = address
        self.session_id = session_id
        self.handshake = handshake
        self.forget_us = now_us + options.half_open_us
        self._syn_ack = datagram(handshake.syn_ack_index, session_id, handshake.syn_index, SYN | ACK)
        self._sent = False
        self.called(now_us)

    def called(self, now_us: int) -> None:
        """Starts the schedule of answers for a SYN that came now."""
        self._left = self._options.syn_acks_per_syn
        self._gap_us = self._options.connect_repeat_us
        self._repeat_us = now_us

    def send_due(self, outputs: Outputs[Link], now_us: int) -> None:
        """Sends the SYN+ACK when it is time to.

        Three answers of 13 bytes to a call of 13 bytes are just what an unproved address may get.
        """
        if now_us < self._repeat_us or not self._left:
            return
        self._left -= 1
        self._repeat_us = now_us + self._gap_us
        self._gap_us = min(2 * self._gap_us, self._options.connect_repeat_us_max)
        outputs.statistics.retransmissions += self._sent
        self._sent = True
        outputs.outbox.send(self.address, self._syn_ack, HEADER_BYTES)

    def due_us(self) -> int:
        return min(self._repeat_us, self.forget_us) if self._left else self.forget_us
