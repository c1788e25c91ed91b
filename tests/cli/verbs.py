"""Verbs that end in every way that a verb can end, for the tests of the frame around them."""

from __future__ import annotations

import typer

from fairway.cli.exits import ExitCode
from fairway.core.errors import BadAddress, BadMessage, BadOption, DamagedCapture, NotSupported

ENDS: dict[str, BaseException | ExitCode | None] = {
    "done": None,
    "unknown": ExitCode.UNKNOWN,
    "refused": ExitCode.REFUSED,
    "exit": typer.Exit(ExitCode.UNKNOWN),
    "option": BadOption("loss is -1; it must be from 0 to 1"),
    "address": BadAddress("no protocol is called 'tcp'"),
    "message": BadMessage("an empty message\ndoes not exist here"),
    "operation": NotSupported("rup has no requests"),
    "capture": DamagedCapture("the capture ends at byte 3"),
    "file": FileNotFoundError(2, "No such file or directory", "x.pcap"),
    "module": ModuleNotFoundError("No module named 'pyspark'", name="pyspark"),
    "defect": ZeroDivisionError("division by zero"),
    "silent": AssertionError(),
    "control-c": KeyboardInterrupt(),
    "input": EOFError(),
}


def end(how: str, times: int = typer.Option(1, min=1)) -> int | None:
    """End as requested."""
    ending = ENDS[how]
    if isinstance(ending, BaseException):
        raise ending
    return ending


def shout(lines: int) -> None:
    """Print more than a pipe holds."""
    for number in range(lines):
        print("x" * 1_000, number)
