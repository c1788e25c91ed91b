"""What both ends of the layer return: datagrams to send, and plaintexts for the machine, each once."""

from __future__ import annotations

from collections.abc import Iterable

from fairway.core.events import Address
from fairway.core.machine import Transmit
from fairway.dtls.engine import Plaintext


class Outputs:
    """Holds them until they are asked for."""

    def __init__(self) -> None:
        self._transmits: list[Transmit] = []
        self._plaintexts: list[Plaintext] = []

    def transmits(self) -> list[Transmit]:
        """Return, once, the datagrams to send."""
        transmits, self._transmits = self._transmits, []
        return transmits

    def plaintexts(self) -> list[Plaintext]:
        """Return, once, what the peers sent."""
        plaintexts, self._plaintexts = self._plaintexts, []
        return plaintexts

    def _transmit(self, address: Address, datagrams: Iterable[bytes]) -> None:
        self._transmits += [Transmit(address, one) for one in datagrams]


def joined(plaintexts: list[bytes], address: Address, device: str) -> list[Plaintext]:
    """Return plaintexts as super-buffers, as long as neighbours have one size; the last of a buffer may be shorter."""
    found: list[Plaintext] = []
    first, count = 0, len(plaintexts)
    while first < count:
        size, end = len(plaintexts[first]), first + 1
        while end < count and len(plaintexts[end]) == size:
            end += 1
        if end < count and end - first > 1 and len(plaintexts[end]) < size:
            end += 1
        if end - first == 1:
            found.append(Plaintext(plaintexts[first], address, device))
        else:
            found.append(Plaintext(b"".join(plaintexts[first:end]), address, device, size))
        first = end
    return found
