"""Received messages as people and programs read them, as files, and in the order of their connection."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from json import dumps
from pathlib import Path

from fairway.net import Connection, Message, Request
from fairway.protocols import protocol
from fairway.store.files import make_folder, write_file

CHARACTERS_MAX = 2_000
CHARACTERS_ASIDE_MAX = 65_536
"""Of one message on a terminal, and elsewhere; `--json` is for those who want all."""

CHARACTERS_KNOWN_MAX = 4_096
"""Of which is kept how they are shown."""

DIM, PLAIN = "\033[2m", "\033[0m"


PIECE_BYTES = 3 << 18
"""Of a large body at a time; a multiple of three, so that pieces of base64 join."""


def file_line(message: Message, path: Path, *, as_json: bool) -> bytes:
    if as_json:
        return dumps(_row(message) | {"file": str(path)}).encode() + b"\n"
    return f"{message.peer.protocol} {message.peer.peer} {len(message.body):,} bytes: {path}\n".encode()


def _row(message: Message) -> dict[str, object]:
    return {
        "protocol": message.peer.protocol,
        "peer": message.peer.peer,
        **({} if message.device is None else {"device": message.device}),
        "session": message.peer.session,
        "id": message.id,
        "kind": kind_of(message),
        "size": len(message.body),
    }


def json_pieces(message: Message) -> Iterator[bytes]:
    """Yield the JSON line of a message, a large one piece by piece; a body that is not UTF-8 is in base64."""
    try:
        text, encoding = message.body.decode(), "utf8"
    except UnicodeDecodeError:
        text, encoding = None, "base64"
    head = dumps(_row(message) | {"encoding": encoding})[:-1]
    yield f'{head}, "body": "'.encode()
    for start in range(0, len(message.body if text is None else text), PIECE_BYTES):
        end = start + PIECE_BYTES
        yield b64encode(message.body[start:end]) if text is None else dumps(text[start:end])[1:-1].encode()
    yield b'"}\n'


def kind_of(message: Message) -> str:
    """Return how it was sent: a `message` was acknowledged, `plain` was not, a `request` waits for its answer."""
    if isinstance(message, Request):
        return "request"
    return "message" if message.reliable else "plain"


def human_line(message: Message, terminal: bool) -> bytes:
    """Return one line: who, which, what; a long one is cut. On a terminal who is dimmed."""
    kind = kind_of(message)
    asks = "" if kind == "message" else f" {kind}"
    who = message.peer.peer if message.device is None else f"{message.device} {message.peer.peer}"
    head = f"{message.peer.protocol} {who} {message.id}{asks}:"
    most = CHARACTERS_MAX if terminal else CHARACTERS_ASIDE_MAX
    text = printable(_head(message.body, 4 * most))
    if len(text) > most:
        text = f"{text[:most]}... ({len(message.body):,} bytes)"
    return f"{DIM}{head}{PLAIN} {text}\n".encode() if terminal else f"{head} {text}\n".encode()


def _head(body: bytes, size: int) -> bytes:
    """Return the first so many bytes, but no piece of a character."""
    if len(body) > size:
        while size and body[size] & 0xC0 == 0x80:
            size -= 1
    return body[:size]


def printable(body: bytes) -> str:
    """Return a body as text that a terminal shows and does not obey.

    A line that is not UTF-8 is shown byte by byte, and so is a whole body that is not and has a zero byte: no text has.
    """
    try:
        text = body.decode()
    except UnicodeDecodeError:
        if b"\0" in body:
            return _escaped(body.decode("latin-1"))
    else:
        if text.isprintable():
            return text
        if text.isascii():
            return _escaped(text)
    return "\\n".join(map(_printable_line, body.split(b"\n")))


def _printable_line(line: bytes) -> str:
    try:
        text = line.decode()
    except UnicodeDecodeError:
        return _escaped(line.decode("latin-1"))
    if text.isprintable():
        return text
    return _escaped(text) if text.isascii() else "".join(map(_printable_character, text))


def _escaped(text: str) -> str:
    """Escape everything but printable ASCII, at once: character by character takes twenty times as long.

    Backslashes are printable, but the codec doubles them, so they are kept from it.
    """
    return "\\".join([piece.encode("unicode_escape").decode() for piece in text.split("\\")])


@lru_cache(CHARACTERS_KNOWN_MAX)
def _printable_character(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode()


class Files:
    """Writes each message to a file of its own in one folder: whole or not there, and never in place of another."""

    def __init__(self, folder: Path) -> None:
        make_folder(folder.absolute())
        self._folder = folder

    def write(self, message: Message) -> Path:
        """Write the body, sync it, and return where it is: protocol, peer and id are in the name."""
        peer = message.peer.peer.replace("[", "").replace("]", "").replace(":", "_")
        name = f"{message.peer.protocol}-{peer}-{message.id}"
        path = self._folder / name
        number = 1
        while path.exists():  # another session of the same peer counts from the same number
            number += 1
            path = self._folder / f"{name}-{number}"
        write_file(path, message.body)
        return path


@dataclass(slots=True)
class _Track:
    """One connection: the number that comes next, and what arrived beyond it."""

    next: int = 1
    held: dict[int, Message] = field(default_factory=dict)


class Ordering:
    """Restores the order of a connection's messages; those of unordered protocols pass as they come.

    With deferred acknowledgement mrp delivers each packet as it arrives; its number says where it belongs. One that is
    ahead of a gap is held, and not yet acknowledged, until the gap is filled. What is held is bounded by the machine,
    in which it still has its receipt slot.
    """

    def __init__(self) -> None:
        self._tracks: dict[Connection, _Track] = {}

    def arrange(self, message: Message) -> Iterator[Message]:
        """Take a message and yield those whose turn has come."""
        if isinstance(message.id, str) or not protocol(message.peer.protocol).ordered:
            yield message
            return
        track = self._tracks.setdefault(message.peer, _Track())
        track.held[message.id] = message
        while (ready := track.held.pop(track.next, None)) is not None:
            track.next += 1
            yield ready
