"""What tests of the journal share."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairway.gateway.home import Home


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return tmp_path / "lake"


@pytest.fixture
def home(tmp_path: Path) -> Home:
    taken = Home(tmp_path, "edge")
    taken.take()
    return taken
