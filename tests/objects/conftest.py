"""A space, and how hard the state machines try: a little in every run, for long with ``OBJECTSPACE_SOAK=1``."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

from checkpoint import CheckpointStore
from objectspace import PersistedObjectSpace

SOAK = bool(os.environ.get("OBJECTSPACE_SOAK"))

settings.register_profile(
    "objects", deadline=None, max_examples=20, stateful_step_count=50, suppress_health_check=list(HealthCheck)
)
settings.register_profile("soak", settings.get_profile("objects"), max_examples=12500)
settings.load_profile("soak" if SOAK else "objects")


@pytest.fixture
def space() -> PersistedObjectSpace:
    return PersistedObjectSpace(CheckpointStore(":memory:"))
