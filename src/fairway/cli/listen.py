"""`fairway listen`: print what arrives.

Without `--count` messages are acknowledged as they arrive, and a command that is told to end prints what it has
acknowledged before it leaves. With `--count N` acknowledgement is deferred: a message is printed, then committed. So
there is nothing to undo when N is reached: what is not printed was never acknowledged, and for up to a second more
duplicates of what was printed are answered. With `--out DIR` acknowledgement is deferred as well, until a message is in
its file.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from fairway import net
from fairway.cli import options
from fairway.cli.exits import ExitCode
from fairway.cli.loop import Interruption, complain, run
from fairway.cli.options import option
from fairway.cli.received import PIECE_BYTES, Files, Ordering, file_line, human_line, json_pieces
from fairway.cli.status import Progress
from fairway.cli.streams import Printer
from fairway.core.errors import BadOption, CallerError
from fairway.net import Batch, Connection, ConversationClosed, Listener, Message, OutcomeRefused, Request
from fairway.net.urls import parse

BATCH_MESSAGES_MAX = 1_024
DUPLICATES_LOOK_S = 0.02
DUPLICATES_ANSWERED_S = 1.0
"""How long duplicates of what was printed are answered after the last message of `--count`."""

CLOSE_S = 1.0
REST_S = 2.0
"""How long closing waits for peers, and then for the reader of what is printed."""

NOT_HERE = {
    "spool_above_bytes": "listen prints whole messages",
    "first_sequence": "listen restores the order of messages from their first",
}


def listen(
    urls: list[str] = options.URLS,
    count: int | None = option(None, min=1, help="Leave after so many messages."),
    echo: bool = option(False, "--echo", help="Answer udpc requests with their body."),
    json: bool = options.json(),
    out: Path | None = option(None, metavar="DIR", help="Write each message to a file in this folder."),
    trace: Path | None = options.TRACE,
) -> int:
    """Print what arrives.

    Says "listening URL" on standard error for each URL, with the real port. Ends with --count, Ctrl-C (130) or SIGTERM
    (0, or 143 before --count is reached). With --out a message is acknowledged when its file is on the disk.

    \b
    Examples:
      fairway listen udpc://127.0.0.1:9000 "rup://[::1]:0?message_bytes_max=1GiB" --json
      fairway listen rup://0.0.0.0:9000 --out received
    """
    for url in urls:
        for name in NOT_HERE.keys() & parse(url).settings.keys():
            raise BadOption(f"{NOT_HERE[name]}; leave {name} out of {url!r}")
    printing = _Printing(count, echo=echo, as_json=json, out=out)
    return run(lambda interruption: _listen(urls, trace, printing, interruption))


async def _listen(urls: list[str], trace: Path | None, printing: _Printing, interruption: Interruption) -> int:
    listener = await net.listen(*urls, trace=trace, close_timeout_s=CLOSE_S, deferred=printing.deferred)
    try:
        for url in listener.urls:
            print(f"listening {url}", file=sys.stderr, flush=True)
        with Progress("received", lambda: printing.printed, printing.count, unit="messages", unless_printing=True):
            await printing.serve(listener)
        await printing.answer_duplicates()
    except asyncio.CancelledError:
        await listener.close()
        try:
            async with asyncio.timeout(REST_S):
                await printing.print_rest(listener)
        except TimeoutError:
            return complain("nobody reads what is printed, so not all that was acknowledged is", ExitCode.FAILED)
        if sys.stderr.isatty():
            print(f"{printing.printed:,} messages", file=sys.stderr)
        if printing.left == 0 or (interruption.signal == signal.SIGTERM and printing.count is None):
            return ExitCode.DONE
        raise
    finally:
        await listener.close()
    return ExitCode.DONE


class _Printing:
    """Prints messages until there were enough."""

    def __init__(self, count: int | None, *, echo: bool, as_json: bool, out: Path | None) -> None:
        self.count = count
        self.deferred = count is not None or out is not None
        """Whether a message is acknowledged only when it is printed, or in its file."""
        self._files = None if out is None else Files(out)
        self.printed = 0
        self._echo = echo
        self._as_json = as_json
        self._printer = Printer()
        self._ordering = Ordering()
        self._peers: dict[Connection, None] = {}

    @property
    def left(self) -> int:
        """How many messages may still be printed; -1 is any number."""
        return -1 if self.count is None else self.count - self.printed

    async def serve(self, listener: Listener) -> None:
        """Print what comes until there were enough."""
        while self.left:
            await self._take(await listener.receive_many(BATCH_MESSAGES_MAX))

    async def print_rest(self, listener: Listener) -> None:
        """Print what a closed listener has acknowledged and not delivered yet; where that is deferred, nothing is."""
        with suppress(ConversationClosed):
            while not self.deferred:
                await self._take(await listener.receive_many(BATCH_MESSAGES_MAX))

    async def _take(self, batch: Batch) -> None:
        if not self.deferred:
            await self._print(list(batch))
            return
        messages = [message for arrived in batch for message in self._ordering.arrange(arrived)]
        messages = messages if self.count is None else messages[: self.left]
        await self._print(messages)
        for message in messages:
            message.commit()
            if self.count is not None:
                self._peers[message.peer] = None

    async def _print(self, messages: list[Message]) -> None:
        pieces: list[bytes] = []
        for message in messages:
            for piece in await self._pieces(message):
                pieces.append(piece)
                if len(piece) >= PIECE_BYTES:
                    await self._write(pieces)
        await self._write(pieces)
        self.printed += len(messages)
        if self._echo:
            await asyncio.gather(*(_echo(message) for message in messages if isinstance(message, Request)))

    async def _write(self, pieces: list[bytes]) -> None:
        """Write and forget the pieces; between those of a large message the loop gets its turn."""
        await self._printer.write(b"".join(pieces))
        pieces.clear()
        await asyncio.sleep(0)

    async def _pieces(self, message: Message) -> Iterable[bytes]:
        if self._files is not None:
            path = await asyncio.to_thread(self._files.write, message)  # heartbeats must not wait for a disk
            return (file_line(message, path, as_json=self._as_json),)
        return json_pieces(message) if self._as_json else (human_line(message, self._printer.terminal),)

    async def answer_duplicates(self) -> None:
        """Wait while a peer may still repeat what was printed; one that has closed its session will not."""
        loop = asyncio.get_running_loop()
        end = loop.time() + DUPLICATES_ANSWERED_S
        while loop.time() < end and any(peer.closed is None for peer in self._peers):
            await asyncio.sleep(DUPLICATES_LOOK_S)


async def _echo(request: Request) -> None:
    # A peer that has gone in between, or waited too long, gets no answer; nobody is there to be told.
    with suppress(ConversationClosed, OutcomeRefused, CallerError):
        await request.reply(request.body)
