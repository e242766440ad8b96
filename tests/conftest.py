"""What all tests share: how long Hypothesis may look."""

from __future__ import annotations

import gc
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadFileScheduling

from tests.tally import TALLY

settings.register_profile("suite", max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")


SLOW = "slow: takes long, and adds histories to what quick tests show; only with --slow or --crash"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let ``--crash`` ask for the faults at full scale, and ``--slow`` for the tests that take long."""
    parser.addoption("--crash", action="store_true", help="try every fault, and kill many more processes")
    parser.addoption("--slow", action="store_true", help="run the tests that take long as well")


def pytest_configure(config: pytest.Config) -> None:
    """Declare the mark of the tests that take long."""
    config.addinivalue_line("markers", SLOW)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the tests that take long to those who ask for them; those that wait for Spark begin at once."""
    items.sort(key=lambda item: "spark" not in item.path.name)
    if config.getoption("slow") or config.getoption("crash"):
        return
    slow = [item for item in items if item.get_closest_marker("slow")]
    config.hook.pytest_deselected(items=slow)
    items[:] = [item for item in items if item not in slow]


def pytest_collection_finish() -> None:
    """Leave the tests themselves out of garbage collections: with all of them, each would take a fifth of a second."""
    gc.collect()
    gc.freeze()


class SparkBesideTheRest(LoadFileScheduling):  # type: ignore[misc]
    """One process has all tests that wait for Spark, and so the only session; the others take a file at a time."""

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        return "spark" if "spark" in file else str(file)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> SparkBesideTheRest:
    """Divide the tests among the processes."""
    return SparkBesideTheRest(config, log)


@pytest.fixture
def at_scale(request: pytest.FixtureRequest) -> bool:
    """Tell whether the faults are asked for at full scale."""
    return bool(request.config.getoption("crash"))


@pytest.fixture
def apart(request: pytest.FixtureRequest) -> int:
    """Tell how many times as far apart the faults of a test come as with ``--slow`` or ``--crash``."""
    return 1 if request.config.getoption("slow") or request.config.getoption("crash") else 3


@pytest.fixture
def only_new_garbage() -> None:
    """Let the garbage collections of a test, which may be many, look at nothing that was there before it."""
    gc.collect()
    gc.freeze()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Hand what one process of several has tried to the one that prints it."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["tally"] = dict(TALLY)


def pytest_testnodedown(node: Any) -> None:
    """Add what another process has tried."""
    TALLY.update(getattr(node, "workeroutput", {}).get("tally", {}))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say how many faults were tried, where ``--crash`` asks for them."""
    if not config.getoption("crash"):
        return
    passed, failed = (terminalreporter.stats.get(outcome, []) for outcome in ("passed", "failed"))
    hostile = sum("bad_input" in report.nodeid for report in passed)
    counts = [f"{count} {what}" for what, count in sorted({**TALLY, "hostile inputs": hostile}.items()) if count]
    verdict = "nothing was lost or wrong" if not failed else f"{len(failed)} tests failed"
    terminalreporter.write_line(f"tried: {', '.join(counts)}: {verdict}")
