from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from checkpoint.session import Session
from tests.checkpoint.store_helpers import FAULTS, Fault, FaultyConnection


@pytest.fixture
def inject(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Fault | None], None]]:
    """Return a function that makes the connections of all stores fail as a fault says."""
    monkeypatch.setattr(Session, "factory", FaultyConnection)
    yield lambda fault: setattr(FaultyConnection, "fault", fault)
    FaultyConnection.fault = None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Try a test of ``some_fault`` with two of the faults, or with every one where ``--crash`` asks for them."""
    if "some_fault" in metafunc.fixturenames:
        chosen = FAULTS if metafunc.config.getoption("crash") else [FAULTS[1], FAULTS[6]]
        metafunc.parametrize("some_fault", chosen, ids=str)
