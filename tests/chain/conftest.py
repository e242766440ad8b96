"""Where the chains of these tests lie, and who publishes them."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest

from checkpoint.chain import Chain, Location, location_at

from .chain_helpers import Publisher


@pytest.fixture(params=["folder", "memory"])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> Location:
    """A location that holds nothing yet, on disk and in memory."""
    return location_at(tmp_path / "space" if request.param == "folder" else f"memory://{uuid4().hex}/space")


@pytest.fixture
def chain(location: Location) -> Chain:
    """A space with one shard and no epoch."""
    return Chain.open_or_create(location, 1)


@pytest.fixture
def publish(tmp_path: Path) -> Publisher:
    """A publisher whose plans keep their caches in a folder of the test."""
    return Publisher(tmp_path / "cache")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Try a test of ``some_mode`` with two ways to fail, or with all four where ``--crash`` asks for them."""
    if "some_mode" in metafunc.fixturenames:
        modes = [{"late": late, "lasting": lasting} for late in (False, True) for lasting in (False, True)]
        metafunc.parametrize("some_mode", modes if metafunc.config.getoption("crash") else modes[1:3], ids=str)
