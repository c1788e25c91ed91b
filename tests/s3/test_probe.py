"""A store that is not safe, or not there, is refused at the start, in one sentence."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from fairway.cli import run
from fairway.cli.exits import explain
from fairway.store import objects
from fairway.store.delta import Delta
from fairway.store.lakes import Lake, StoreUnsafe
from fairway.store.locations import location_of
from tests.loopback import closed_port, own_host
from tests.s3.server import BUCKET, environment

EMPTY = b"<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>"


class Careless(BaseHTTPRequestHandler):
    """A store that takes every PUT, whatever its conditions."""

    protocol_version = "HTTP/1.1"

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(b"")

    def do_GET(self) -> None:
        self._answer(EMPTY)

    def _answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("ETag", '"1"')
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def unconnected() -> Iterator[None]:
    """Forget clients of other stores, before and after."""
    objects.forget()
    yield
    objects.forget()


@pytest.mark.usefixtures("unconnected")
def test_a_store_that_accepts_a_second_conditional_put_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with ThreadingHTTPServer((own_host(), 0), Careless) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for name, value in environment(f"http://{own_host()}:{server.server_port}").items():
            monkeypatch.setenv(name, value)
        with pytest.raises(StoreUnsafe, match=r"has replaced an object that a conditional PUT .* must not replace"):
            Lake("s3://bucket/lake")
        server.shutdown()


GATEWAY = ("gateway", "mrp://127.0.0.1:0", "--journal", "journal")


def told(command: tuple[str, ...], lake: str, capsys: pytest.CaptureFixture[str]) -> str:
    """Run a command that fails, and return the one line that it says."""
    assert run([*command, "--lake", lake]) == 1
    said = capsys.readouterr().err
    assert said.startswith("fairway: ")
    assert said.count("\n") == 1
    return said


@pytest.mark.usefixtures("unconnected")
@pytest.mark.parametrize("command", [GATEWAY, ("reconcile",)])
def test_a_store_that_is_not_there_is_told_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: tuple[str, ...]
) -> None:
    endpoint = f"http://{closed_port()}"
    for name, value in environment(endpoint).items():
        monkeypatch.setenv(name, value)
    said = told(command, "s3://bucket/lake", capsys)
    assert said == f"fairway: s3://bucket/lake: the store at {endpoint} does not answer: check AWS_ENDPOINT_URL\n"


@pytest.mark.usefixtures("unconnected")
def test_a_store_that_dies_under_a_table_is_told_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library says it in a dozen lines and in colour."""
    endpoint = f"http://{closed_port()}"
    for name, value in environment(endpoint).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(OSError, match="HTTP error") as raised:
        Delta(location_of("s3://bucket/lake/tables/messages")).open()
    assert explain(raised.value)[1] == f"the store at {endpoint} does not answer: check AWS_ENDPOINT_URL"


@pytest.mark.usefixtures("unconnected")
@pytest.mark.parametrize(
    ("command", "variable", "bucket", "complaint"),
    [
        (GATEWAY, "AWS_ACCESS_KEY_ID", BUCKET, "the store refuses this (403): check AWS_ACCESS_KEY_ID and"),
        (("stream",), "AWS_SECRET_ACCESS_KEY", BUCKET, "the store refuses this (403): check AWS_ACCESS_KEY_ID and"),
        (("compact",), "", "nowhere", "there is no such bucket: make it, or name another"),
        (GATEWAY, "", "nowhere", "there is no such bucket: make it, or name another"),
    ],
)
def test_a_wrong_key_or_bucket_is_told_in_one_sentence(
    address: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: tuple[str, ...],
    variable: str,
    bucket: str,
    complaint: str,
) -> None:
    if variable:
        monkeypatch.setenv(variable, "wrong")
    lake = address.replace(BUCKET, bucket, 1)
    assert told(command, lake, capsys).startswith(f"fairway: {lake}: {complaint}")
