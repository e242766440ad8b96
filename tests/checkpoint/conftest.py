from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from checkpoint.session import Session
from tests.checkpoint.store_helpers import Fault, FaultyConnection


@pytest.fixture
def inject(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Fault | None], None]]:
    """Return a function that makes the connections of all stores fail as a fault says."""
    monkeypatch.setattr(Session, "factory", FaultyConnection)
    yield lambda fault: setattr(FaultyConnection, "fault", fault)
    FaultyConnection.fault = None
