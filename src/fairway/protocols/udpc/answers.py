"""Requests of the peer: which still wait for an answer, and the responses kept for duplicates of their requests."""

from __future__ import annotations

from fairway.protocols.udpc.options import UdpcOptions


class Answers:
    """What one session owes and has given in answer. Both tables are in the order of time, the oldest first."""

    __slots__ = ("_bytes", "_kept", "_options", "_waiting")

    def __init__(self, options: UdpcOptions) -> None:
        self._options = options
        self._waiting: dict[int, int] = {}
        """Requests handed over and not answered, with the time of arrival."""
        self._kept: dict[int, tuple[bytes, int]] = {}
        """Responses by the request they answer, with the time since when they are kept."""
        self._bytes = 0

    def __contains__(self, request: int) -> bool:
        """Return whether the application may answer this request."""
        return request in self._waiting

    def full(self, now_us: int) -> bool:
        """Return whether no further request can be taken; those that waited too long make room."""
        if len(self._waiting) >= self._options.requests_max:
            self.expire(now_us)
        return len(self._waiting) >= self._options.requests_max

    def asked(self, request: int, now_us: int) -> None:
        """Note a request that is delivered."""
        self._waiting[request] = now_us

    def answered(self, request: int) -> None:
        """Note that the application has answered; the response follows by `keep` when it leaves."""
        del self._waiting[request]

    def keep(self, request: int, response: bytes, now_us: int) -> None:
        """Keep a response for duplicates of its request; the oldest goes first."""
        self._kept[request] = (response, now_us)
        self._bytes += len(response)
        while len(self._kept) > self._options.responses_max or self._bytes > self._options.response_bytes_max:
            self._drop_oldest()

    def response(self, request: int, now_us: int) -> bytes | None:
        """Return the response kept for a request."""
        self.expire(now_us)
        kept = self._kept.get(request)
        return kept[0] if kept is not None else None

    def expire(self, now_us: int) -> None:
        """Forget what is too old: nobody waits for it any more."""
        since_us = now_us - self._options.response_kept_us
        while self._kept and next(iter(self._kept.values()))[1] <= since_us:
            self._drop_oldest()
        while self._waiting and next(iter(self._waiting.values())) <= since_us:
            del self._waiting[next(iter(self._waiting))]

    def _drop_oldest(self) -> None:
        response, _ = self._kept.pop(next(iter(self._kept)))
        self._bytes -= len(response)

    def waiting(self) -> list[int]:
        return list(self._waiting)

    def kept(self) -> list[tuple[int, bytes]]:
        return [(request, response) for request, (response, _) in self._kept.items()]
