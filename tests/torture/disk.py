"""A disk that can be filled: a small file system in memory where mounting is permitted, else the gateway's quota."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep

MOUNT_BYTES = 384 << 20
BALLAST_BYTES = 1 << 20
MOUNT_S = 30.0


class Disk:
    """Where the lake lies. While it is full, writing fails for want of room."""

    def __init__(self, folder: Path, mounted: bool) -> None:
        self.folder = folder
        self.mounted = mounted
        """A file system of its own; otherwise only the gateway is told that its disk is full."""
        self.fills = 0
        self._freed_s = -1.0

    @property
    def environment(self) -> dict[str, str]:
        """What a gateway must be told."""
        return {} if self.mounted else {"FAIRWAY_DISK_FULL_WHILE": str(self._ballast)}

    @property
    def _ballast(self) -> Path:
        return self.folder / "ballast"

    def fill(self, seconds: float) -> None:
        """Fill the disk for a while."""
        self.fills += 1
        self._freed_s = float("inf")
        try:
            with self._ballast.open("wb", buffering=0) as ballast:
                if self.mounted:
                    _fill(ballast.fileno())
                sleep(seconds)  # the seeded length; nothing waits for anything here
        finally:
            self._ballast.unlink()
            self._freed_s = monotonic()

    def was_full_since(self, began_s: float) -> bool:
        """Return whether there was no room at some moment since then."""
        return self._freed_s >= began_s


def _fill(descriptor: int) -> None:
    size = BALLAST_BYTES
    while size >= 1:
        try:
            os.write(descriptor, bytes(size))
        except OSError:
            size //= 2


@contextmanager
def small_disk(folder: Path, keep: Path) -> Iterator[Disk]:
    """Mount a small file system on the folder if that is permitted; what lies on it is copied to `keep` at the end if
    that folder is there."""
    folder.mkdir(parents=True)
    mounted = _mount(folder)
    try:
        yield Disk(folder, mounted)
    finally:
        if mounted:
            if keep.is_dir():
                shutil.copytree(folder, keep, dirs_exist_ok=True)
            subprocess.run(["umount", "--lazy", folder], check=False, timeout=MOUNT_S)


def _mount(folder: Path) -> bool:
    if os.geteuid() != 0 or shutil.which("mount") is None:
        return False
    command = ["mount", "-t", "tmpfs", "-o", f"size={MOUNT_BYTES}", "tmpfs", str(folder)]
    return subprocess.run(command, capture_output=True, check=False, timeout=MOUNT_S).returncode == 0
