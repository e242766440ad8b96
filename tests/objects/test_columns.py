"""Texts of whole columns are those that each value has by itself."""

from __future__ import annotations

from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from objectspace.codec import encode
from objectspace.objects.columns import texts_of

_TEXTS = st.text() | st.sampled_from(["},{", '"},{"', "\n", "}\n{", "\ud800", "$value"])
_FLAT = st.dictionaries(_TEXTS, _TEXTS | st.integers() | st.booleans() | st.none() | st.floats(), max_size=3)


@given(st.lists(_FLAT, min_size=1) | st.lists(_TEXTS, min_size=1) | st.lists(st.integers(), min_size=1))
@example([{}, {}, {}])
@example([{"a": "},{"}, {}])
@example([{"a": 2**63 - 1}, {"a": -(2**63)}])
def test_columns_have_the_texts_of_their_values(values: list[Any]) -> None:
    kinds = set(map(type, values))
    found = texts_of(kinds.pop(), values)
    if found is not None:
        assert found == list(map(encode, values))


def test_plain_values_are_dealt_with_together() -> None:
    for values in ([1, -2], ["a", "b"], [{"a": 1}, {"a": None, "b": "x"}], [{}, {}]):
        assert texts_of(type(values[0]), values) is not None
    for unusual in ([2**63], [{"$a": 1}], [{"a": 2**63}], [{1: 2}], [{"a": 1.5}], [{"a": "\ud800"}]):
        assert texts_of(type(unusual[0]), unusual) is None
