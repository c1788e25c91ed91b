"""The command line: one thin command per verb.

A verb is a function in a module of its own, imported only when it is called: `fairway send` must not pay for what
`fairway sim` needs. Whatever goes wrong leaves as one line on standard error and an exit code (`exits.py`), never as a
traceback; with `FAIRWAY_DEBUG=1` the traceback comes.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Any, NamedTuple, NoReturn

import typer
from typer.core import TyperGroup

from fairway import __version__
from fairway.cli.exits import ExitCode, explain


class Verb(NamedTuple):
    """Where a verb lives, and what it does in one line."""

    name: str
    module: str
    promise: str


VERBS = (
    Verb("listen", "fairway.cli.listen", "Print what arrives."),
    Verb("send", "fairway.cli.send", "Send messages, and wait for their acknowledgement."),
    Verb("request", "fairway.cli.request", "Ask (udpc only), and print the answer."),
    Verb("ping", "fairway.cli.ping", "Show round-trip times and loss."),
    Verb("gateway", "fairway.cli.gateway", "Serve: acknowledged means on disk."),
    Verb("stream", "fairway.cli.stream", "Land what gateways have sealed in tables, exactly once."),
    Verb("reconcile", "fairway.cli.landed", "Count whether all that was acknowledged is in the table."),
    Verb("compact", "fairway.cli.landed", "Merge small files of the landed tables."),
    Verb("analyze", "fairway.cli.analyze", "Turn captures into tables."),
    Verb("report", "fairway.cli.report", "Draw what tables tell, as one HTML file."),
    Verb("wireshark", "fairway.cli.wireshark", "Teach Wireshark the four protocols."),
    Verb("ca", "fairway.cli.ca", "Issue and revoke certificates for gateways and devices."),
    Verb("sim", "fairway.cli.sim", "Run one simulated conversation and print what happened."),
    Verb("lab", "fairway.cli.lab", "Run many simulations on Spark, or one of them again."),
    Verb("bench", "fairway.cli.bench", "Measure this machine, this run."),
    Verb("demo", "fairway.cli.demo", "Show all that is there, in two minutes."),
    Verb("completion", "fairway.cli.completion", "Print what lets a shell complete verbs."),
)
"""A verb's module holds a function of its name, or a `typer.Typer` of its name when it has verbs of its own."""


class OneScreen(TyperGroup):
    """Shows the help in 24 lines: verbs one by one, options in a line. Ctrl-C in a verb is one line, too."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        self.format_commands(ctx, formatter)
        formatter.write("Options: --version, --help. Every verb has --help, with an example.\n")

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            print(STOPPED, file=sys.stderr)
            raise typer.Exit(ExitCode.INTERRUPTED) from error


STOPPED = "fairway: stopped"
"""Said on Ctrl-C, where a verb has nothing better to say."""

COMPLETION_VARIABLE = "_FAIRWAY_COMPLETE"
"""In the environment when a shell asks for completions instead of running a command."""


def main() -> NoReturn:
    """Run the command line and leave with its exit code."""
    raise SystemExit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command and return its exit code; what it raises becomes one line on standard error."""
    try:
        code = _invoke(arguments or ["--help"])
        if sys.stdout is not None:
            sys.stdout.flush()
    except KeyboardInterrupt:
        print(STOPPED, file=sys.stderr)
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has seen enough. Nothing more can be said there, not even at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.FAILED
    except Exception as error:
        if os.environ.get("FAIRWAY_DEBUG"):
            raise
        code, sentence = explain(error)
        print(f"fairway: {sentence}", file=sys.stderr)
        return code
    return code if arguments else ExitCode.USAGE


def _invoke(arguments: list[str]) -> int:
    """Let typer do the work; a verb returns None or an exit code."""
    if COMPLETION_VARIABLE in os.environ:
        from typer.completion import completion_init  # type: ignore[attr-defined]  # not re-exported, but named there

        completion_init()
        arguments = _typed_words()
    chosen = next((argument for argument in arguments if not argument.startswith("-")), None)
    code = _application(chosen)(args=arguments, prog_name="fairway", standalone_mode=False)
    return ExitCode.DONE if code is None else int(code)


def _typed_words() -> list[str]:
    """Return what stands after `fairway` on the line that a shell wants completed."""
    return os.environ.get("COMP_WORDS", os.environ.get("_TYPER_COMPLETE_ARGS", "")).split()[1:]


def _application(chosen: str | None) -> typer.Typer:
    """Build the command line with the chosen verb loaded, and the others as names with their one line of help."""
    application = typer.Typer(
        cls=OneScreen, add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False
    )
    application.callback()(_fairway)
    for verb in VERBS:
        if verb.name != chosen:
            application.command(verb.name, help=verb.promise)(_not_loaded)
            continue
        implementation = getattr(import_module(verb.module), verb.name)
        if isinstance(implementation, typer.Typer):
            application.add_typer(implementation, name=verb.name, help=verb.promise)
        else:
            application.command(verb.name)(implementation)
    return application


def _show_version(wanted: bool) -> None:
    if wanted:
        from fairway.pure import form

        print(f"fairway {__version__} ({form()})")
        raise typer.Exit


def _fairway(
    version: bool = typer.Option(
        False, "--version", callback=_show_version, is_eager=True, help="Print the version and leave."
    ),
) -> None:
    """\b
    Messages over UDP, reliably, from the edge to the lake.
    Exit codes: 0 done, 2 usage, 3 unknown, 4 refused, 130 Ctrl-C, 1 the rest.
    """


def _not_loaded() -> None:
    """Stand for a verb that was not chosen."""
