"""What tests of pages share: one browser."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.conftest import ROOT
from tests.report.browser import Browser


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """Return a headless Chromium, installed if it is missing; never skipped."""
    subprocess.run([sys.executable, ROOT / "scripts" / "require.py", "chromium"], check=True)
    with Browser(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture
def browser(chromium: Browser) -> Iterator[Browser]:
    """Return the browser with a clean slate, and fails a test whose page complained."""
    chromium.complaints.clear()
    chromium.resize(1_400, 1_000)
    chromium.prefer("light")
    yield chromium
    assert chromium.complaints == []
