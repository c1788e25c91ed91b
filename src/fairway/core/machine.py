"""The contract of a machine: bytes and a time in; datagrams, a deadline and events out.

One machine serves one endpoint with all its peers. It never sleeps, never opens anything, never reads a clock and
takes its randomness as an argument. Whatever drives one protocol drives all four: an asyncio endpoint, the
simulator, the gateway, a test.

Rules that hold for every machine:

* Times are integer microseconds of one monotonic clock, chosen by the driver, never going back.
* `receive` takes one datagram, or a super-buffer with `segment_bytes`: datagrams of that size one after another, only
  the last may be shorter. The result is the same as receiving them one by one at that time; only faster.
* A datagram is decoded completely before anything changes. What does not parse, or what no rule accepts, is counted
  under `statistics.dropped[reason]` and changes nothing. Nothing a peer sends raises out of a machine.
* The caller's own mistakes raise a `CallerError` before anything changes, in the words of `core/refusals.py`.
* Each token (of `connect`, `send`, `ping`) gets exactly one outcome event. A message without an answer is unknown if
  any of it was transmitted, and otherwise refused with the reason `NOT_SENT`. What time runs out for is unknown with
  one of the reasons `NO_ACKNOWLEDGEMENT`, `NO_RESPONSE` and `NO_ANSWER`; what a conversation leaves behind at its end
  is unknown with the `CloseReason`, and so is a call that is pending when the endpoint is closed (`SHUT_DOWN`).
* `peers_max` bounds conversations and our own calls under way. Beyond it `connect` raises `CannotConnect`, and calls
  and first messages of others are counted as `peers_full`.
* Every delivered message occupies a receipt slot until its receipt is committed; slots are bounded
  (`open_receipts_max`, `open_receipt_bytes_max`). At the bound, new messages are dropped without acknowledgement and
  without a mark (`receipts_full`), so that the sender repeats them. With `deferred` the acknowledgement leaves at the
  commit; without, at the delivery. Duplicates of a message that is delivered but not committed are neither
  acknowledged (deferred) nor delivered again.
* A conversation that is closing takes nothing more: `send`, `ping` and `room` raise `NoSuchPeer`, new messages of the
  peer are counted as `closing`, and `Writable` does not come. An endpoint that was closed opens nothing: `connect`
  raises `CannotConnect`, calls and first messages of others are counted as `endpoint_closed`.
* `Writable` follows a `QueueFull` of `send`, or a `send_many` that took fewer than all, once: when a quarter of the
  send queue is free.
* `statistics.messages_sent` counts messages when they are first transmitted.
* After `Closed` no event speaks of that peer, and its open receipts count as committed.
* `next_deadline_us` is in the future after `wake(now_us)`, or None.

A driver feeds one input and calls `settle`, which the simulator and the sockets share, because a test world with a
kinder order of steps hides bugs: what is sent leaves before what happened is reported, reporting may cause more, and
one timer is armed last.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import ClassVar, NamedTuple, Protocol

from fairway.core.errors import BadOption
from fairway.core.events import Address, Event, Peer, Receipt
from fairway.core.statistics import Statistics

Buffer = bytes | bytearray | memoryview

UDP_PAYLOAD_BYTES_MAX = 65_507
"""What one UDP datagram carries over IPv4 at the most; the bound of the single-datagram protocols."""

DURATION_US_MAX = 1 << 62
CONTROLLERS = ("model", "newreno", "eager")
WINDOW = 256
BY_PATH = -1
"""A window that the user left open."""


class Transmit(NamedTuple):
    """Datagrams for one address: `data` is one datagram, or, with `segment_bytes`, several of that size, only the
    last of which may be shorter."""

    address: Address
    data: Buffer
    segment_bytes: int | None = None


@dataclass(frozen=True, kw_only=True)
class Options:
    """What every protocol lets its user set. Each protocol adds its own durations and bounds in a subclass."""

    deferred: bool = False
    """Acknowledge a message when its receipt is committed, not when it is delivered."""
    controller: str = "model"
    """Congestion control: `model` measures the path, `newreno` reacts to losses, `eager` keeps a fixed window (closed
    networks only)."""
    window: int = BY_PATH
    """Packets in flight per conversation at the most. Left open, the protocol sets it: see `fill_window`."""
    datagram_bytes_max: int = 1_200
    """The path's datagram budget."""
    send_queue_messages_max: int = 65_536
    send_queue_bytes_max: int = 64 << 20
    """Per peer: what `send` accepts ahead of its acknowledgement before it raises `QueueFull`."""
    open_receipts_max: int = 65_536
    open_receipt_bytes_max: int = 64 << 20
    """Per machine: messages delivered and not yet committed. A rup message above the bytes is let in on its own."""
    peers_max: int = 65_536
    half_open_max: int = 4_096
    unproved_max: int = 16_384
    """Addresses whose bytes are counted for the three-times limit."""

    def __post_init__(self) -> None:
        fill_window(self, WINDOW, WINDOW)
        if self.controller == "fair":
            raise BadOption(
                f"controller is 'fair', which is called newreno now; choose one of {', '.join(CONTROLLERS)}"
            )
        check_choice("controller", self.controller, CONTROLLERS)
        check_range("datagram_bytes_max", self.datagram_bytes_max, 64, UDP_PAYLOAD_BYTES_MAX)
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name.endswith(("_us", "_us_min", "_us_max")):
                check_range(field.name, value, 1, DURATION_US_MAX)
            elif isinstance(value, int) and not isinstance(value, bool) and value < 0:
                raise BadOption(f"{field.name} is {value}; it must not be negative")
        for name in ("window", "open_receipts_max", "send_queue_messages_max", "peers_max", "half_open_max"):
            check_range(name, getattr(self, name), 1, 1 << 31)


