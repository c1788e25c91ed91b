"""What a socket counts, and what an endpoint shows of itself."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field

from fairway.core.statistics import Statistics
from fairway.dtls import DtlsCounters


@dataclass(slots=True)
class SocketCounters:
    """Counts of one UDP socket since it was opened. Datagrams are counted by the machine; these are the calls."""

    path: str = ""
    """How datagrams move now: `gso`, `mmsg`, `portable` or `transport`."""
    send_calls: int = 0
    segmented_sends: int = 0
    """Send calls that carried several datagrams."""
    receive_calls: int = 0
    merged_receives: int = 0
    """Receive calls in which the kernel passed on several datagrams as one."""
    would_block: int = 0
    """Times that the kernel had no room for what was to be sent."""
    send_queue_dropped: int = 0
    """Datagrams dropped here because the kernel had no room for too long."""
    kernel_dropped: int = 0
    """Datagrams that the kernel dropped because the receive buffer was full."""
    unreachable: int = 0
    """ICMP errors that came back."""
    datagram_bytes_max: int = 0
    """What the path takes in one datagram, once it refused a larger one; 0 before."""
    receive_buffer_bytes: int = 0
    send_failures: Counter[str] = field(default_factory=Counter)
    """Datagrams that could not be sent, by the name of the error."""


@dataclass(frozen=True, slots=True)
class EndpointStatistics:
    """The machine's counts and its socket's, as they are now."""

    protocol: str
    machine: Statistics
    socket: SocketCounters
    dtls: DtlsCounters | None = None
    """What the DTLS layer counted; None on a plain port."""

    def as_dict(self) -> dict[str, object]:
        """Return plain values: the machine's counts, with the socket's under `socket`."""
        socket = asdict(self.socket)
        socket["send_failures"] = dict(sorted(self.socket.send_failures.items()))
        counts: dict[str, object] = {"protocol": self.protocol, **self.machine.as_dict(), "socket": socket}
        return counts if self.dtls is None else {**counts, "dtls": self.dtls.as_dict()}
