"""What the command line leaves with: a code that a script can trust and a sentence that a person can use."""

from __future__ import annotations

import errno
from enum import IntEnum

import typer

from fairway.core.errors import BadAddress, BadOption, CallerError, FairwayError


class ExitCode(IntEnum):
    """The exit codes of every verb. A verb with many outcomes leaves with the worst, REFUSED before UNKNOWN.

    REFUSED is a peer's or a rule's no; what was not sent because nobody answered is UNKNOWN like what got no answer."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    UNKNOWN = 3
    REFUSED = 4
    INTERRUPTED = 130
    TERMINATED = 143


REMEDIES = {
    errno.EADDRINUSE: "another program has that port: choose another, or 0 for a free one",
    errno.EADDRNOTAVAIL: "this machine has no such address: 0.0.0.0 or [::] takes any of its own",
    errno.EACCES: "choose what you may use, or ask for the permission",
    errno.EPERM: "choose what you may use, or ask for the permission",
    errno.ENETUNREACH: "check the address and the routes of this machine",
    errno.EHOSTUNREACH: "check the address and the routes of this machine",
    errno.EISDIR: "name a file in it",
    errno.ENOTDIR: "check the path",
    errno.ENOSPC: "make room, or choose another disk",
    errno.EMFILE: "raise the limit with ulimit -n",
}
"""What helps, by the number of the operating system's error."""

EXTRAS = {
    **dict.fromkeys(("pyspark", "py4j", "pandas", "numba"), "spark"),
    **dict.fromkeys(("deltalake", "obstore", "prometheus_client", "pyarrow"), "gateway"),
    "OpenSSL": "dtls",
}
"""The smallest extra that brings a package, by the name that is imported."""


def explain(error: Exception) -> tuple[ExitCode, str]:
    """Return the exit code of an error and one line that names the cause and, where it is not the same, the remedy."""
    match error:
        case typer.TyperException():
            return ExitCode(error.exit_code), f"{_one_line(error.format_message())} ({_help_of(error)} shows the usage)"
        case typer.Abort():
            return ExitCode.FAILED, "the input ended before everything was answered"
        case BadAddress() if isinstance(error.__cause__, OSError):
            return ExitCode.FAILED, _with_remedy(_one_line(str(error)), error.__cause__)
        case BadOption() | BadAddress():
            return ExitCode.USAGE, _one_line(str(error))
        case CallerError():
            return ExitCode.REFUSED, _one_line(str(error))
        case FairwayError():
            return ExitCode.FAILED, _one_line(str(error))
        case OSError():
            return ExitCode.FAILED, _with_remedy(_one_line(_operating_system(error)), error)
        case ModuleNotFoundError():
            return ExitCode.FAILED, _missing((error.name or "").partition(".")[0])
    cause = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return ExitCode.FAILED, f"{_one_line(cause)} (a defect of Fairway; FAIRWAY_DEBUG=1 shows where)"


def _missing(package: str) -> str:
    name = f"fairway[{EXTRAS[package]}]" if package in EXTRAS else package
    return f"the package {package} is missing: pip install '{name}'"


def _help_of(error: typer.TyperException) -> str:
    """Names the command to ask for help: the one whose arguments could not be understood, where typer tells it."""
    context = getattr(error, "ctx", None)
    return f"{context.command_path if context else 'fairway'} --help"


def _operating_system(error: OSError) -> str:
    if error.errno is None and str(error):  # a library's, which may speak of a store in many lines
        from fairway.store.objects import sentence

        return sentence(error)
    reason = error.strerror or type(error).__name__
    return f"{error.filename}: {reason}" if error.filename is not None else reason


def _with_remedy(sentence: str, error: OSError) -> str:
    # Sockets belong to another room, so the failed look-up of a name is known by its own name; its numbers are others.
    looked_up = type(error).__name__ == "gaierror"
    remedy = "check the name, or write the address in numbers" if looked_up else REMEDIES.get(error.errno or 0)
    return f"{sentence}; {remedy}" if remedy else sentence


def _one_line(text: str) -> str:
    return " ".join(text.split())
