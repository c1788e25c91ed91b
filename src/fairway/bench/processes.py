"""Processes that are started here end here: by their id, also on failure and on Ctrl-C."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

END_S = 5.0


@contextmanager
def process(command: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    """Runs a program in a session of its own, so that Ctrl-C reaches this process alone, and ends it at the end."""
    pipe = subprocess.PIPE
    child = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True)
    try:
        yield child
    finally:
        child.kill()
        child.wait(END_S)
        for stream in (child.stdin, child.stdout, child.stderr):
            if stream is not None:
                stream.close()
