"""`fairway send`: one message, or one per line, and what became of them."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from contextlib import nullcontext, suppress
from pathlib import Path

import typer

from fairway.cli import options
from fairway.cli.bodies import Way, of_file, of_text
from fairway.cli.lines import Lines
from fairway.cli.loop import run
from fairway.cli.options import option
from fairway.cli.outcome import Outcome
from fairway.cli.printing import Printer
from fairway.cli.progress import Unit, progress
from fairway.core.errors import BadMessage, NotSupported
from fairway.core.events import CloseReason
from fairway.net import Connection, ConversationClosed, OutcomeRefused, OutcomeUnknown, connect

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
        body = of_text(text) if text is not None else of_file(file, way) if file is not None else b""
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
        """Sends one body, or the lines of standard input, and says what became of it."""
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
            if connection.closed == CloseReason.REMOTE:
                self._outcome.ended = connection.closed
            await connection.close(None if finished else 0.0)
            await self._report(as_json)
        return self._outcome.code

    async def _connect(self, trace: Path | None) -> Connection:
        async with progress(f"waiting for {self._way.url}", lambda: 0, None, unit="seconds"):
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
        async with progress(f"to {self._way.url}", position, len(body), unit="bytes"):
            with suppress(ConversationClosed):
                self._send(connection, body)
            await self._outcome.all_settled()

    async def _send_lines(self, connection: Connection) -> None:
        size = _size_of_input()
        position = self._done_bytes if size else self._done_messages
        unit: Unit = "bytes" if size else "messages"
        typed = os.isatty(STANDARD_INPUT)
        async with nullcontext() if typed else progress(f"to {self._way.url}", position, size, unit=unit):
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
