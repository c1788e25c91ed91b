"""What all connections of one machine share: options, outputs, receipt slots."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from fairway.core.outputs import Outputs
from fairway.protocols.mrp.options import MrpOptions
from fairway.protocols.mrp.receiver import KeptSlots

if TYPE_CHECKING:
    from fairway.protocols.mrp.connection import Connection


class Shared:
    """One per machine, handed to each connection."""

    __slots__ = ("drop", "forget", "options", "outbox", "outputs", "slots", "statistics")

    def __init__(self, options: MrpOptions, forget: Callable[[Connection], None]) -> None:
        self.options = options
        self.forget = forget
        """Takes a connection that has ended out of the machine's tables."""
        self.outputs: Outputs[Connection] = Outputs(options)
        self.statistics = self.outputs.statistics
        self.outbox = self.outputs.outbox
        self.drop = self.outputs.drop
        self.slots = KeptSlots(options)
