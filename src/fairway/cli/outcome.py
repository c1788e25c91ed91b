"""What became of the messages of one `fairway send`."""

from __future__ import annotations

import asyncio
import time
from json import dumps
from typing import Any

from fairway.cli.bodies import Way
from fairway.cli.exits import ExitCode
from fairway.cli.loop import complain, said_of
from fairway.core.errors import CallerError
from fairway.core.events import NOT_SENT
from fairway.net import ConversationClosed, OutcomeRefused, OutcomeUnknown

OUTSTANDING_MESSAGES_MAX = 8_192
OUTSTANDING_BYTES_MAX = 32 << 20
"""What is read and has no outcome yet; beyond it reading waits."""


class Outcome:
    """Counts acknowledged, refused and unknown messages, and holds up the sender when too many have no outcome."""

    def __init__(self, way: Way, *, plain: bool) -> None:
        self._way = way
        self._plain = plain
        self._began_s = time.monotonic()
        self.messages = 0
        self.acknowledged = 0
        self.refused = 0
        self.not_sent = 0
        """Of the refused: those of which nothing was ever transmitted."""
        self.unknown = 0
        self.settled_bytes = 0
        self._outstanding: dict[asyncio.Future[Any], int] = {}
        self._outstanding_bytes = 0
        self._room: asyncio.Future[None] | None = None
        self._refusal: BaseException | None = None
        self._doubt: BaseException | None = None
        self.ended = "the peer did not answer"
        """Why there was no way to send what was not sent."""

    # What happens.

    def sent(self, future: asyncio.Future[Any], size: int) -> None:
        """Note a message under way."""
        self.messages += 1
        self._outstanding[future] = size
        self._outstanding_bytes += size
        future.add_done_callback(self._settle)

    def never_sent(self, size: int, reason: BaseException) -> None:
        """Note a message that could not even be tried."""
        self.messages += 1
        self.settled_bytes += size
        self._count(reason)

    def _settle(self, future: asyncio.Future[Any]) -> None:
        size = self._outstanding.pop(future)
        self._outstanding_bytes -= size
        self.settled_bytes += size
        if not future.cancelled():
            self._count(future.exception())
        if self._room is not None and not self._room.done() and not self._crowded():
            self._room.set_result(None)

    def _count(self, error: BaseException | None) -> None:
        if error is None:
            self.acknowledged += 1
        elif isinstance(error, OutcomeUnknown):
            self.unknown += 1
            self._doubt = self._doubt or error
        elif isinstance(error, ConversationClosed) or str(error) == NOT_SENT:
            self.refused += 1
            self.not_sent += 1
        elif isinstance(error, OutcomeRefused | CallerError):
            self.refused += 1
            self._refusal = self._refusal or error
        else:
            raise error

    def never_connected(self, error: BaseException, size: int | None) -> None:
        """Keep the reason for which a message of that size was not sent, or, without a size, nothing was even read."""
        if isinstance(error, OutcomeUnknown):
            self._doubt = error
        else:
            self._refusal = error
        if size is not None:
            self.messages = self.refused = 1
            self.not_sent = int(self._refusal is None)
            self.settled_bytes = size

    def _crowded(self) -> bool:
        return len(self._outstanding) >= OUTSTANDING_MESSAGES_MAX or self._outstanding_bytes >= OUTSTANDING_BYTES_MAX

    async def room(self) -> None:
        """Waits while too many messages have no outcome."""
        while self._crowded():
            self._room = asyncio.get_running_loop().create_future()
            await self._room

    async def all_settled(self) -> None:
        """Waits until every message has an outcome."""
        if self._outstanding:
            await asyncio.wait(list(self._outstanding))
            await asyncio.sleep(0)  # their callbacks run in the next turn

    def give_up(self) -> None:
        """Counts what has no outcome as unknown."""
        self.unknown += len(self._outstanding)
        for future in self._outstanding:
            future.remove_done_callback(self._settle)
            future.cancel()
        self._outstanding.clear()

    # What is said.

    @property
    def code(self) -> ExitCode:
        """The worst of all, refused before unknown."""
        if self._refusal is not None:
            return ExitCode.REFUSED
        return ExitCode.UNKNOWN if self._doubt is not None or self.unknown or self.not_sent else ExitCode.DONE

    @property
    def reason(self) -> str:
        """The first reason of the worst kind, or nothing."""
        worst = self._refusal or self._doubt
        if worst is None:
            return f"{self.not_sent:,} not sent: {self.ended}" if self.not_sent else ""
        more = f"; {self.not_sent:,} not sent" if self.not_sent else ""
        return said_of(worst, self._way.url) + more

    def complain(self) -> None:
        """Says why not everything was acknowledged, if so."""
        if self.reason:
            complain(self.reason, self.code)

    def line(self, *, as_json: bool) -> str:
        return dumps(self._row()) if as_json else self._sentence()

    def _row(self) -> dict[str, object]:
        return {
            "url": self._way.url,
            "messages": self.messages,
            "acknowledged": 0 if self._plain else self.acknowledged,
            "refused": self.refused,
            "not_sent": self.not_sent,
            "unknown": self.unknown,
            "bytes": self.settled_bytes,
            "seconds": round(time.monotonic() - self._began_s, 6),
            **({"reason": self.reason} if self.reason else {}),
        }

    def _sentence(self) -> str:
        done = f"{self.acknowledged:,} {'sent without acknowledgement' if self._plain else 'acknowledged'}"
        parts = [done]
        counts = {"refused": self.refused - self.not_sent, "not sent": self.not_sent, "unknown": self.unknown}
        parts += [f"{count:,} {name}" for name, count in counts.items() if count]
        seconds = time.monotonic() - self._began_s
        if seconds < 1:
            return f"{', '.join(parts)} in {seconds * 1_000:.1f} ms"
        several = f" ({self.messages / seconds:,.0f}/s)"
        rate = several if self.messages > 1 else f" ({self.settled_bytes / seconds / 1e6:.1f} MB/s)"
        return f"{', '.join(parts)} in {seconds:.1f} s{rate if self.acknowledged else ''}"
