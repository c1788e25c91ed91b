"""What tests of landing share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fairway.store.lakes import Lake
from tests.lake.landing.fake import FakeGateway


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[FakeGateway]:
    Lake(tmp_path)
    gateway = FakeGateway(tmp_path, "one", days=2)
    yield gateway
    gateway.close()
