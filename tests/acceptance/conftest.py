"""Each test runs over plain UDP and over DTLS."""

from __future__ import annotations

import pytest

from tests.dtls.world import Fleet

from . import raw


@pytest.fixture(scope="session")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Fleet:
    return Fleet(tmp_path_factory.mktemp("fleet"))


@pytest.fixture(autouse=True, params=["plain", "dtls"])
def transport(request: pytest.FixtureRequest, fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "dtls":
        identities = fleet.file("raw-device"), fleet.file("127.0.0.1", "gateway")
        monkeypatch.setattr(raw, "identities", identities)
