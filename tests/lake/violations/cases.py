"""What a case is: a small capture in which one rule is broken, and how it becomes a file."""

from __future__ import annotations

from dataclasses import dataclass, replace

from fairway.capture.pcapng import PcapngWriter

EPOCH_NS = 1_700_000_000_000_000_000

Step = tuple[float, str, bytes]
"""When, in seconds; `>` from the caller or `<` to it; the datagram."""


@dataclass(frozen=True, slots=True)
class Case:
    """A capture that breaks a rule, named by its clause and by what is done."""

    clause: str
    what: str
    steps: tuple[Step, ...]
    expected: str = ""
    """The rule's own words, where a clause has several rules."""
    also: tuple[str, ...] = ()
    """Clauses that cannot be kept while this one is broken."""
    ipv6: bool = False

    @property
    def name(self) -> str:
        return f"{self.clause} {self.what}"

    def without_beginning(self) -> Case:
        """Return the same as seen by a capture that began after the first datagram."""
        return replace(self, steps=tuple(sorted(self.steps, key=lambda step: step[0])[1:]))

    def capture(self, number: int, port: int) -> bytes:
        """Return the file; `number` makes addresses of its own."""
        file = bytearray()
        trace = PcapngWriter(file.extend, ("middle",))
        high, low = divmod(number, 250)
        hosts = (f"10.{high}.{low}.2", f"10.255.{high}.{low}")
        if self.ipv6:
            hosts = (f"2001:db8::{number + 1:x}", f"2001:db8:1::{number + 1:x}")
        caller, callee = (hosts[0], 40_000), (hosts[1], port)
        for at_s, direction, data in sorted(self.steps, key=lambda step: step[0]):
            ends = (caller, callee) if direction == ">" else (callee, caller)
            trace.datagram(EPOCH_NS + round(at_s * 1_000_000_000), *ends, data)
        return bytes(file)
