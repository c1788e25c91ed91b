"""The frame of the command line: exit codes, one line for what goes wrong, and a light start."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib

import pytest

from fairway import __version__, cli
from fairway.cli import VERBS, Verb, run
from fairway.cli.exits import EXTRAS
from fairway.pure import form
from tests.conftest import ROOT
from tests.loaded import loaded_by

MODULES_MAX = 150
"""A quarter more than it takes today."""
RUN = "import fairway.cli; fairway.cli.run(sys.argv[1:])"

DEFECT = "(a defect of Fairway; FAIRWAY_DEBUG=1 shows where)"
HELP, END_HELP = "(fairway --help shows the usage)", "(fairway end --help shows the usage)"


@pytest.fixture
def _verbs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "VERBS", tuple(Verb(name, "tests.cli.verbs", name) for name in ("end", "shout")))
    monkeypatch.delenv("FAIRWAY_DEBUG", raising=False)


@pytest.mark.usefixtures("_verbs")
@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ("end done", 0, ""),
        ("end unknown", 3, ""),
        ("end refused", 4, ""),
        ("end exit", 3, ""),
        ("end option", 2, "fairway: loss is -1; it must be from 0 to 1"),
        ("end address", 2, "fairway: no protocol is called 'tcp'"),
        ("end message", 4, "fairway: an empty message does not exist here"),
        ("end operation", 4, "fairway: rup has no requests"),
        ("end capture", 1, "fairway: the capture ends at byte 3"),
        ("end file", 1, "fairway: x.pcap: No such file or directory"),
        ("end module", 1, "fairway: the package pyspark is missing: pip install 'fairway[spark]'"),
        ("end defect", 1, f"fairway: ZeroDivisionError: division by zero {DEFECT}"),
        ("end silent", 1, f"fairway: AssertionError {DEFECT}"),
        ("end control-c", 130, "fairway: stopped"),
        ("end input", 1, "fairway: the input ended before everything was answered"),
        ("end", 2, f"fairway: Missing argument 'how'. {END_HELP}"),
        ("end done --times 0", 2, f"fairway: Invalid value for '--times': 0 is not in the range x>=1. {END_HELP}"),
        ("ende", 2, f"fairway: No such command 'ende'. Did you mean 'end'? {HELP}"),
        ("--nothing", 2, f"fairway: No such option: --nothing {HELP}"),
    ],
)
def test_every_ending_has_its_code_and_one_line(
    arguments: str, code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments.split()) == code
    assert capsys.readouterr().err.strip() == said


def test_every_package_of_an_extra_is_asked_for_by_an_extra_that_brings_it() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    brought = {
        extra: {re.split(r"[<>=]", wanted)[0].replace("-", "_") for wanted in extras[extra]}
        for extra in ("spark", "gateway", "dtls")
    }
    imported = {name: {"pyOpenSSL": "OpenSSL"}.get(name, name) for names in brought.values() for name in names}
    assert set(imported.values()) <= set(EXTRAS)
    assert all(name in brought[EXTRAS[module]] for name, module in imported.items())


@pytest.mark.usefixtures("_verbs")
def test_the_traceback_comes_when_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIRWAY_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        run(["end", "defect"])


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"fairway {__version__} ({form()})\n"


def test_help_fits_one_screen_and_names_every_verb(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 24
    assert max(len(line) for line in lines) <= 80
    for verb in VERBS:
        assert any(line.split()[:1] == [verb.name] and verb.promise in line for line in lines)


def test_no_arguments_are_a_usage_error_that_shows_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([]) == 2
    assert "Commands:" in capsys.readouterr().out


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.name)
def test_every_verb_loads_and_explains_itself(verb: Verb, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([verb.name, "--help"]) == 0
    assert f"Usage: fairway {verb.name}" in capsys.readouterr().out


def test_a_verb_that_was_not_chosen_is_not_loaded() -> None:
    loaded = loaded_by(RUN, "--help")
    assert "fairway.cli" in loaded
    assert "rich" not in loaded
    assert [verb.module for verb in VERBS if verb.module in loaded] == []


def test_the_help_of_a_verb_loads_few_modules() -> None:
    assert len(loaded_by(RUN, "sim", "--help")) < MODULES_MAX


def test_a_reader_that_leaves_early_ends_the_command_in_silence() -> None:
    script = """
from fairway import cli
cli.VERBS = (cli.Verb("shout", "tests.cli.verbs", ""),)
cli.main()
"""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    with subprocess.Popen(
        [sys.executable, "-c", script, "shout", "1000"],
        env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 1
