"""One S3 server for all tests of a worker, and a lake of its own for each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fairway.store import objects
from fairway.store.lakes import Lake
from tests.loopback import own_host
from tests.s3.server import BUCKET, environment, serving


@pytest.fixture(scope="session")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(tmp_path_factory.mktemp("s3"), own_host()) as found:
        yield found


@pytest.fixture
def address(endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a lake that is not there yet, with an environment in which it is reached."""
    for name, value in environment(endpoint).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # for what killed streams leave
    yield f"s3://{BUCKET}/{tmp_path.name}/lake"
    objects.forget()


@pytest.fixture
def lake(address: str) -> Lake:
    return Lake(address)
