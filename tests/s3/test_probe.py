"""A store that is not safe, or not there, is refused at the start, in one sentence."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from fairway.bench.s3server import environment
from fairway.cli import run
from fairway.store import objects
from fairway.store.lakes import Lake, StoreUnsafe
from tests.loopback import closed_port, own_host

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


@pytest.mark.usefixtures("unconnected")
def test_a_store_that_is_not_there_is_told_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in environment(f"http://{closed_port()}").items():
        monkeypatch.setenv(name, value)
    assert run(["compact", "--lake", "s3://bucket/lake"]) == 1
    said = capsys.readouterr().err
    assert said.startswith("fairway: ")
    assert "s3://bucket/lake" in said
    assert said.count("\n") == 1
