"""Conversations that are not open yet: our calls, and calls of others that have not shown that they receive.

A call of ours is one datagram, repeated byte for byte until it is answered or given up. A call of another side is half
open from our answer until a packet of the conversation comes. The table of those is bounded and the oldest goes first.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from fairway.core.conversations import AnyConversation, EndpointMachine
from fairway.core.events import NO_ANSWER, Address, CloseReason, ConnectUnknown
from fairway.core.machine import Options
from fairway.core.outputs import Outputs
from fairway.core.timers import Deadlines


@dataclass(frozen=True, kw_only=True)
class HandshakeOptions(Options):
    """What every protocol with a handshake lets its user set."""

    connect_repeat_us: int = 250_000
    connect_repeat_us_max: int = 2_000_000
    """After how long a call is repeated for the first time, and how far apart repeats get by doubling."""
    connect_timeout_us: int = 5_000_000
    half_open_us: int = 5_000_000
    """How long a call that was answered waits for a first packet."""


@dataclass(eq=False)
class Call:
    """A conversation that we asked for; `key` is what its answer names, `own_id` the number that we gave it."""

    key: Hashable
    own_id: int
    address: Address
    datagram: bytes
    token: int
    gap_us: int
    give_up_us: int
    repeat_us: int = 0


class Calls:
    """Our calls by what their answer names."""

    def __init__(self, options: HandshakeOptions, outputs: Outputs[Any], deadlines: Deadlines[Any]) -> None:
        self._options = options
        self._outputs = outputs
        self._deadlines = deadlines
        self._by_key: dict[Hashable, Call] = {}
        self.get = self._by_key.get
        """Return the call that an answer names, or None."""

    def __len__(self) -> int:
        return len(self._by_key)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._by_key

    def start(self, key: Hashable, own_id: int, address: Address, datagram: bytes, now_us: int) -> int:
        """Send a call for the first time, and return its token."""
        options, token = self._options, self._outputs.token()
        give_up_us = now_us + options.connect_timeout_us
        call = Call(key, own_id, address, datagram, token, options.connect_repeat_us, give_up_us)
        self._by_key[key] = call
        self._outputs.unfinished += 1
        self._send(call, now_us)
        return call.token

    def _send(self, call: Call, now_us: int) -> None:
        self._outputs.outbox.send(call.address, call.datagram, len(call.datagram))
        call.repeat_us = now_us + call.gap_us
        call.gap_us = min(2 * call.gap_us, self._options.connect_repeat_us_max)
        self._deadlines.set(call, min(call.repeat_us, call.give_up_us))

    def wake(self, call: Call, now_us: int) -> None:
        if now_us >= call.give_up_us:
            self.give_up(call, NO_ANSWER)
        else:
            self._outputs.statistics.retransmissions += 1
            self._send(call, now_us)

    def remove(self, call: Call) -> None:
        del self._by_key[call.key]
        self._outputs.unfinished -= 1
        self._deadlines.set(call, None)

    def give_up(self, call: Call, reason: str) -> None:
        self.remove(call)
        self._outputs.report(ConnectUnknown(call.token, call.address, reason))

    def give_up_to(self, address: Address, reason: str) -> None:
        for call in [call for call in self._by_key.values() if call.address == address]:
            self.give_up(call, reason)

    def give_up_all(self, reason: str) -> None:
        for call in list(self._by_key.values()):
            self.give_up(call, reason)


class HalfOpen:
    """A call of another side that got our answer; `own_id` is the number that we gave it, 0 if it was rejected."""

    __slots__ = ("address", "answer", "caller_id", "expires_us", "own_id")

    def __init__(self, address: Address, caller_id: int, own_id: int, answer: bytes, expires_us: int) -> None:
        self.address = address
        self.caller_id = caller_id
        self.own_id = own_id
        self.answer = answer
        self.expires_us = expires_us


Entry = TypeVar("Entry", bound=HalfOpen)


class HalfOpens(Generic[Entry]):
    """The calls of others, by caller and by the number that we gave them."""

    def __init__(self, options: HandshakeOptions, outputs: Outputs[Any], deadlines: Deadlines[Any]) -> None:
        self._by_caller: OrderedDict[tuple[Address, int], Entry] = OrderedDict()
        """Oldest first. Not a plain dict: finding its first entry costs more with each one deleted before it."""
        self._by_id: dict[int, Entry] = {}
        self._max = options.half_open_max
        self._outputs = outputs
        self._deadlines = deadlines

    def __len__(self) -> int:
        return len(self._by_caller)

    def __contains__(self, own_id: int) -> bool:
        return own_id in self._by_id

    def by_caller(self, address: Address, caller_id: int) -> Entry | None:
        """Return the entry that the same call made before."""
        return self._by_caller.get((address, caller_id))

    def by_id(self, own_id: int) -> Entry | None:
        """Return the entry that a packet with our number completes."""
        return self._by_id.get(own_id)

    def add(self, entry: Entry) -> None:
        """Add a call; at the bound the oldest goes."""
        if len(self._by_caller) >= self._max:
            self.remove(next(iter(self._by_caller.values())))
            self._outputs.drop("half_open_evicted")
        self._by_caller[entry.address, entry.caller_id] = entry
        if entry.own_id:
            self._by_id[entry.own_id] = entry
        self._deadlines.set(entry, entry.expires_us)

    def remove(self, entry: Entry) -> None:
        del self._by_caller[entry.address, entry.caller_id]
        self._by_id.pop(entry.own_id, None)
        self._deadlines.set(entry, None)

    def clear(self) -> None:
        for entry in list(self._by_caller.values()):
            self.remove(entry)


class HandshakeMachine(EndpointMachine[AnyConversation], Generic[AnyConversation, Entry]):
    """A machine whose conversations begin with a handshake."""

    def __init__(self, options: HandshakeOptions) -> None:
        super().__init__(options)
        self._calls = Calls(options, self._outputs, self._deadlines)
        self._half_opens: HalfOpens[Entry] = HalfOpens(options, self._outputs, self._deadlines)

    @abstractmethod
    def _call(self, address: Address, now_us: int) -> int:
        """Call an address, and return the token."""

    @abstractmethod
    def _wake(self, entry: Any, now_us: int) -> None:
        """Do what is due for a conversation or a call of another side."""

    def _is_full(self) -> bool:
        return len(self._table) + len(self._calls) >= self._peers_max

    def connect(self, address: Address, now_us: int) -> int:
        self._check_connect(full=self._is_full())
        return self._call(address, now_us)

    def _shut(self) -> None:
        super()._shut()
        self._calls.give_up_all(CloseReason.SHUT_DOWN)
        self._half_opens.clear()

    def wake(self, now_us: int) -> None:
        for entry in self._deadlines.pop_due(now_us):
            if isinstance(entry, Call):
                self._calls.wake(entry, now_us)
            else:
                self._wake(entry, now_us)

    def unreachable(self, address: Address, reason: str, now_us: int) -> None:
        self._calls.give_up_to(address, reason)
