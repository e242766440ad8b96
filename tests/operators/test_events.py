"""Event operators against plain functions of the events, with recoveries, and what an event dirties."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from functools import partial
from itertools import accumulate
from operator import itemgetter
from typing import Any

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from objectspace import CheckpointProtocolError, VolatileObjectSpace
from objectspace.operators.events import (
    Average,
    Buffer,
    Chain,
    CombineLatest,
    Concat,
    EventOperator,
    GroupBy,
    Select,
    SelectMany,
    SkipUntil,
    Take,
    Where,
    Window,
    Zip,
)
from objectspace.testing import crash_everywhere
from tests.operators.event_player import (
    Make,
    Player,
    at_times,
    ended,
    inner,
    once,
    opened,
    played,
    recoveries,
    refusing,
)

numbers = st.lists(st.integers(-5, 5), max_size=20)
fed = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9)), max_size=20)


timed = st.lists(st.integers(0, 7), max_size=20).map(lambda steps: list(accumulate(steps)))
"""The times of events, in order."""


def buffered(values: list[Any], count: int, skip: int) -> list[Any]:
    return [values[start : start + count] for start in range(0, len(values), skip)]


def by_time(times: list[int], duration: int, shift: int) -> list[list[int]]:
    """Return the numbers of the events in each window that has any."""
    starts = range(times[0], times[-1] + 1, shift) if times else ()
    lists = [[n for n, at in enumerate(times) if start <= at < start + duration] for start in starts]
    return [numbers for numbers in lists if numbers]


@settings(max_examples=15, deadline=None)
@given(values=numbers, recoveries=recoveries, count=st.integers(1, 4), every=st.integers(1, 5))
def test_buffers_by_count(values: list[int], recoveries: set[int], count: int, every: int) -> None:
    out, player = played(lambda: Buffer(count=count, skip=every), [*values, ended], recoveries)
    assert out == buffered(values, count, every)
    assert list(player.space) == ["op/ended"]


@settings(max_examples=15, deadline=None)
@given(times=timed, recoveries=recoveries, duration=st.integers(1, 6), shift=st.integers(1, 7))
def test_buffers_by_time(times: list[int], recoveries: set[int], duration: int, shift: int) -> None:
    out, _ = played(lambda: Buffer(duration=duration, shift=shift), [*at_times(times), ended], recoveries)
    assert out == by_time(times, duration, shift)


def test_a_silence_costs_nothing() -> None:
    player = Player(lambda: Buffer(duration=10, shift=1))
    player.operator.on_next("a", at=0)
    player.again()
    assert player.operator.on_next("z", at=10**12) == [["a"]]
    assert player.space.checkpoint().slots <= 2 * 10 + 3
    assert player.operator.on_completed() == [["z"]] * 10


def test_a_buffer_by_count_and_time_gives_what_comes_first() -> None:
    buffer = Buffer(count=2, duration=10)
    buffer.open(VolatileObjectSpace(), "b")
    out = [buffer.on_next(at, at=at) for at in (0, 1, 5, 12, 13, 14, 30)]
    assert out == [[], [[0, 1]], [], [[5]], [[12, 13]], [], [[14]]]
    assert (buffer.on_time(32), buffer.on_time(33)) == ([], [[30]])


@settings(max_examples=15, deadline=None)
@given(values=numbers, recoveries=recoveries, count=st.integers(0, 4))
def test_take_where_select_average(values: list[int], recoveries: set[int], count: int) -> None:
    def make() -> EventOperator:
        return Chain(Where(lambda x: x > 0), Select(lambda x: x * 2), Take(count), Average())

    out, player = played(make, [*values, ended], recoveries)
    taken = [value * 2 for value in values if value > 0][:count]
    assert out == ([sum(taken) / len(taken)] if taken else [])
    assert list(player.space) == ["op/ended"]


@settings(max_examples=15, deadline=None)
@given(events=fed, recoveries=recoveries)
def test_operators_of_several_inputs(events: list[tuple[int, int]], recoveries: set[int]) -> None:
    feed: list[Any] = [lambda op, s=s, v=v: op.on_next(v, source=s) for s, v in events]
    latest, _ = played(lambda: CombineLatest(3), feed, recoveries)
    zipped, _ = played(lambda: Zip(3), feed, recoveries)
    known: dict[int, int] = {}
    expected = []
    for source, value in events:
        known[source] = value
        if len(known) == 3:
            expected.append((known[0], known[1], known[2]))
    assert latest == expected
    assert zipped == list(zip(*([v for s, v in events if s == source] for source in range(3)), strict=False))


values_of_inputs: list[Any] = [lambda op, n=n: op.on_next(n, source=n % 3) for n in (0, 1, 3, 2, 4, 5, 7)]
ends_of_inputs: list[Any] = [lambda op, n=n: op.on_completed(source=n) for n in (1, 1, 0, 2)]


@pytest.mark.parametrize(
    ("make", "expected", "last"),
    [
        (lambda: CombineLatest(3), [(3, 1, 2), (3, 4, 2), (3, 4, 5), (3, 7, 5)], 3),
        (lambda: Zip(3), [(0, 1, 2), (3, 4, 5)], 2),
    ],
)
def test_operators_of_several_inputs_end_at_the_same_place_after_recoveries(
    make: Make, expected: list[Any], last: int
) -> None:
    for opened_again in (set[int](), set(range(20))):
        out, player = played(make, [*values_of_inputs, *ends_of_inputs[:last]], opened_again)
        assert (out, player.operator.has_ended) == (expected, False)
        player.space.checkpoint()
        for _ in range(2):
            assert ends_of_inputs[last](player.operator) == []
            assert player.operator.has_ended
            player.space.rollback()
            player.operator.open(player.space, "op")
            assert not player.operator.has_ended


def test_an_event_of_one_input_does_not_look_at_the_others() -> None:
    def ending(inputs: int) -> float:
        operator = opened(lambda: CombineLatest(inputs))
        for source in range(inputs):
            operator.on_next(source, source=source)
        return cost(inputs - 1, lambda source: operator.on_completed(source=source))

    def waiting(inputs: int) -> float:
        operator = opened(lambda: Zip(inputs))
        for source in range(inputs - 1):
            operator.on_next(source, source=source)
        return cost(200, lambda value: operator.on_next(value, source=0))

    def cost(times: int, event: Callable[[int], object]) -> float:
        started = time.process_time()
        for number in range(times):
            event(number)
        return (time.process_time() - started) / times

    assert ending(4_000) < 8 * ending(400)
    assert waiting(2_000) < 8 * waiting(100)


@settings(max_examples=15, deadline=None)
@given(events=fed, recoveries=recoveries)
def test_select_many_and_group_by(events: list[tuple[int, int]], recoveries: set[int]) -> None:
    begins: list[Any] = [0, 1, 1]
    feed: list[Any] = [lambda op, k=k, v=v: op.on_inner(k, v) for k, v in events]
    many, player = played(lambda: SelectMany(lambda key: Take(2)), [*begins, *feed, ended], recoveries)
    left = {0: 2, 1: 4}
    expected = []
    for key, value in events:
        copies = min(left.get(key, 0), 2 if key == 1 else 1)
        expected += [value] * copies
        left[key] = left.get(key, 0) - copies
    assert many == expected
    assert ("op/ended" in player.space) == (not left[0] + left[1])

    groups, _ = played(lambda: GroupBy(lambda e: e[0], lambda key: Buffer(count=2)), [*events, ended], recoveries)
    by_key = {key: [event for event in events if event[0] == key] for key in range(3)}
    assert sorted(groups) == sorted((key, pair) for key, found in by_key.items() for pair in buffered(found, 2, 2))


@pytest.mark.parametrize("make", [lambda: SelectMany(lambda x: Take(2)), lambda: GroupBy(list, lambda key: Take(2))])
def test_a_key_without_a_hash_is_refused_and_leaves_nothing(make: Make) -> None:
    player = Player(make)
    with pytest.raises(TypeError, match="unhashable type: 'list'"):
        player.operator.on_next([1, 2])
    player.again()
    assert list(player.operator._keys) == []  # type: ignore[attr-defined]


@settings(max_examples=15, deadline=None)
@given(values=numbers, recoveries=recoveries, count=st.integers(1, 3), every=st.integers(1, 4))
def test_windows(values: list[int], recoveries: set[int], count: int, every: int) -> None:
    make = lambda: Window(count, lambda number: Average(), every)  # noqa: E731
    out, _ = played(make, [*values, ended], recoveries)
    assert out == [sum(window) / len(window) for window in buffered(values, count, every)]


@settings(max_examples=15, deadline=None)
@given(times=timed, recoveries=recoveries, duration=st.integers(1, 6), shift=st.integers(1, 7), limit=st.integers(1, 3))
def test_windows_by_time(times: list[int], recoveries: set[int], duration: int, shift: int, limit: int) -> None:
    make = lambda: Window(None, lambda number: Chain(Take(limit), Buffer(count=9)), duration=duration, shift=shift)  # noqa: E731
    out, player = played(make, [*at_times(times), ended], recoveries)
    lists = [window[:limit] for window in by_time(times, duration, shift)]
    # A window gives its list when it has taken enough, or ends: another order than that of the windows.
    assert sorted(out) == sorted(values for values in lists if values)
    assert list(player.space) == ["op/ended"]


@settings(max_examples=15, deadline=None)
@given(times=timed, recoveries=recoveries)
def test_windows_by_count_and_time_are_the_buffers(times: list[int], recoveries: set[int]) -> None:
    events = at_times(times)
    make = lambda: Window(3, lambda number: Buffer(count=9), duration=6)  # noqa: E731
    assert (
        played(make, [*events, ended], recoveries)[0]
        == played(lambda: Buffer(count=3, duration=6), [*events, ended], set())[0]
    )


@settings(max_examples=50, deadline=None)
@given(
    times=timed,
    kinds=st.lists(st.sampled_from(["value", "time", "end"]), min_size=20, max_size=20),
    recoveries=recoveries,
    duration=st.integers(1, 6),
    shift=st.integers(1, 4),
)
def test_windows_hold_what_comes_at_an_end_as_the_lists_of_buffers_do(
    times: list[int], kinds: list[str], recoveries: set[int], duration: int, shift: int
) -> None:
    known: dict[str, Callable[..., Any]] = {
        "value": lambda n, at: lambda op: op.on_next(n, at=at),
        "time": lambda n, at: lambda op: op.on_time(at),
        "end": lambda n, at: lambda op: op.on_flushed(n),
    }
    events = [known[kind](n, at) for n, (at, kind) in enumerate(zip(times, kinds, strict=False))]
    makes: list[Make] = [
        lambda: Buffer(duration=duration, shift=shift),
        lambda: Window(None, lambda number: Buffer(count=99), duration=duration, shift=shift),
    ]
    lists, windows = [played(make, [*events, ended], recoveries)[0] for make in makes]
    assert windows == lists


@settings(max_examples=20, deadline=None)
@given(times=timed, recoveries=recoveries, unit=st.sampled_from([0.1, 0.05, 0.3, 1 / 3]), length=st.integers(1, 9))
def test_times_that_are_rounded_lose_no_value(times: list[int], recoveries: set[int], unit: float, length: int) -> None:
    events, duration = [*at_times([round(time * unit, 2) for time in times]), ended], length * 0.1
    makes: list[Make] = [
        lambda: Buffer(duration=duration),
        lambda: Buffer(count=99, duration=duration),
        lambda: Window(None, lambda number: Buffer(count=99), duration=duration),
        lambda: Window(99, lambda number: Buffer(count=99), duration=duration),
    ]
    lists, *others = [played(make, events, recoveries)[0] for make in makes]
    assert [n for values in lists for n in values] == list(range(len(times)))
    assert others == [lists] * 3


@pytest.mark.parametrize(
    "make",
    [
        lambda: Buffer(duration=0.1),
        lambda: Buffer(duration=0.1, shift=0.2),
        lambda: Window(None, any_list, duration=0.1),
        lambda: Window(9, any_list, duration=0.1),
    ],
)
def test_times_too_great_for_their_periods_are_refused(make: Make) -> None:
    operator = opened(make)
    for at in (1e18, 10**400):
        with pytest.raises(ValueError, match=r"0\.[12] is less than floats tell apart at the time 10*(e\+18)?: use"):
            operator.on_next("great", at=at)
    assert operator.on_next("low", at=0) == []
    for at in (1e308, 10**400):
        with pytest.raises(ValueError, match="is less than floats tell apart"):
            operator.on_next("great", at=at)
    assert operator.on_completed() == [["low"]]


def test_the_sequence_of_a_window_hears_of_its_end() -> None:
    window = Window(None, lambda number: Buffer(duration=4), duration=10)
    window.open(VolatileObjectSpace(), "w")
    out = [window.on_next(at, at=at) for at in (0, 5, 9)]
    assert (out, window.on_time(10), window.on_next(25, at=25)) == ([[], [[0]], [[5]]], [[9]], [])
    with pytest.raises(ValueError, match="Window 'w' has a duration: its values come with their times"):
        window.on_next(26)
    with pytest.raises(ValueError, match="a Window has a count, a duration or both"):
        Window(None, lambda number: Average())


@pytest.mark.parametrize(
    ("kind", "given"), [(CombineLatest, [("a", 1), ("a", 2)]), (Zip, [("a", 1)]), (Concat, ["a", 2])]
)
def test_an_input_that_has_ended_gives_nothing_more(kind: type, given: list[Any]) -> None:
    events = [once(("a", 0)), once((1, 1)), lambda op: op.on_completed(0), once(("late", 0)), once((2, 1))]
    assert played(lambda: kind(2), events, {3, 4})[0] == given


@pytest.mark.parametrize(("opener", "given"), [([], []), ([once(("go", 1))], [1, 2])])
def test_skip_until_opens_with_nothing_that_comes_after_the_end_of_its_opener(opener: Any, given: list[int]) -> None:
    events = [0, *opener, 1, lambda op: op.on_completed(1), once(("late", 1)), lambda op: op.on_completed(1), 2, ended]
    out, player = played(SkipUntil, events, {3, 4, 5})
    assert (out, list(player.space)) == (given, ["op/ended"])


def test_skip_until_and_concat() -> None:
    skip, concat = SkipUntil(), Concat(3)
    space = VolatileObjectSpace()
    skip.open(space, "skip")
    concat.open(space, "concat")
    assert [skip.on_next(1), skip.on_next("go", source=1), skip.on_next(2)] == [[], [], [2]]
    assert [concat.on_next(1, source=1), concat.on_next(0), concat.on_completed(1)] == [[], [0], []]
    assert [concat.on_completed(0), concat.on_next(2, source=2), concat.on_completed(2)] == [[], [2], []]
    assert concat.has_ended
    with pytest.raises(ValueError, match="has no input 3"):
        concat.on_next(1, source=3)
    with pytest.raises(ValueError, match="has no input 'a'"):
        concat.on_next(1, "a")  # type: ignore[arg-type]


def pairs_into(make: Make) -> Make:
    """Return what makes a chain whose first operator gives a value only at the end."""
    return lambda: Chain(Buffer(count=2), make())


def any_list(key: Any) -> EventOperator:
    return Buffer(count=9)


AT_THE_END: list[tuple[Make, list[Any], list[Any]]] = [
    (pairs_into(lambda: Buffer(duration=60)), at_times([0, 1, 2]), [[[0, 1], [2]]]),
    (pairs_into(lambda: Buffer(duration=60)), at_times([0]), [[[0]]]),
    (pairs_into(lambda: Buffer(count=5, duration=60)), at_times([0, 1, 2]), [[[0, 1], [2]]]),
    (pairs_into(lambda: Buffer(count=1, duration=60)), at_times([0]), [[[0]]]),
    (pairs_into(lambda: Buffer(duration=60, shift=30)), at_times([0, 1, 40]), [[[0, 1], [2]], [[2]]]),
    (pairs_into(lambda: Buffer(duration=5, shift=30)), at_times([0, 1, 20]), [[[0, 1]], [[2]]]),
    (pairs_into(lambda: Buffer(duration=5, shift=30)), at_times([0]), [[[0]]]),
    (pairs_into(lambda: Window(None, any_list, duration=60)), at_times([0, 1, 2]), [[[0, 1], [2]]]),
    (pairs_into(lambda: Window(None, any_list, duration=60)), at_times([0, 1, 100]), [[[0, 1]], [[2]]]),
    (pairs_into(lambda: Window(5, any_list, duration=60)), at_times([0, 1, 2]), [[[0, 1], [2]]]),
    (pairs_into(lambda: Window(1, any_list, duration=60)), at_times([0]), [[[0]]]),
    (pairs_into(lambda: Window(5, lambda n: Buffer(duration=60))), at_times([0, 1, 2]), [[[0, 1], [2]]]),
    (pairs_into(lambda: GroupBy(len, lambda n: Buffer(duration=60))), at_times([0, 1, 2]), [(2, [[0, 1]]), (1, [[2]])]),
    (pairs_into(lambda: Chain(Where(bool), Buffer(duration=60))), at_times([0, 1, 2]), [[[0, 1], [2]]]),
    (
        lambda: Window(None, lambda n: pairs_into(lambda: Buffer(duration=5))(), duration=10),
        at_times([0, 3, 6, 12]),
        [[[0, 1]], [[2]], [[3]]],
    ),
    (
        lambda: Chain(SelectMany(lambda key: Buffer(count=2)), Buffer(duration=60)),
        ["k", *(lambda op, n=n: op.on_inner("k", n, at=n) for n in (0, 1, 2)), lambda op: op.on_inner_completed("k")],
        [[[0, 1], [2]]],
    ),
]


def ends_of_keys(make: Make) -> tuple[Make, list[Any]]:
    """Return a chain with inner sequences, and events: 7 comes at an end without a time, when 35 is the last one."""
    events: list[Any] = [
        *(lambda op, key=key: op.on_next(key, at=0) for key in "ab"),
        *(lambda op, key=key, n=n: op.on_inner(key, n, at=0) for key, n in (("a", 1), ("b", 7))),
        lambda op: op.on_inner_completed("a", at=0),
        lambda op: op.on_next("c", at=35),
        lambda op: op.on_inner_completed("b"),
        lambda op: op.on_inner("c", 9, at=36),
        lambda op: op.on_inner_completed("c", at=37),
    ]
    return (lambda: Chain(SelectMany(lambda key: Average()), make())), events


AT_THE_END += [
    (
        *ends_of_keys(lambda: Window(None, lambda n: Select(lambda v: (n, v)), duration=10)),
        [(0, 1.0), (3, 7.0), (3, 9.0)],
    ),
    (*ends_of_keys(lambda: Window(None, any_list, duration=20, shift=10)), [[1.0], [7.0, 9.0], [7.0, 9.0]]),
    (*ends_of_keys(lambda: Window(None, any_list, duration=5, shift=20)), [[1.0], [7.0, 9.0]]),
    (*ends_of_keys(lambda: Buffer(duration=5, shift=20)), [[1.0], [7.0, 9.0]]),
]


@pytest.mark.parametrize(("make", "events", "expected"), AT_THE_END)
def test_what_is_given_at_an_end_goes_into_what_is_open(make: Make, events: list[Any], expected: list[Any]) -> None:
    assert played(make, [*events, ended], set())[0] == expected
    assert played(make, [*events, ended], set(range(9)))[0] == expected


def test_time_goes_through_a_chain_with_the_values_of_inner_sequences() -> None:
    make = lambda: Chain(SelectMany(lambda key: Buffer(count=2)), Buffer(duration=60))  # noqa: E731
    events = ["k", *(lambda op, at=at: op.on_inner("k", at, at=at) for at in (0, 1, 100, 170, 180))]
    late = lambda op: op.on_inner_completed("k", at=240)  # noqa: E731
    assert played(make, [*events, late, ended], {3})[0] == [[[0, 1]], [[100, 170]], [[180]]]
    with pytest.raises(ValueError, match="has a duration: its values come with their times"):
        played(make, ["k", inner("k", 1), inner("k", 2)], set())


CASES: list[tuple[str, Make, list[Any], int]] = [
    ("Buffer", lambda: Buffer(count=3), [1, 2, 3, 4], 3),
    ("Buffer that overlaps", lambda: Buffer(count=5, skip=3), list(range(8)), 8),
    ("Buffer by time", lambda: Buffer(duration=60), [once((n, 0, n * 29.9)) for n in range(5)], 4),
    ("CombineLatest", lambda: CombineLatest(5), [once(("a", n % 5)) for n in range(7)], 1),
    ("Zip", lambda: Zip(2), [once((n, n % 2)) for n in range(5)], 1),
    ("Average", Average, [1, 2, ended], 1),
    ("Take", lambda: Take(2), [1, 2, 3], 1),
    ("GroupBy", lambda: GroupBy(lambda x: x % 2, lambda key: Average(running=True)), [1, 2, 3], 3),
    ("Window", lambda: Window(2, lambda number: Average()), [1, 2, 3], 4),
    (
        "Window by time",
        lambda: Window(None, lambda number: Average(), duration=60, shift=30),
        [once((n, 0, n * 29.9)) for n in range(4)],
        7,
    ),
    (
        "Window by both",
        lambda: Window(2, lambda number: Average(), duration=60),
        [once((n, 0, n * 40.0)) for n in range(4)],
        6,
    ),
    (
        "Chain with times",
        pairs_into(lambda: Buffer(duration=60)),
        [*(once((n, 0, n * 29.9)) for n in range(5)), ended],
        6,
    ),
    (
        "SelectMany",
        lambda: Chain(SelectMany(lambda x: Chain(Where(bool), Take(2))), Average()),
        ["x", "y", inner("x", 5), inner("y", 7), ended, inner("x", 6), inner("x", 7), inner("y", 8)],
        4,
    ),
]


@pytest.mark.parametrize(("make", "events", "dirty"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_every_crash_point(make: Make, events: list[Any], dirty: int) -> None:
    # The runs of a history are the square of its epochs; a restart after any event is what the random histories have.
    each = 1 if len(events) < 5 else 2
    runs = crash_everywhere(make, events, events_per_epoch=each, max_dirty_per_event=dirty, storage=False)
    assert runs == 9 * math.ceil(len(events) / each)


def receipts(make: Make, events: list[Any]) -> list[dict[str, int]]:
    """Return the items that each event dirties, by object, after some of them."""
    player, found = Player(make), []
    for event in events:
        player.operator.on_next(*event) if isinstance(event, tuple) else player.operator.on_next(event)
        receipt = player.space.checkpoint()
        found.append({name: cost.slots for name, cost in receipt.objects.items() if cost.slots})
    return found


def test_an_event_into_a_buffer_dirties_one_item_and_the_length() -> None:
    player = Player(lambda: Buffer(count=1_000))
    player.space.checkpoint()
    for value in range(500):
        player.operator.on_next(value)
    player.space.checkpoint()
    player.operator.on_next(500)
    receipt = player.space.checkpoint()
    rows = {
        table: player.store.database.execute(
            f"SELECT count(*) FROM {table} WHERE checkpoint = ?", [receipt.number]
        ).fetchone()[0]
        for table in ("state_index", "state_metadata", "state_item")
    }
    assert rows == {"state_index": 0, "state_metadata": 1, "state_item": 1}


def test_a_value_into_combine_latest_dirties_one_slot_of_many() -> None:
    events = [("first", source) for source in range(50)] + [("again", 7)]
    assert receipts(lambda: CombineLatest(50), events)[-1] == {"op/latest": 1}


def test_a_value_that_completes_a_tuple_dirties_the_other_queues_alone() -> None:
    events = [("a", 0), ("b", 1), ("c", 1), ("d", 2), ("e", 0)]
    given = receipts(lambda: Zip(3), events)
    assert given[1:] == [{"op/queue.1": 1}] * 2 + [{"op/queue.0": 1, "op/queue.1": 1}, {"op/queue.0": 1}]


def test_the_buffer_of_an_hour_writes_what_a_minute_brought() -> None:
    player = Player(lambda: Buffer(duration=3600))
    slots = []
    for minute in range(60):
        for second in (0, 29.9):
            assert player.operator.on_next([minute, second], at=minute * 59.8 + second) == []
        slots.append(player.space.checkpoint().slots)
    assert set(slots[1:]) == {2}
    assert len(player.operator.on_time(3600)[0]) == 120


@pytest.mark.parametrize(("length", "slots"), [(20, 19), (33, 0)])
def test_a_value_that_gives_a_short_list_dirties_what_is_stored_of_it(length: int, slots: int) -> None:
    given = receipts(lambda: Buffer(length), list(range(length)))
    assert given[1:] == [{"op/values": 1}] * (length - 2) + [{"op/values": slots} if slots else {}]


# Ends and times -------------------------------------------------------------------------------------------------------


def test_a_chain_that_time_ends_takes_no_value_more() -> None:
    chain = opened(lambda: Chain(Buffer(duration=10), Take(1)))
    assert chain.on_next(1, at=0) == []
    assert chain.on_next(2, at=11) == [[1]]
    assert (chain.has_ended, chain.on_next(3, at=12)) == (True, [])


def test_a_chain_has_the_inputs_of_its_first_operator() -> None:
    chain = opened(lambda: Chain(CombineLatest(2), Select(sum)))
    assert [chain.on_next(1, source=0), chain.on_next(2, source=1)] == [[], [3]]
    with pytest.raises(ValueError, match="it has 2"):
        chain.on_next(1, source=2)


def test_inner_sequences_that_time_ends_end_the_outer_one_too() -> None:
    chain = opened(lambda: Chain(SelectMany(lambda key: Chain(Buffer(duration=10), Take(1))), Select(len)))
    for key in ("a", "b"):
        chain.on_next(key, at=0)
        chain.on_inner(key, 1, at=1)
    chain.on_completed()
    assert not chain.has_ended
    assert chain.on_time(20) == [1, 1]
    assert chain.has_ended


def test_time_touches_those_inner_sequences_only_that_wait_for_it() -> None:
    counted: list[float] = []

    class Timed(Take):
        def _tick(self, at: float) -> list[Any]:
            counted.append(at)
            return []

    groups = opened(lambda: GroupBy(lambda key: key, lambda key: Timed(99) if key < 2 else Take(99)))
    for key in range(50):
        groups.on_next(key, at=0)
    assert groups.on_next(7, at=5) == [(7, 7)]
    assert counted.count(5) == 2


@pytest.mark.parametrize("make_nan", [lambda: float("nan"), lambda: Decimal("NaN"), lambda: complex(1, math.nan)])
def test_groups_of_nan_are_one_group_after_recovery_too(make_nan: Callable[[], Any]) -> None:
    nan = make_nan()
    events = [(nan, 1), ((nan, "x"), 2), (make_nan(), 3), ((make_nan(), "x"), 4)]
    make = partial(GroupBy, itemgetter(0), lambda key: Select(itemgetter(1)))
    for reopened in (set[int](), {2}, {1, 2, 3}):
        out, player = played(make, events, reopened)
        assert [value for _, value in out] == [1, 2, 3, 4]
        assert len(player.space.get(f"{player.operator.name}/inner")) == 2


def test_what_cannot_be_a_key_is_named_before_anything_changes() -> None:
    groups, many = opened(lambda: GroupBy(lambda key: key, any_list)), opened(lambda: SelectMany(any_list))
    for use in (lambda: groups.on_next([1]), lambda: many.on_next(Decimal("sNaN")), lambda: many.on_inner([1], 2)):  # type: ignore[attr-defined]
        with pytest.raises(TypeError, match="begins no inner sequence"):
            use()
    assert groups._following.value == many._following.value == 0  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "options", [{"count": 2.5}, {"count": True}, {"count": 0}, {"duration": float("nan")}, {"duration": float("inf")}]
)
def test_lengths_that_are_none_are_refused(options: Any) -> None:
    with pytest.raises(ValueError, match="expected a positive"):
        Buffer(**options)
    with pytest.raises(ValueError, match="expected a positive"):
        Window(options.pop("count", None), any_list, **options)


def listed(count: int | None = None, *steps: int, **lengths: float) -> EventOperator:
    """Return windows of lists with the arguments of a buffer."""
    return Window(count, any_list, *steps, **lengths)


@pytest.mark.parametrize("kind", [Buffer, listed])
@pytest.mark.parametrize(("counts", "lengths"), [((3, 2), {}), ((), {"duration": 60, "shift": 100})])
def test_lengths_may_be_numbers_of_numpy(kind: Any, counts: tuple[int, ...], lengths: dict[str, int]) -> None:
    events = [*at_times(range(0, 700, 50)), ended]
    small = {name: numpy.uint8(length) for name, length in lengths.items()}
    make, expected = partial(kind, *map(numpy.uint8, counts), **small), partial(kind, *counts, **lengths)
    assert played(make, events, set(range(1, 9)))[0] == played(expected, events, set())[0]


@pytest.mark.parametrize(
    "make", [lambda: Take(1), lambda: Buffer(2), lambda: Chain(Where(bool), Take(1)), lambda: Zip(2)]
)
@pytest.mark.parametrize("use", ["on_next", "on_flushed", "on_time", "on_completed"])
def test_an_operator_takes_nothing_before_it_is_open(make: Make, use: str) -> None:
    arguments = [] if use == "on_completed" else [1]
    with pytest.raises(CheckpointProtocolError, match=r"is not open: call open\(space, name\)"):
        getattr(make(), use)(*arguments)


@pytest.mark.parametrize(
    ("make", "bad"),
    [
        (lambda: Chain(Select(refusing), Buffer(duration=60)), "bad"),
        (lambda: Chain(GroupBy(lambda value: value, lambda key: Take(1)), Buffer(duration=60)), []),
    ],
)
def test_what_the_time_of_a_refused_value_closes_comes_with_the_next_one(make: Make, bad: Any) -> None:
    chain = make()
    chain.open(VolatileObjectSpace(), "minutes")
    first = [one for at in (0, 10, 20) for one in chain.on_next(at, at=at)]
    with pytest.raises((ValueError, TypeError)):
        chain.on_next(bad, at=61)
    lists = first + chain.on_next(62, at=62) + chain.on_completed()
    assert [len(one) for one in lists] == [3, 1]


def test_inner_sequences_are_found_in_nested_chains_and_hear_of_the_time() -> None:
    chain = Chain(Chain(Where(bool), Take(99)), SelectMany(lambda key: Take(5)))
    chain.open(VolatileObjectSpace(), "nested")
    chain.on_next("k")
    assert chain.on_inner("k", 1) == [1]
    many = SelectMany(lambda key: Buffer(duration=60))
    many.open(VolatileObjectSpace(), "many")
    for key in ("a", "b"):
        many.on_next(key, at=0)
        assert many.on_inner(key, key * 2, at=1) == []
    assert many.on_inner_completed("a", at=2) == [["aa"]]
    assert many.on_inner("none", 0, at=70) == [["bb"]]


NO_TIMES = [
    math.nan,
    math.inf,
    "noon",
    Decimal("NaN"),
    numpy.float32("nan"),
    datetime(2026, 1, 2),
    [1],
    Fraction(10**400, 3),
]


@pytest.mark.parametrize("at", NO_TIMES, ids="{!s:.20}".format)
@pytest.mark.parametrize(
    "make", [lambda: Buffer(duration=60), lambda: Window(None, lambda number: Take(1), duration=60)]
)
def test_a_time_that_is_no_number_is_refused_and_leaves_nothing(make: Make, at: Any) -> None:
    operator = make()
    operator.open(VolatileObjectSpace(), "o")
    with pytest.raises(ValueError, match="expected a finite number"):
        operator.on_next(1, at=at)
    assert len(operator.on_next(2, at=0) + operator.on_completed()) == 1


BY_TIME: list[Make] = [
    lambda: Buffer(duration=10),
    lambda: Buffer(9, duration=10.0),
    lambda: Buffer(duration=10.0, shift=10.5),
    lambda: Window(None, any_list, duration=10.0),
    lambda: Window(9, any_list, duration=10),
]


@pytest.mark.parametrize("make", BY_TIME)
@pytest.mark.parametrize("kind", [int, float, Decimal, Fraction, numpy.float32, numpy.float64, numpy.uint8], ids=str)
def test_a_time_may_be_any_number_and_is_stored(make: Make, kind: Any) -> None:
    for reopened in (set[int](), {1, 2, 3}):
        assert played(make, [*at_times([kind(at) for at in (0, 9, 11)]), ended], reopened)[0] == [[0, 1], [2]]


@pytest.mark.parametrize("make", BY_TIME)
def test_a_decimal_that_an_earlier_version_has_stored_goes_with_other_times(make: Make) -> None:
    operator: Any = opened(make)
    operator.on_next(0, at=0)
    operator._clock.value = Decimal(0)
    assert [operator.on_next(1, at=Decimal(9)), operator.on_next(2, at=11.5)] == [[], [[0, 1]]]
    assert operator.on_completed() == [[2]]


def test_an_operator_of_the_user_gets_times_that_can_be_stored() -> None:
    heard: list[Any] = []

    class Timed(Take):
        def _tick(self, at: float) -> list[Any]:
            heard.append(at)
            return []

        def _next(self, value: Any, source: int, at: float | None) -> list[Any]:
            heard.append(at)
            return []

    operator = opened(lambda: Timed(9))
    for at in (numpy.int64(1), Fraction(3, 2), Decimal(2)):
        operator.on_next("x", at=at)  # type: ignore[arg-type]
    assert [(type(at), at) for at in heard[::2]] == [(int, 1), (float, 1.5), (float, 2.0)]
    assert heard[::2] == heard[1::2]


def test_an_average_counts_small_numbers_of_numpy_as_numbers_of_python() -> None:
    for kind in (numpy.int8, numpy.uint8, numpy.float16):
        player = Player(Average)
        for _ in range(1_000):
            player.operator.on_next(kind(100))
        player.again()
        assert player.operator.on_completed() == [100.0]
    running = opened(lambda: Average(running=True))
    with pytest.raises(OverflowError):
        running.on_next(10**400)
    assert running.on_next(3) == [3.0]


@pytest.mark.parametrize("number", [2.5, -1, True, "2", None])
@pytest.mark.parametrize("kind", [Take, Zip, Concat, CombineLatest])
def test_a_count_that_is_none_is_refused(kind: Any, number: Any) -> None:
    with pytest.raises(ValueError, match=r"count is .*: expected a whole number from [01]"):
        kind(number)


def test_inputs_are_one_at_least_and_a_count_may_be_one_of_numpy() -> None:
    for kind in (Zip, Concat, CombineLatest):
        with pytest.raises(ValueError, match="count is 0: expected a whole number from 1"):
            kind(0)
    player = Player(lambda: Take(numpy.int64(2)))  # type: ignore[arg-type]
    assert player.operator.on_next(1) == [1]
    player.again()


@pytest.mark.parametrize("kind", [Buffer, lambda count, step: Window(count, any_list, step)])
def test_lists_and_windows_that_are_full_after_the_count_has_shrunk_are_given(kind: Any) -> None:
    player = Player(lambda: kind(6, 2))
    assert [out for n in range(4) for out in player.operator.on_next(n)] == []
    player.make = lambda: kind(3, 2)
    player.again()
    given = [out for n in range(4, 9) for out in player.operator.on_next(n)]
    assert given == [[0, 1, 2, 3, 4], [2, 3, 4], [4, 5, 6], [6, 7, 8]]
    assert player.operator.on_completed() == [[8]]


def fed_with_counts(kind: Any, lengths: list[tuple[int, ...]], parts: list[int]) -> list[Any]:
    """Return what comes out of some parts of the values, each with lengths of its own, after each event."""
    player, out, values = Player(lambda: kind(*lengths[0])), [], iter(range(99))
    for one, part in zip(lengths, parts, strict=True):
        player.make = partial(kind, *one)
        player.again()
        out += [player.operator.on_next(next(values)) for _ in range(part)]
    return [*out, player.operator.on_completed()]


@settings(max_examples=60, deadline=None)
@given(
    counts=st.lists(st.integers(1, 6), min_size=2, max_size=3),
    parts=st.lists(st.integers(0, 15), min_size=3, max_size=3),
    leaps=st.lists(st.integers(1, 9), max_size=1),
)
def test_windows_by_a_count_that_shrinks_are_the_buffers(counts: list[int], parts: list[int], leaps: list[int]) -> None:
    lengths = [(count, *leaps) for count in sorted(counts, reverse=True)]
    found, expected = (
        fed_with_counts(kind, lengths, parts[: len(counts)])
        for kind in (lambda count, *leap: Window(count, lambda number: Buffer(99), *leap), Buffer)
    )
    assert found == expected


def test_a_window_that_has_ended_by_itself_holds_its_values_after_the_count_has_shrunk() -> None:
    made = fed_with_counts(lambda count: Window(count, lambda number: Take(1)), [(5,), (3,)], [4, 6])
    assert [n for out in made for n in out] == [0, 5, 8]


@pytest.mark.parametrize(("count", "parts"), [(5, [*range(12)]), (3, [0, 1, 3, 4, 5, 9, 10])])
def test_windows_go_on_from_what_an_earlier_version_has_stored(count: int, parts: list[int]) -> None:
    for part in parts:
        given = []
        for kind in (Buffer, listed):
            player = Player(partial(kind, 5))
            out = [player.operator.on_next(n) for n in range(part)]
            if kind is listed:
                player.operator._seen.value = part  # type: ignore[attr-defined]  # It counted those of all windows.
            player.make = partial(kind, count)
            player.again()
            given.append([*out, *(player.operator.on_next(n) for n in range(part, 20)), player.operator.on_completed()])
        assert given[0] == given[1]


def test_a_window_begins_with_the_next_value_where_the_count_had_shrunk_in_an_earlier_version() -> None:
    player = Player(partial(listed, 3))
    assert [values for n in range(15) for values in player.operator.on_next(n)][-1] == [12, 13, 14]
    player.operator._seen.value = 18  # type: ignore[attr-defined]  # It had counted 18 values, of 5 windows.
    player.again()
    assert [values for n in range(18, 24) for values in player.operator.on_next(n)] == [[18, 19, 20], [21, 22, 23]]


@pytest.mark.parametrize("counts", [[(5, 3), (3,)], [(5, 3), (3, 3)]])
@pytest.mark.parametrize("kind", [Buffer, lambda count, *leap: Window(count, lambda number: Buffer(99), *leap)])
def test_windows_that_overlap_are_given_as_soon_as_they_are_full(kind: Any, counts: list[tuple[int, ...]]) -> None:
    out = fed_with_counts(kind, counts, [4, 6])
    assert [values for lists in out for values in lists] == [[0, 1, 2, 3, 4], [3, 4, 5], [6, 7, 8], [9]]


@pytest.mark.parametrize("kind", [Buffer, listed])
@pytest.mark.parametrize(
    ("counts", "leap", "given"),
    [([5, 3], 3, [[0, 1, 2, 3, 4], [3, 4, 5], [6, 7, 8], [9]]), ([5, 3], 5, [[0, 1, 2, 3, 4], [5, 6, 7]])],
)
def test_a_count_that_shrinks_to_its_skip_or_below_it_loses_nothing(
    kind: Any, counts: list[int], leap: int, given: list[Any]
) -> None:
    out = fed_with_counts(kind, [(count, leap) for count in counts], [4, 6])
    assert [one for lists in out for one in lists] == given


@pytest.mark.parametrize(
    ("buffer", "numbers", "seen", "lists", "following", "given"),
    [
        (Buffer(3, 5), [3], 17, {"3": [19, 20], "values": [0, 1, 2, 3]}, range(21, 30), [[19, 20, 21], [24, 25, 26]]),
        (Buffer(3), [0], 4, {"0": [0, 1, 2, 3], "values": [10, 11]}, range(12, 17), [[10, 11, 12], [13, 14, 15]]),
    ],
)
def test_a_buffer_goes_on_in_the_form_for_its_count_where_an_earlier_version_has_left_both(
    buffer: Buffer, numbers: list[int], seen: int, lists: dict[str, list[int]], following: range, given: list[list[int]]
) -> None:
    space = VolatileObjectSpace()
    for number in numbers:
        space.get_or_create_queue("op/open").enqueue(number)
    space.create_value("op/seen", seen)
    for name, values in lists.items():
        space.create_list(f"op/{name}").extend(values)
    buffer.open(space, "op")
    assert [values for n in following for values in buffer.on_next(n)] == given
    buffer.delete()
    assert list(space) == []


def test_a_buffer_that_no_longer_overlaps_gives_no_value_twice_in_a_list() -> None:
    out = fed_with_counts(Buffer, [(3, 1), (3,)], [3, 6])
    assert [one for lists in out for one in lists] == [[0, 1, 2], [1, 2, 3], [2, 3, 4], [3, 4, 5], [6, 7, 8]]


class Counting(EventOperator):
    """Counts, and gives what it is told to; it leaves out what it has no use for."""

    def __init__(self, out: Any) -> None:
        self.out = out

    def _create(self) -> None:
        self.count = self._object("value", "count", 0)

    def _next(self, value: Any, source: int, at: float | None) -> Any:
        self.count.value += 1
        return self.out


def test_an_operator_of_the_user_may_return_none_for_nothing() -> None:
    assert opened(lambda: Counting(None)).on_next(1) == []
    assert opened(lambda: Chain(Counting(None), Take(1))).on_next(1) == []
    assert opened(lambda: Counting([7])).on_next(1) == [7]


@pytest.mark.parametrize("out", [7, "ab", (7,), {7}])
def test_what_an_operator_of_the_user_returns_is_a_list(out: Any) -> None:
    player = Player(lambda: Counting(out))
    with pytest.raises(
        TypeError, match=rf"Counting 'op' returned {re.escape(repr(out))}: expected a list of the values"
    ):
        player.operator.on_next(1)


@pytest.mark.parametrize("role", ["ended", "$held"])
def test_an_operator_of_the_user_has_no_object_of_a_role_that_every_operator_has(role: str) -> None:
    class Counter(Take):
        def _create(self) -> None:
            self._object("value", role, 0)

    with pytest.raises(
        ValueError, match=rf"Counter 'op': with the role '{re.escape(role)}' every .*: give the object another role"
    ):
        opened(lambda: Counter(1))
