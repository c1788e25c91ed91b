"""Our own receiving machine as a peer, with small bounds and an application that takes its time.

A script shows what a legal peer may do; this shows what ours does at its bounds, over the same links.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from fairway.core.events import Event, MessageReceived, MessagesReceived, Receipt
from fairway.core.machine import Transmit, settle
from fairway.core.random_source import Seeded
from fairway.protocols import make_machine, make_options
from tests.conformance.pair import cut

from .rup_peers import RupPeer
from .udpc_peers import UdpcPeer
from .world import HERE, TAG_BYTES, ScriptedPeer

SCRIPTS: dict[str, type[ScriptedPeer]] = {"udpc": UdpcPeer, "rup": RupPeer}
"""Which script knows how to read the datagrams of a protocol."""


class OwnPeer(ScriptedPeer):
    """A machine of ours that receives; its application commits so long after a message was delivered, or, `at_ticks` of
    that length, all that it has."""

    def __init__(self, protocol: str, *, commit_us: int = 0, at_ticks: bool = False, **limits: object) -> None:
        super().__init__()
        self.protocol = protocol  # type: ignore[misc]  # a script has one protocol, a machine may have any
        self._script = SCRIPTS[protocol]()
        self._commit_us = commit_us
        self._at_ticks = at_ticks
        self._machine = make_machine(protocol, make_options(protocol, deferred=commit_us > 0, **limits), Seeded(7))
        self._armed_us: int | None = None

    def message_of(self, data: bytes) -> bytes | None:
        return self._script.message_of(data)

    def needed(self, bodies: Sequence[bytes]) -> int:
        return self._script.needed(bodies)

    def receive(self, data: bytes) -> None:
        self._machine.receive(data, HERE, self.world.now_us)
        self._settle()

    def _settle(self) -> None:
        settle(self._machine, self._transmit, self._report, self._arm)

    def _transmit(self, transmits: list[Transmit]) -> None:
        for transmit in transmits:
            for data in cut(transmit.data, transmit.segment_bytes):
                self.world.answer(data)

    def _report(self, event: Event) -> None:
        if isinstance(event, MessagesReceived):
            for message in event:
                self._report(message)
        elif isinstance(event, MessageReceived):
            self.taken[event.body[:TAG_BYTES]] += 1
            if self._commit_us:
                late_us = self.world.now_us % self._commit_us if self._at_ticks else 0
                self.world.at(self.world.now_us + self._commit_us - late_us, partial(self._commit, event.receipt))
            else:
                self._machine.commit(event.receipt, self.world.now_us)

    def _commit(self, receipt: Receipt) -> None:
        self._machine.commit(receipt, self.world.now_us)
        self._settle()

    def _arm(self, deadline_us: int | None) -> None:
        if deadline_us is not None and deadline_us != self._armed_us:
            self.world.at(max(deadline_us, self.world.now_us), partial(self._wake, deadline_us))
        self._armed_us = deadline_us

    def _wake(self, deadline_us: int) -> None:
        if deadline_us == self._armed_us:
            self._armed_us = None
            self._machine.wake(self.world.now_us)
            self._settle()
