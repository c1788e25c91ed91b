"""The C library's memory: what large messages free is kept for the next ones."""

from __future__ import annotations

from functools import cache

KEPT_BYTES = (32 << 20) - (64 << 10)
"""Just below the largest block that glibc takes as a hint."""


@cache
def keep_freed_memory() -> None:
    """Have glibc keep up to 64 MiB of what is freed; other C libraries notice nothing. Once per process is enough.

    By default it gives what lies at the heap's end back to the system beyond 128 KiB, and asks for it again, page by
    page, with the next message: on a virtual machine that costs more than all else that a receiver of large messages
    does. When a block is freed that the system had given by itself, glibc takes blocks of that size as usual and keeps
    twice as much from then on. This block is never touched, so it costs a microsecond and no memory.
    """
    bytes(KEPT_BYTES)
