"""The examples of the harness. Its folder is not collected: some programs in it need the rivals."""

from __future__ import annotations

import doctest
import importlib

import pytest


@pytest.mark.parametrize("name", ["comparison", "figures", "plots", "report", "scripts"])
def test_the_examples_hold(name: str) -> None:
    found = doctest.testmod(importlib.import_module(f"benchmarks.{name}"))
    assert found.attempted > 0
    assert found.failed == 0
