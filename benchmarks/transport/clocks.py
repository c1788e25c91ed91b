"""What a process has used: its processor time, also as seen from another process, and its memory at the peak."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path


def cpu_s(pid: int) -> float:
    """Return the processor seconds that a process has used, user and kernel."""
    # Linux encodes "the processor clock of that process" in the number of the clock.
    return time.clock_gettime((~pid << 3) | 2)


def peak_bytes() -> int:
    """Return the most memory that this process held since it began to run its program."""
    return _status("VmHWM")


def resident_bytes(pid: int | str = "self") -> int:
    """Return the memory that a process holds now; 0 if there is none."""
    return _status("VmRSS", pid)


def _status(name: str, pid: int | str = "self") -> int:
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            key, _, value = line.partition(":")
            if key == name:
                return int(value.split()[0]) * 1_024
    return 0
