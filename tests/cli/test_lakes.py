"""`--lake` is a folder or s3://bucket/prefix: any other address is refused before anything is made or started."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fairway.cli import run
from fairway.core.errors import BadOption
from fairway.store.locations import location_of

VERBS = {
    "stream": ["stream", "--lake"],
    "compact": ["compact", "--lake"],
    "reconcile": ["reconcile", "--lake"],
    "analyze": ["analyze", "x.pcap", "--lake"],
    "report": ["report", "--lake"],
    "gateway": ["gateway", "udpc://127.0.0.1:0", "--lake"],
}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    def start(*_: object, **__: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr("fairway.lake.session.start", start)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("address", ["gs://bucket/lake", "hdfs:///lake", "abfss://a@b.net/lake"])
def test_an_address_is_refused_in_a_sentence_and_nothing_is_made(
    here: Path, verb: str, address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*VERBS[verb], address]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"fairway: {Path(address)} is an address of {address.partition(':')[0]}: a lake is a folder")
    assert said.count("\n") == 1
    assert os.listdir(here) == []


def test_a_lake_in_the_gateways_file_is_refused_too(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = here / "gateway.toml"
    file.write_text('urls = ["udpc://127.0.0.1:0"]\nlake = "gs://bucket/lake"\n')
    assert run(["gateway", "--config", str(file), "--check"]) == 2
    assert "is an address of gs" in capsys.readouterr().err


@pytest.mark.parametrize("verb", VERBS)
def test_a_whole_bucket_is_refused(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*VERBS[verb], "s3://bucket/"]) == 2
    assert "names a whole bucket: a lake has a prefix of its own" in capsys.readouterr().err


def test_a_journal_needs_a_folder_which_is_said_without_asking_the_store(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*VERBS["gateway"], "s3://bucket/lake"]) == 2
    assert "name a folder of this machine for it with --journal" in capsys.readouterr().err
    assert os.listdir(here) == []


@pytest.mark.parametrize("address", ["file:{}/lake", "file://{}/lake", "{}/lake", "lake"])
def test_a_folder_on_this_machine_is_taken(here: Path, address: str, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "lake" / "landing").mkdir(parents=True)
    assert run(["reconcile", "--lake", address.format(here)]) == 0, capsys.readouterr().err
    assert os.listdir(here) == ["lake"]


def test_only_what_begins_like_an_address_is_one() -> None:
    for path in ("a:b", "./s3:/b", "/x/s3:/b", "C:/lake", "1a:/b"):
        assert location_of(path).folder == Path(path).absolute()
    assert location_of(Path("file:///srv/lake")) == location_of("file:/srv/lake") == location_of("/srv/lake")
    with pytest.raises(BadOption, match="an address of gs"):
        location_of("gs:/bucket")
