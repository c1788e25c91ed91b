"""`fairway completion`: the script that lets a shell complete verbs and options."""

from __future__ import annotations

from enum import StrEnum

import typer

from fairway.cli import COMPLETION_VARIABLE


class Shell(StrEnum):
    """What there is a script for."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


_SHELL = typer.Argument(..., help="Your shell.", show_default=False)


def completion(shell: Shell = _SHELL) -> None:
    """Print the script that lets your shell complete verbs and options.

    \b
    Example, for a line in ~/.bashrc:
      eval "$(fairway completion bash)"
    """
    from typer.completion import get_completion_script  # type: ignore[attr-defined]  # not re-exported

    print(get_completion_script(prog_name="fairway", complete_var=COMPLETION_VARIABLE, shell=shell.value))
