"""Names of callables: another one where what decides their answers is another, and the same in every process."""

from __future__ import annotations

import operator
import os
import re
import subprocess
import sys
import threading
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date, datetime
from functools import cache, partial, update_wrapper, wraps
from io import StringIO
from types import MappingProxyType, SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from objectspace.errors import ObjectSpaceError
from objectspace.operators import Pipeline, PipelineChangedError, call, col, count
from objectspace.operators.agg_call import call_text
from objectspace.operators.fingerprints import describe

FUNCTIONS = """
import re
from collections import OrderedDict, defaultdict, deque, namedtuple
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType, SimpleNamespace
from objectspace.operators import col
from objectspace.operators.fingerprints import describe

Pair = namedtuple("Pair", "first second")

@dataclass
class Weights:
    values: set

class Tags(set):
    pass

def functions():
    wanted, other = {"JFK", "LGA", "EWR", "BOS", "ORD", "ATL", "DFW"}, object()
    def helper(text, base=frozenset("abc")):
        return text in base and helper(text)
    yield lambda row: row.origin in {"JFK", "LGA", "EWR", "BOS", "ORD", "ATL", "DFW"}
    yield lambda row: [helper(text) for text in wanted if re.match("a", text)]
    yield lambda row: other is row
    yield partial(helper, base=wanted)
    yield {"New York": wanted}.get
    def even(number):
        return number == 0 or odd(number - 1)
    def odd(number):
        return number != 0 and even(number - 1)
    mutual = {("even", even), ("odd", odd)}
    yield lambda row: mutual
    yield {"a": Tags("abcdef")}.get
    held = [defaultdict(set, a=wanted), OrderedDict(a=wanted), MappingProxyType({"a": wanted}), deque([wanted])]
    held += [Pair(wanted, other), Weights(wanted), SimpleNamespace(a=wanted)]
    yield lambda row: row in held

print(*map(describe, functions()), col("origin").is_in({"JFK", "LGA", "EWR", "BOS", "ORD", "ATL", "DFW"}))
"""


def test_a_function_has_one_name_in_every_process(capsys: pytest.CaptureFixture[str]) -> None:
    other = "1" if os.environ.get("PYTHONHASHSEED") == "2" else "2"
    done = subprocess.run(
        [sys.executable, "-c", FUNCTIONS],
        env=os.environ | {"PYTHONHASHSEED": other},
        capture_output=True,
        text=True,
        check=True,
    )
    exec(compile(FUNCTIONS, "<string>", "exec"), {"__name__": "__main__"})
    assert done.stdout == capsys.readouterr().out
    assert done.stdout.count("#") == 8


OUTLINES = """
from collections import ChainMap, UserDict, UserList
from enum import Enum
from functools import partial
from objectspace.operators import Pipeline, call, col, count

CODES = {"JFK", "LGA", "EWR", "BOS", "ORD", "ATL", "DFW"}

class Own:
    def __init__(self):
        self.codes = set(CODES)
    def __repr__(self):
        return f"Own({self.codes})"
    def __call__(self, row):
        return row.k in self.codes

class Listed(list):
    pass

class Kind(Enum):
    LARGE = frozenset(CODES)

def test_of(held):
    return lambda row: row.k in held

def counted(held):
    return lambda k: k in held.codes

def among(row, held):
    return row.k in held

pipeline, codes = Pipeline(), dict.fromkeys(CODES)
stream = pipeline.source("flights", {"id": "int64", "k": "string", "v": "int64"}, key="id")
stream = stream.filter((col("v") > 3) & col("k").is_in(CODES), *map(test_of, [Own(), Listed([CODES]), Kind.LARGE]))
stream = stream.filter(*map(test_of, [codes.keys(), UserDict(a=CODES), UserList([CODES]), ChainMap({"a": CODES})]))
stream = stream.filter(test_of(ValueError(CODES)), partial(among, held=Own()), Own())
stream = stream.select("id", "k", n=call(partial(among, held=Own()), "bool") | call(Own(), "bool", "k"))
print(stream.group_by("k").agg(n=count(filter=counted(Own()))).node.outline)
"""


