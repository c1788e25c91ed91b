"""`fairway send`: one message, or one per line, and what became of them."""

from __future__ import annotations

import asyncio
import os
import stat
import time
from collections.abc import Callable
from contextlib import nullcontext, suppress
from json import dumps
from pathlib import Path
from typing import Any

import typer

from fairway.cli import options
from fairway.cli.bodies import Way, of_file
from fairway.cli.exits import ExitCode
from fairway.cli.loop import complain, run, said_of
from fairway.cli.options import option
from fairway.cli.status import Progress, Unit, waiting
from fairway.cli.streams import Lines, Printer
from fairway.core.errors import BadMessage, CallerError, NotSupported
from fairway.core.events import NOT_SENT, CloseReason
from fairway.net import Connection, ConversationClosed, OutcomeRefused, OutcomeUnknown, connect

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
        self.silent = True
        """Whether nothing ever came from the peer."""
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
        """Wait while too many messages have no outcome."""
        while self._crowded():
            self._room = asyncio.get_running_loop().create_future()
            await self._room

    async def all_settled(self) -> None:
        """Wait until every message has an outcome."""
        if self._outstanding:
            await asyncio.wait(list(self._outstanding))
            await asyncio.sleep(0)  # their callbacks run in the next turn

    def give_up(self) -> None:
        """Count what has no outcome as unknown."""
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
        return said_of(worst, self._way.url, silent=self.silent) + more

    def complain(self) -> None:
        """Print why not everything was acknowledged, if so."""
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


STANDARD_INPUT = 0


def send(
    url: str = options.URL,
    text: str | None = options.argument(None, "[TEXT]", "The message."),
    file: Path | None = option(None, "--file", metavar="PATH", help="Send the content of a file."),
    lines: bool = option(False, "--lines", help="Send each line of standard input."),
    plain: bool = option(False, "--plain", help="Without acknowledgement (udpc only)."),
    json: bool = options.json("Say what became of them as one JSON object."),
    trace: Path | None = options.TRACE,
) -> int:
    """Send one message, or one per line, and wait for the acknowledgement.

    Leaves with 3 when an answer did not come in time, so that a message is unknown or was not sent, with 4 when one was
    refused.

    \b
    Examples:
      fairway send udpc://127.0.0.1:9000 hello
      fairway send rup://127.0.0.1:9000 --file picture.jpg
      fairway send mrp://127.0.0.1 --lines < messages.txt
    """
    if sum((text is not None, file is not None, lines)) != 1:
        raise typer.BadParameter("give one of TEXT, --file and --lines")
    way = Way(url)
    if plain and not way.protocol.plain:
        raise NotSupported(f"{way.protocol.name} acknowledges every message; --plain is for udpc")
    body = None
    if not lines:
        body = os.fsencode(text) if text is not None else of_file(file, way) if file is not None else b""
        way.check(len(body))
    sender = _Sender(way, Outcome(way, plain=plain), plain=plain)
    return run(lambda _: sender.run(body, trace, as_json=json), url)


class _Sender:
    """Carries messages to one peer and keeps account."""

    def __init__(self, way: Way, outcome: Outcome, *, plain: bool) -> None:
        self._way = way
        self._outcome = outcome
        self._reliable = not plain

    async def run(self, body: bytes | None, trace: Path | None, *, as_json: bool) -> int:
        """Send one body, or the lines of standard input, and say what became of it."""
        try:
            connection = await self._connect(trace)
        except (OutcomeRefused, OutcomeUnknown) as error:
            self._outcome.never_connected(error, None if body is None else len(body))
            await self._report(as_json)
            return self._outcome.code
        finished = False
        try:
            await (self._send_lines(connection) if body is None else self._send_one(connection, body))
            finished = True
        finally:
            # Interrupted: what has no outcome yet will have none, and nothing more is waited for.
            self._outcome.give_up()
            self._outcome.silent = connection.statistics.machine.datagrams_received == 0
            if connection.closed == CloseReason.REMOTE:
                self._outcome.ended = connection.closed
            await connection.close(None if finished else 0.0)
            await self._report(as_json)
        return self._outcome.code

    async def _connect(self, trace: Path | None) -> Connection:
        with waiting(self._way.url):
            return await connect(self._way.url, trace=trace)

    async def _report(self, as_json: bool) -> None:
        self._outcome.complain()
        # Nobody may be reading; what became of the messages is in the exit code, too.
        with suppress(BrokenPipeError):
            await Printer().write(self._outcome.line(as_json=as_json).encode() + b"\n")

    def _send(self, connection: Connection, body: bytes) -> None:
        try:
            future = connection.send_nowait(body, reliable=self._reliable)
        except ConversationClosed as error:
            self._outcome.never_sent(len(body), error)
            raise
        self._outcome.sent(future, len(body))

    async def _send_one(self, connection: Connection, body: bytes) -> None:
        position = _sent_bytes(connection, self._way, len(body))
        with Progress(f"to {self._way.url}", position, len(body), unit="bytes"):
            with suppress(ConversationClosed):
                self._send(connection, body)
            await self._outcome.all_settled()

    async def _send_lines(self, connection: Connection) -> None:
        size = _size_of_input()
        position = self._done_bytes if size else self._done_messages
        unit: Unit = "bytes" if size else "messages"
        typed = os.isatty(STANDARD_INPUT)
        with nullcontext() if typed else Progress(f"to {self._way.url}", position, size, unit=unit):
            with suppress(ConversationClosed):
                async for lines in Lines(STANDARD_INPUT, self._way.body_bytes_max):
                    await self._send_batch(connection, lines)
            await self._outcome.all_settled()

    async def _send_batch(self, connection: Connection, lines: list[bytes]) -> None:
        for body in lines:
            try:
                self._way.check(len(body))
            except BadMessage as error:
                self._outcome.never_sent(len(body), error)
                continue
            await self._outcome.room()
            self._send(connection, body)

    def _done_bytes(self) -> int:
        """Bytes of the input whose lines have an outcome, line feeds too."""
        return self._outcome.settled_bytes + self._done_messages()

    def _done_messages(self) -> int:
        outcome = self._outcome
        return outcome.acknowledged + outcome.refused + outcome.unknown


def _sent_bytes(connection: Connection, way: Way, total: int) -> Callable[[], int]:
    """Return what tells how much of one large message has left, repeats not counted."""
    part_bytes = int(getattr(way.options, "body_bytes_per_part", total))

    def position() -> int:
        counts = connection.statistics.machine
        return min(total, (counts.datagrams_sent - counts.retransmissions) * part_bytes)

    return position


def _size_of_input() -> int | None:
    """Return the size of standard input when it is a file, None when its end is not in sight."""
    with suppress(OSError):
        status = os.fstat(STANDARD_INPUT)
        if stat.S_ISREG(status.st_mode):
            return status.st_size
    return None