def fill_window(options: Options, by_path: int, fixed: int) -> None:
    """Set the window that the user left open: as far as memory allows where the controller measures what the path
    takes, and what suits most networks where it goes on until something is lost."""
    if options.window == BY_PATH:
        object.__setattr__(options, "window", by_path if options.controller == "model" else fixed)


def check_range(name: str, value: int, low: int, high: int) -> None:
    """Raise `BadOption` unless low <= value <= high."""
    if not low <= value <= high:
        raise BadOption(f"{name} is {value}; it must be from {low} to {high}")


def check_choice(name: str, value: str, choices: Sequence[str]) -> None:
    """Raise `BadOption` unless the value is one of the choices."""
    if value not in choices:
        raise BadOption(f"{name} is {value!r}; it must be one of {', '.join(choices)}")


def split(data: Buffer, segment_bytes: int) -> list[Buffer]:
    """Cut a super-buffer into its datagrams."""
    return [data[start : start + segment_bytes] for start in range(0, len(data), segment_bytes)]


class Machine(Protocol):
    """What every protocol's machine offers. What a protocol cannot do raises `NotSupported`."""

    name: ClassVar[str]
    statistics: Statistics

    # Inputs.

    def receive(self, data: Buffer, address: Address, now_us: int, segment_bytes: int | None = None) -> None:
        """Take one datagram, or a super-buffer of them."""
        ...

    def connect(self, address: Address, now_us: int) -> int:
        """Open a conversation; the token's outcome is `Connected`, `ConnectRefused` or `ConnectUnknown`.

        The connectionless protocols report `Connected` at once: nothing needs to be said first. There an address has
        one conversation, so that connecting again returns it, and raises `CannotConnect` while it is closing.
        """
        ...

    def send(
        self, peer: Peer, body: Buffer, now_us: int, *, flags: int | None = None, answers: int | None = None
    ) -> int:
        """Queue one message; the token's outcome is `Delivered`, `DeliveryUnknown`, `Refused` (or a response).

        `flags` and `answers` (the id of the request that this message answers) belong to udpc.
        """
        ...

    def send_many(self, peer: Peer, bodies: Sequence[Buffer], now_us: int) -> range:
        """Queue as many of the messages, from the first on, as there is room for, and return their tokens."""
        ...

    def ping(self, peer: Peer, now_us: int) -> int:
        """Ask the peer for an answer; the token's outcome is `PingAnswered` or `DeliveryUnknown`."""
        ...

    def commit(self, receipt: Receipt, now_us: int) -> None:
        """Free the receipt slots of received messages and, when deferred, acknowledge them. Unknown receipts are
        ignored: the conversation may have ended in between. Any part of what was delivered may be committed, in any
        order."""
        ...

    def close(self, peer: Peer | None, now_us: int) -> None:
        """Close one conversation (`LOCAL`), or all of them and the endpoint (`SHUT_DOWN`); outstanding messages are
        flushed first. What is closing already goes on as it was; what is not there raises `NoSuchPeer`."""
        ...

    def wake(self, now_us: int) -> None:
        """Do what is due."""
        ...

    def unreachable(self, address: Address, reason: str, now_us: int) -> None:
        """Take an ICMP error: nobody receives at this address. It is easily forged, so that it changes nothing once
        anything valid has come from there. Before, it ends what is open towards it: connects, pings and transmitted
        messages as unknown with this reason, other messages as refused (`NOT_SENT`). Conversations stay open."""
        ...

    def limit_datagrams(self, datagram_bytes: int, *, fragments: bool) -> None:
        """Note that a path takes no larger datagrams: in one piece (`fragments`), or not at all.

        A protocol that cuts messages cuts what it has not begun to send so that its datagrams fit. The others cannot:
        where larger datagrams get through in fragments they go on, and where they do not, `send` raises `BadMessage`.
        The limit holds for all peers and is never lifted.
        """
        ...

    # Outputs.

    def transmits(self) -> list[Transmit]:
        """Return what is to be sent now, in order."""
        ...

    def events(self) -> list[Event]:
        """Return what has happened since the last call, in order."""
        ...

    def next_deadline_us(self) -> int | None:
        """Return when `wake` is due next."""
        ...

    def room(self, peer: Peer) -> int:
        """Return how many more messages `send` would accept for this peer now (an estimate where bytes decide)."""
        ...

    def unfinished(self) -> int:
        """Count the tokens without an outcome; 0 means that closing would lose nothing."""
        ...

    # What survives a restart.

    def peers(self) -> list[Peer]:
        """List the conversations, open or closing, that have something to snapshot, oldest first."""
        ...

    def snapshot(self, peer: Peer, committing: Sequence[Receipt] = ()) -> bytes:
        """Return the state that must survive so that the peer notices nothing, as it will be once the receipts are
        committed: written in the same transaction as those messages, before `commit` releases their acknowledgement.

        Messages that are delivered but neither committed nor in `committing` are absent: after a restore their
        duplicates are delivered again.
        """
        ...

    def snapshot_in_pieces(self, peer: Peer, committing: Sequence[Receipt]) -> tuple[bytes, bytes]:
        """Return a piece that takes the place of the one before, and one with what the receipts add, which is empty
        unless the machine remembers every message: to write all of that with each commit would cost more than the
        messages do.

        `restore` takes the latest of the first, then all of the second in order, and knows what `snapshot` would tell.
        """
        ...

    def restore(self, snapshot: bytes, now_us: int) -> Peer:
        """Resume a conversation from its snapshot; raises `DamagedSnapshot`, or `AlreadyOpen` if it is there.

        The owner takes a new snapshot at once, before anything is sent: restoring twice from the same one would use
        numbers twice. It must not restore an mrp connection on which data of its own was sent after the snapshot.
        """
        ...


def settle(
    machine: Machine,
    transmit: Callable[[list[Transmit]], None],
    report: Callable[[Event], None],
    arm: Callable[[int | None], None],
) -> None:
    """Send and report until reporting causes nothing more, then arm the timer.

    Call it after each input. An input given from inside `report` must not settle again: its effects are taken up here.
    """
    while True:
        transmits = machine.transmits()
        if transmits:
            transmit(transmits)
        events = machine.events()
        if not events:
            break
        for event in events:
            report(event)
    arm(machine.next_deadline_us())
