"""A stream that is really killed, with readers beside it."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from threading import Event

import pytest

from fairway.cli import run
from tests.lake.landing.killing import torture


def test_killed_in_the_middle_a_stream_loses_and_doubles_nothing_and_readers_never_notice(tmp_path: Path) -> None:
    figures = torture(tmp_path, [("", 1.3)])
    assert figures.faults == []
    assert figures.kills == 1
    assert figures.looks > 4
    assert figures.reconciled > 2
    assert figures.messages > 100


class Session:
    """Stands for Spark where a signal comes while it starts."""

    stopped = False

    def stop(self) -> None:
        self.stopped = True


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_a_stream_that_is_told_to_stop_before_it_has_begun_lands_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals, code: int
) -> None:
    session = Session()

    def start(app: str, *, master: str, settings: dict[str, str], stop: Event) -> Session:
        assert (app, master, settings["a"]) == ("fairway stream", "local[1]", "b")
        os.kill(os.getpid(), number)
        assert stop.is_set()
        return session

    monkeypatch.setattr("fairway.lake.session.start", start)
    before = signal.getsignal(number)
    assert run(["stream", "--lake", str(tmp_path), "--master", "local[1]", "--conf", "a=b"]) == code
    assert session.stopped
    assert signal.getsignal(number) == before


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--interval", "5"], "--interval is '5'; it must be a number and a unit"),
        (["--interval", "0s"], "--interval is '0s'; it must be longer than nothing"),
        (["--history", "week"], "--history is 'week'; it must be a number and a unit"),
        (["--route", "readings=port=1"], "for which there is no --json-schema"),
        (["--keep", "week"], "--keep is 'week'; it must be a number and a unit"),
        (["--json-schema", "x"], "--json-schema 'x' is not NAME=COLUMNS"),
        (["--conf", "x"], "--conf is 'x'; it must be KEY=VALUE"),
    ],
)
def test_a_bad_option_is_told_before_anything_is_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], complaint: str
) -> None:
    assert run(["stream", "--lake", str(tmp_path / "lake"), *options]) == 2
    assert complaint in capsys.readouterr().err
    assert not (tmp_path / "lake").exists()
