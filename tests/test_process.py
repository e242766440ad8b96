"""Settings of the process that some work has otherwise for as long as it takes."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from checkpoint.process import Setting, collecting_seldom
from objectspace import PersistedObjectSpace
from tests.objects.interruptions import interrupted


@pytest.fixture(autouse=True)
def thresholds() -> Iterator[None]:
    """Put the thresholds of the collector back."""
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


def test_a_setting_that_two_threads_want_is_put_back_by_the_last_one() -> None:
    value = [1]
    setting = Setting(lambda: value[0], lambda wanted: value.__setitem__(0, wanted), lambda before: before + 1)
    with setting:
        with setting:
            assert value == [2]
        assert value == [2]
    assert value == [1]


def test_an_interruption_at_any_line_leaves_a_setting_that_can_be_wanted_again() -> None:
    lines, came = 0, True
    while came:
        setting = Setting(lambda: 1, lambda wanted: None, lambda before: before + 1)
        came = interrupted(setting.__enter__, lines)
        assert setting._lock.acquire(blocking=False)
        lines += 1
    assert lines > 5


def test_a_checkpoint_looks_for_cycles_more_seldom_and_leaves_no_trace() -> None:
    before, met = gc.get_threshold(), []
    with PersistedObjectSpace.open(":memory:") as space:
        space.on_barrier(lambda epoch: met.append(gc.get_threshold()))
        space.create_list("l").append(1)
        space.checkpoint()
    assert met[0] > before
    assert gc.get_threshold() == before


@pytest.mark.parametrize("chosen", [0, 5_000_000])
def test_a_program_that_collects_never_or_more_seldom_is_left_to_it(chosen: int) -> None:
    gc.set_threshold(chosen, 10, 10)
    with collecting_seldom:
        assert gc.get_threshold() == (chosen, 10, 10)
