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
    """Set the thresholds of the collector, and put them back."""
    before = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    yield
    gc.set_threshold(*before)


def test_a_setting_that_two_threads_want_is_put_back_by_the_last_one() -> None:
    value = [1]
    setting = Setting(lambda: value[0], lambda wanted: value.__setitem__(0, wanted), 2)
    with setting.wanted():
        with setting.wanted():
            assert value == [2]
        assert value == [2]
    assert value == [1]


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_the_collector_is_as_it_was_after_an_error(error: type[BaseException]) -> None:
    before = gc.get_threshold()
    with pytest.raises(error), collecting_seldom(), collecting_seldom():
        assert gc.get_threshold() > before
        raise error
    assert gc.get_threshold() == before


def test_after_an_interruption_at_any_line_the_next_use_puts_the_thresholds_back() -> None:
    def use() -> None:
        with collecting_seldom():
            pass

    lines = 0
    while interrupted(use, lines):
        use()
        assert gc.get_threshold() == (700, 10, 10), lines
        lines += 1
    assert lines > 10


def test_what_a_program_chooses_meanwhile_stays() -> None:
    with collecting_seldom():
        gc.set_threshold(900, 9, 9)
    assert gc.get_threshold() == (900, 9, 9)


def test_a_checkpoint_looks_for_cycles_more_seldom_and_leaves_no_trace() -> None:
    before, met = gc.get_threshold(), []
    with PersistedObjectSpace.open(":memory:") as space:
        space.on_barrier(lambda epoch: met.append(gc.get_threshold()))
        space.create_list("l").append(1)
        space.checkpoint()
    assert met[0] > before
    assert gc.get_threshold() == before


@pytest.mark.parametrize("chosen", [0, 1_000_000, 5_000_000])
def test_a_program_that_collects_never_or_more_seldom_is_left_to_it(chosen: int) -> None:
    gc.set_threshold(chosen, 20, 100)
    with collecting_seldom():
        assert gc.get_threshold() == (chosen, 20, 100)
