"""What tests of the journal share."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairway.gateway.place import Place


@pytest.fixture
def place(tmp_path: Path) -> Place:
    taken = Place(tmp_path, "edge")
    taken.take()
    return taken