def test_what_is_noted_of_a_result_is_the_same_in_every_process() -> None:
    command = [sys.executable, "-c", OUTLINES]
    done = [
        subprocess.run(command, env=os.environ | {"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True)
        for seed in ("1", "2")
    ]
    assert len(done[0].stdout) == 17
    assert done[0].stdout == done[1].stdout


def test_a_result_is_known_by_all_that_gives_it_but_its_functions() -> None:
    def outline(test: Any, limit: int = 3, columns: Any = ("id", "v"), source: str = "a", kind: str = "int64") -> str:
        stream = Pipeline().source(source, {"id": "int64", "v": kind, "w": kind}, key="id")
        grouped = stream.filter(test, col("v") > limit).select(*columns[:2], **dict(columns[2:])).group_by("v")
        return grouped.agg(n=count(filter=lambda v: test)).node.outline

    def even(row: Any) -> bool:
        return bool(row.v % 2)

    same = outline(even)
    assert outline(lambda row: row.v == 7) == outline(partial(operator.contains, {7})) == same
    others = [outline(even, 4), outline(even, columns=("id", "v", ("x", "w"))), outline(even, source="b")]
    others += [outline(even, kind="int32"), outline(even, columns=("id", "w", ("v", "w"))), outline(col("v") == 7)]
    assert len({same, *others}) == 7


def test_a_function_counts_with_its_defaults_and_what_it_closes_over() -> None:
    def limited(limit: int) -> Any:
        return lambda row: row.a > limit

    def above(row: Any, *, limit: int = 3) -> bool:
        return bool(row.a > limit)

    names = [describe(limited(3)), describe(limited(4)), describe(above)]
    above.__kwdefaults__ = {"limit": 4}
    names += [describe(above), describe(partial(above, limit=5)), describe(partial(above, limit=6))]
    assert len(set(names)) == len(names)
    assert describe(limited(3)) == names[0]


@dataclass
class Above:
    least: int

    def holds(self, row: Any) -> bool:
        return bool(row.id > self.least)

    def __call__(self, row: Any) -> bool:
        return bool(row.id > self.least)


@dataclass
class Weights:
    values: Any
    seen: int = field(default=0, repr=False)


Pair = namedtuple("Pair", "first second")


class Timed(namedtuple("Timed", "value loaded")):
    def __repr__(self) -> str:
        return f"Timed({self.value})"


def noted(function: Any) -> Any:
    @wraps(function)
    def _noted(*given: Any) -> Any:
        return function(*given)

    return _noted


@dataclass(repr=False)
class Loaded:
    value: int
    loaded: int

    @noted
    def __repr__(self) -> str:
        return f"Loaded({self.value})"


class Strict(dict[Any, Any]):
    """Raises where it is asked for what it has not."""

    def __getattr__(self, name: str) -> Any:
        return self[name]


class Untold:
    def __repr__(self) -> str:
        raise ValueError("no text")


class Decorated:
    """A decorator that keeps something, as a class."""

    def __init__(self, function: Any, factor: int) -> None:
        update_wrapper(self, function)
        self.factor = factor

    def __call__(self, row: Any) -> Any:
        return self.__wrapped__(row) * self.factor  # type: ignore[attr-defined]

    def __repr__(self) -> str:
        return f"Decorated({self.factor})"


class Cached:
    def __init__(self, factor: int) -> None:
        self.factor = factor

    def __repr__(self) -> str:
        return f"Cached({self.factor})"

    @cache  # noqa: B019
    def times(self, row: Any) -> Any:
        return row * self.factor


class Answering(dict[str, int]):
    """Answers to any name."""

    __getattr__ = dict.get


def both(one: Any, other: Any) -> Any:
    return lambda row: one(row) and other(row)


def closing_over(value: Any) -> Callable[[Any], Any]:
    return lambda row: value


def first_in(row: Any) -> Any:
    try:
        try:
            found = row[0]
            found = found[0]
        except IndexError:
            return "inner"
    except TypeError:
        return "outer"
    return found


def first_beside(row: Any) -> Any:
    try:
        try:
            found = row[0]
        except IndexError:
            return "inner"
        found = found[0]
    except TypeError:
        return "outer"
    return found


first_beside.__qualname__ = first_in.__qualname__

WIDE, OTHER = np.arange(5000), np.arange(5000)
OTHER[2500] = 0
FAR = pa.array([10**15, 10**15 + 1], pa.timestamp("s"))
"""Times that Python has not."""
CARRIERS = "|".join(f"carrier {number}" for number in range(40))
ITSELF: Any = Pair([], 1)
ITSELF.first.append(ITSELF)


@pytest.mark.parametrize(
    ("one", "another"),
    [
        (Above(5).holds, Above(6).holds),
        (Above(5), Above(6)),
        ({"UA": "United"}.get, {"UA": "United Airlines"}.get),
        ({"UA"}.__contains__, {"B6"}.__contains__),
        (re.compile("a").match, re.compile("b").match),
        (operator.itemgetter(0), operator.itemgetter(1)),
        (operator.attrgetter("a"), operator.attrgetter("b")),
        (operator.methodcaller("lower"), operator.methodcaller("title")),
        (operator.methodcaller("split", sep="a"), operator.methodcaller("split", sep="b")),
        (cache(closing_over(1)), cache(closing_over(2))),
        (partial({"UA": 1}.get, "UA"), partial({"UA": 2}.get, "UA")),
        (partial(int, base=2).__call__, partial(int, base=3).__call__),
        (Decorated(len, 1), Decorated(len, 100)),
        (Decorated(closing_over(1), 1), Decorated(closing_over(2), 1)),
        (Cached(1).times, Cached(2).times),
        (both(len, both(len, closing_over(1))), both(len, both(len, closing_over(2)))),
        (both(closing_over(1), closing_over(2)), both(closing_over(2), closing_over(1))),
        (Answering(a=1).get, Answering(a=2).get),
        (Strict(a=1).get, Strict(a=2).get),
        (closing_over(Loaded(1, 1)), closing_over(Loaded(2, 1))),
        (closing_over(FAR[:1]), closing_over(FAR)),
        (lambda row: row, lambda *row: row),
        (lambda row: row, lambda **row: row),
        (first_in, first_beside),
    ],
)
def test_a_callable_is_known_by_all_that_decides_what_it_does(one: Any, another: Any) -> None:
    assert describe(one) == describe(one) != describe(another)


@pytest.mark.parametrize(
    ("one", "another"),
    [
        ({"UA": 1}.get, {"UA": 2}.get),
        (WIDE, OTHER),
        (Weights(WIDE), Weights(OTHER)),
        (Pair(WIDE, 1), Pair(OTHER, 1)),
        (SimpleNamespace(values=WIDE), SimpleNamespace(values=OTHER)),
        (OrderedDict(a=WIDE), OrderedDict(a=OTHER)),
        (MappingProxyType({"a": WIDE}), MappingProxyType({"a": OTHER})),
        (deque([WIDE]), deque([OTHER])),
        (deque([1], maxlen=1), deque([1], maxlen=2)),
        (defaultdict(list), defaultdict(set)),
        (Counter("a"), Counter("b")),
        (np.arange(3), np.arange(3, dtype="uint8")),
        (pd.Series({"UA": "United"}), pd.Series({"B6": "United"})),
        (pd.DataFrame({"a": [1, 2]}, index=[1, 1]), pd.DataFrame({"a": [3, 2]}, index=[1, 1])),
        (re.compile(CARRIERS + "|UA"), re.compile(CARRIERS + "|B6")),
        (re.compile("a"), re.compile("a", re.IGNORECASE)),
        (re.compile("lies at 0x10"), re.compile("lies at 0x20")),
        (date.fromisoformat, datetime.fromisoformat),
        (pd.DataFrame({"a": [1]}), pd.DataFrame({"a": [1]}, dtype="int8")),
        (pd.Series({"columns": 1}), pd.Series({"columns": 2})),
        (memoryview(b"ab"), memoryview(b"ac")),
        ("lies at 0x10", "lies at 0x20"),
        (ITSELF, Pair([], 1)),
    ],
)
def test_what_a_function_closes_over_counts_as_a_whole(one: Any, another: Any) -> None:
    assert describe(closing_over(one)) == describe(closing_over(one)) != describe(closing_over(another))


@pytest.mark.parametrize(
    ("one", "another"),
    [
        (Weights(1, seen=2), Weights(1, seen=3)),
        (Timed(1, loaded=2), Timed(1, loaded=3)),
        (Loaded(1, loaded=2), Loaded(1, loaded=3)),
        (Counter("aab"), Counter("baa")),
        (threading.Lock().acquire, threading.Lock().acquire),
        (StringIO("one").write, StringIO("other").write),
    ],
)
def test_what_a_text_of_its_own_does_not_show_does_not_count(one: Any, another: Any) -> None:
    assert describe(closing_over(one)) == describe(closing_over(another))


def test_functions_that_call_each_other_are_described_once() -> None:
    calls: list[Any] = []
    for number in range(30):
        calls.append(cache(closing_over((number, calls))))
    assert len(describe(closing_over(calls))) < 100


def test_what_has_no_text_is_refused_in_words() -> None:
    with pytest.raises(ObjectSpaceError, match=r"closing_over\.<locals>\.<lambda>: .*ValueError: no text"):
        describe(closing_over(Untold()))


def test_what_is_nested_too_deeply_is_refused_in_words() -> None:
    nested: list[Any] = []
    for _ in range(10_000):
        nested = [nested]
    with pytest.raises(ObjectSpaceError, match="it is nested too deeply"):
        describe(closing_over(nested))


def test_a_callable_that_carries_nothing_has_its_name_alone() -> None:
    assert [describe(one) for one in (len, int, Above, str.upper, np.sqrt)] == [
        "builtins.len",
        "builtins.int",
        f"{__name__}.Above",
        "builtins.str.upper",
        "numpy.sqrt",
    ]


def test_a_ufunc_has_its_own_name_under_every_numpy() -> None:
    made = [np.sqrt, np.negative, np.frompyfunc(abs, 1, 1), np.frompyfunc(lambda one: one, 1, 1)]
    names = ["numpy.sqrt", "numpy.negative", "numpy.abs (vectorized)", "numpy.lambda (vectorized)"]
    assert [describe(one) for one in made] == names


def test_a_filter_is_known_by_all_values_that_it_names_whatever_their_order_in_a_set() -> None:
    one, another = {0, 8}, {8, 0}
    assert list(one) != list(another)
    assert call_text(count(filter=("v", "in", one))) == call_text(count(filter=("v", "in", another)))
    assert call_text(count(filter=[("v", "in", one)])) == call_text(count(filter=[("v", "in", another)]))
    assert call_text(count(filter=("v", "in", {0, 9}))) != call_text(count(filter=("v", "in", one)))
    many, changed = np.arange(2000), np.arange(2000)
    changed[1000] = -1
    assert repr(many) == repr(changed)
    assert call_text(count(filter=("v", "in", many))) != call_text(count(filter=("v", "in", changed)))
    assert call_text(count(filter=("v", ">", 5))) == "count(where ('v', '>', 5))"


def test_another_lookup_is_another_pipeline() -> None:
    def named(names: dict[str, str]) -> Pipeline:
        pipeline = Pipeline()
        flights = pipeline.source("flights", {"id": "int64", "carrier": "string"}, key=["id"])
        flights.select("id", name=call(names.get, "string", "carrier")).group_by("name").agg(n=count()).materialize(
            "by"
        )
        return pipeline

    run = named({"UA": "United"}).run_local([{"flights": [(1, "UA")]}])
    assert run.rows("by") == [("United", 1)]
    with pytest.raises(PipelineChangedError, match=r"dict\.get#"):
        named({"UA": "United Airlines"}).run_local([], run.space)
