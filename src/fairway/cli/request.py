"""`fairway request`: ask, and print the answer."""

from __future__ import annotations

import os
from pathlib import Path

from fairway.cli import options
from fairway.cli.bodies import Way
from fairway.cli.exits import ExitCode
from fairway.cli.loop import run
from fairway.cli.received import json_pieces, printable
from fairway.cli.status import waiting
from fairway.cli.streams import Printer
from fairway.core.errors import NotSupported
from fairway.net import Message, connect


def request(
    url: str = options.argument(..., "URL", "udpc://host:port?options"),
    text: str = options.argument(..., "TEXT", "The question."),
    json: bool = options.json("The answer as one JSON object."),
    trace: Path | None = options.TRACE,
) -> int:
    """Ask (udpc only), and print the answer.

    On a terminal control characters are shown, not obeyed; elsewhere the answer is written as it came, and a line feed.
    Leaves with 3 when no answer came in time.

    \b
    Example:
      fairway request "udpc://127.0.0.1:9000?request_timeout=2s" "what time is it?"
    """
    way = Way(url)
    if not way.protocol.requests:
        raise NotSupported(f"{way.protocol.name} has no requests; udpc has")
    body = os.fsencode(text)
    way.check(len(body))
    return run(lambda _: _request(way, body, trace, as_json=json), url)


async def _request(way: Way, body: bytes, trace: Path | None, *, as_json: bool) -> int:
    with waiting(way.url):
        connection = await connect(way.url, trace=trace)
        try:
            answer = await connection.request(body)
        finally:
            await connection.close(0.0)
    printer = Printer()
    await printer.write(b"".join(json_pieces(answer)) if as_json else _text(answer, printer.terminal))
    return ExitCode.DONE


def _text(answer: Message, terminal: bool) -> bytes:
    if not terminal:
        return bytes(answer.body) + b"\n"
    return "\n".join(printable(line) for line in answer.body.split(b"\n")).encode() + b"\n"
