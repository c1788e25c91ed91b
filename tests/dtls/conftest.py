"""Identities that the tests of a session share."""

from __future__ import annotations

import pytest

from tests.dtls.world import FakeFleet, Fleet


@pytest.fixture(scope="session")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Fleet:
    return Fleet(tmp_path_factory.mktemp("fleet"))


@pytest.fixture(params=["openssl", "fake"])
def either(request: pytest.FixtureRequest, fleet: Fleet) -> Fleet | FakeFleet:
    """Give both engines the same tests: what the simulator runs behaves like OpenSSL."""
    return fleet if request.param == "openssl" else FakeFleet()
