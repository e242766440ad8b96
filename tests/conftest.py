"""What all tests share: how long Hypothesis may look."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("suite", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let ``--crash`` ask for the faults at full scale."""
    parser.addoption("--crash", action="store_true", help="try every fault, and kill many more processes")
