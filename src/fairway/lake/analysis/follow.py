"""A folder into which a capture tool drops rotated files: which of them are complete.

The newest file may still grow, and so may one that was touched a moment ago: a file is taken once it has kept its
size and its time for a while. Which files were taken is not kept here but in the lake, by their content: after a
restart all are offered again, and those that the lake knows are not read again.
"""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

from fairway.lake.captures.files import SUFFIXES

QUIET_S = 5.0
LOOK_AGAIN_S = 1.0


class Follower:
    """Watches one folder."""

    def __init__(self, folder: Path, *, quiet_s: float = QUIET_S, look_again_s: float = LOOK_AGAIN_S) -> None:
        self._folder = folder
        self._quiet_s = quiet_s
        self.look_again_s = look_again_s
        self._seen: dict[str, tuple[int, int, float]] = {}
        """Size, time of change, and since when both have been so."""
        self._taken: dict[str, tuple[int, int]] = {}
        if not folder.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, "is not a folder", str(folder))

    def complete(self, now_s: float | None = None) -> list[str]:
        """Return the files that have become complete since the last look, oldest name first."""
        now_s = time.monotonic() if now_s is None else now_s
        entries = sorted(os.scandir(self._folder), key=lambda entry: entry.name)
        captures = [entry for entry in entries if entry.is_file() and _is_capture(entry.name)]
        return [entry.path for entry in captures if self._quiet(entry, now_s)]

    def _quiet(self, entry: os.DirEntry[str], now_s: float) -> bool:
        stat = entry.stat()
        state = (stat.st_size, stat.st_mtime_ns)
        *before, since_s = self._seen.get(entry.name, (-1, -1, now_s))
        if tuple(before) != state:
            since_s = now_s
            self._seen[entry.name] = (*state, now_s)
        if self._taken.get(entry.name) == state or stat.st_size == 0 or now_s - since_s < self._quiet_s:
            return False
        self._taken[entry.name] = state
        return True


def _is_capture(name: str) -> bool:
    """Return whether a name is that of a capture; tcpdump numbers rotated files behind the suffix (`out.pcap3`)."""
    return name.endswith(SUFFIXES) or ".pcap" in name
