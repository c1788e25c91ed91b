"""What strace recorded, as events below one folder.

A line is `PID TIME CALL(ARGUMENTS) = RESULT <DURATION>`, or two of them where another thread came between:
`CALL(ARGUMENTS <unfinished ...>` and `<... CALL resumed>REST`. Every text and path is in hexadecimal, so that commas
and brackets in it mislead nobody.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypedDict

from fairway.core.errors import FairwayError

CALLS = (
    "open", "openat", "creat", "write", "pwrite64", "writev", "pwritev", "pwritev2", "fsync", "fdatasync", "rename",
    "renameat", "renameat2", "unlink", "unlinkat", "rmdir", "ftruncate", "truncate", "mkdir", "mkdirat", "link",
    "linkat", "symlink", "fallocate", "copy_file_range", "sendfile", "lseek",
)  # fmt: skip
"""All that changes a file; one that is recorded below the folder and not understood here is an error."""

TEXT_BYTES_MAX = 8 << 20
SHARED_MEMORY = "-shm"
"""SQLite makes this file anew after a crash, and changes it without a call that could be recorded."""
_END = re.compile(r" = (-?\d+|\?)(<[^>]*>)?(\(deleted\))?[^=]* <(\d+)\.(\d{6})>$")
_DELETED = "(deleted)"


class NotUnderstood(FairwayError):
    """The recording holds something that cannot be replayed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One call that succeeded, on a path. Times are microseconds of the day's clock."""

    path: Path
    begin_us: int
    end_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Made(Event):
    """A file or a folder got a name, unless it had it already."""

    folder: bool = False
    empties: bool = False
    """A file of that name is emptied."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved(Event):
    """A name was exchanged for another, which may have been taken."""

    target: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Linked(Event):
    """A file got a second name."""

    target: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed(Event):
    """A name went away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrote(Event):
    """Bytes were written."""

    offset: int
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut(Event):
    """A file got another length."""

    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Synced(Event):
    """A file's content, or a folder's names, were forced to the disk."""


class Times(TypedDict):
    """When a call began and ended."""

    begin_us: int
    end_us: int


class _Call(NamedTuple):
    begin_us: int
    end_us: int
    name: str
    arguments: list[str]
    result: int
    opened: str
    """What was opened, where that is the result."""


def read(path: Path, folder: Path) -> list[Event]:
    """Return the events below a folder, in the order in which they began."""
    reader = _Reader(folder)
    events = [event for call in _calls(path) if (event := reader.event(call)) is not None]
    return sorted(events, key=lambda event: event.begin_us)


def _calls(path: Path) -> Iterator[_Call]:
    unfinished: dict[str, tuple[int, str]] = {}
    with path.open(encoding="latin-1") as file:
        for line in file:
            process, at, text = line.rstrip("\n").split(maxsplit=2)
            if text.startswith(("---", "+++")):
                continue
            begin_us = _us(*at.split("."))
            if text.endswith(" <unfinished ...>"):
                unfinished[process] = begin_us, text.removesuffix(" <unfinished ...>")
                continue
            if text.startswith("<... "):
                begin_us, begun = unfinished.pop(process)
                text = begun + text.partition(" resumed>")[2]
            call = _call(begin_us, text)
            if call is not None:
                yield call


def _us(seconds: str, fraction: str) -> int:
    return int(seconds) * 1_000_000 + int(fraction)


def _call(begin_us: int, text: str) -> _Call | None:
    """Read one call; None if it failed, or never came back."""
    found = _END.search(text, text.rfind(" = "))
    if found is None or found[1] == "?" or int(found[1]) < 0:
        return None
    name, _, arguments = text[: found.start()].rstrip().removesuffix(")").partition("(")
    opened = (found[2] or "<>")[1:-1]
    return _Call(begin_us, begin_us + _us(found[4], found[5]), name, arguments.split(", "), int(found[1]), opened)


def _bytes(text: str) -> bytes:
    if text.endswith("..."):
        raise NotUnderstood(f"the recording cut a text of more than {TEXT_BYTES_MAX} bytes; record smaller messages")
    return bytes.fromhex(text.strip('"').replace("\\x", ""))


class _Reader:
    """Makes events of calls; knows how far each open file has been written."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._positions: dict[str, int] = {}

    def _path(self, text: str) -> Path | None:
        """Return the path if it is below the folder, the folder, or the one that holds its name."""
        path = Path(_bytes(text).decode())
        near = self._folder.parent in (path, path.parent) or self._folder in path.parents
        return path if near and not path.name.endswith(SHARED_MEMORY) else None

    def event(self, call: _Call) -> Event | None:
        times: Times = {"begin_us": call.begin_us, "end_us": call.end_us}
        first, name = call.arguments[0], call.name
        if name in {"openat", "open", "creat"}:
            return self._opened(call, times)
        if name in {"mkdir", "unlink", "rmdir", "unlinkat", "mkdirat"}:
            path = self._path(call.arguments[1 if name.endswith("at") else 0])
            if path is None:
                return None
            return Made(path=path, folder=True, **times) if name.startswith("mk") else Removed(path=path, **times)
        if name in {"rename", "renameat", "renameat2", "link", "linkat"}:
            return self._named(call, times)
        descriptor, _, open_path = first.partition("<")
        if open_path.endswith(_DELETED) or not open_path.startswith("\\x2f"):
            return None
        return self._changed(call, descriptor, self._path(open_path.rstrip(">")), times)

    def _opened(self, call: _Call, times: Times) -> Event | None:
        path = self._path(call.opened)
        self._positions[str(call.result)] = 0
        if path is None:
            return None
        flags = " ".join(call.arguments)
        if "O_APPEND" in flags:
            raise NotUnderstood(f"{path} was opened for appending, which the replay does not know")
        if "O_CREAT" in flags or "O_TRUNC" in flags:
            return Made(path=path, empties="O_TRUNC" in flags, **times)
        return None

    def _named(self, call: _Call, times: Times) -> Event | None:
        texts = [argument for argument in call.arguments if argument.startswith('"')]
        source, target = (self._path(text) for text in texts)
        if source is None or target is None:
            return None
        kind = Linked if call.name.startswith("link") else Moved
        return kind(path=source, target=target, **times)

    def _changed(self, call: _Call, descriptor: str, path: Path | None, times: Times) -> Event | None:
        name, arguments = call.name, call.arguments
        if name == "lseek":
            self._positions[descriptor] = call.result
            return None
        if path is None:
            return None
        if name in {"fsync", "fdatasync"}:
            return Synced(path=path, **times)
        if name == "ftruncate":
            return Cut(path=path, size=int(arguments[1]), **times)
        if name == "pwrite64":
            return Wrote(path=path, offset=int(arguments[3]), data=_bytes(arguments[1])[: call.result], **times)
        if name == "write":
            offset = self._positions.get(descriptor, 0)
            self._positions[descriptor] = offset + call.result
            return Wrote(path=path, offset=offset, data=_bytes(arguments[1])[: call.result], **times)
        raise NotUnderstood(f"the recording holds {name} on {path}, which the replay does not know")
