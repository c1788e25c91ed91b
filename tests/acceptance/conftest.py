"""Each test runs over plain UDP and over DTLS."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.dtls.world import Fleet

from . import raw

SHORT = (
    "test_after_the_last_message",
    "test_send_c",
    "test_an_important_packet",
    "test_stamped_data",
    "test_parts_in_any_order",
    "test_a_copy_is_acknowledged",
)
"""What `make test` runs over DTLS, too: for each protocol something sent, something received, and how it ends."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave most of the tests over DTLS to `make test-all`."""
    for item in items:
        if item.path.parent == Path(__file__).parent and "dtls" in item.name and not item.name.startswith(SHORT):
            item.add_marker("long")


@pytest.fixture(scope="session")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Fleet:
    return Fleet(tmp_path_factory.mktemp("fleet"))


@pytest.fixture(autouse=True, params=["plain", "dtls"])
def transport(request: pytest.FixtureRequest, fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "dtls":
        identities = fleet.file("raw-device"), fleet.file("127.0.0.1", "gateway")
        monkeypatch.setattr(raw, "identities", identities)
