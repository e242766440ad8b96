"""An index means to a tensor what it means to numpy, and costs what it selects, however long the dimensions are."""

from __future__ import annotations

from itertools import product
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

from checkpoint import CheckpointStore
from objectspace import PersistedObjectSpace, VolatileObjectSpace
from objectspace.objects import indexing
from objectspace.objects.tensor import Tensor

LONG = 2**61


def filled(shape: tuple[int, ...], chunks: tuple[int, ...]) -> tuple[Any, np.ndarray[Any, Any]]:
    """Return a tensor and an array with the same elements, no two of them equal."""
    tensor = VolatileObjectSpace().create_tensor("t", shape, "int64", chunks=chunks)
    array = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    tensor[...] = array
    return tensor, array


@st.composite
def indexes(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...], Any]:
    """Return a shape, chunks and an index: integers, slices, new axes, arrays of integers, masks and mixtures."""
    shape = draw(st_numpy.array_shapes(min_dims=1, max_dims=3, max_side=7))
    chunks = tuple(draw(st.integers(1, length + 1)) for length in shape)
    basic = st_numpy.basic_indices(shape, allow_newaxis=True, allow_ellipsis=True)
    arrays = st_numpy.integer_array_indices(shape)
    masks = st_numpy.arrays(bool, st.sampled_from([shape, shape[:1]]))
    return shape, chunks, draw(basic | arrays | masks | mixtures(shape))


def mixtures(shape: tuple[int, ...]) -> st.SearchStrategy[tuple[Any, ...]]:
    """Return indexes with an entry of any sort for each of the first dimensions; new axes and ellipses part them."""
    entries = [
        st.slices(length)
        | st.integers(-length, length - 1)
        | st.integers(-length, length - 1).map(np.int64)
        | st.lists(st.integers(-length, length - 1), min_size=2, max_size=2)
        | st_numpy.arrays(bool, length)
        for length in shape
    ]
    between = st.sampled_from([(), (), (None,), (...,)])
    return st.integers(0, len(shape)).flatmap(
        lambda count: st.tuples(
            *(part for entry in entries[:count] for part in (between, entry.map(_alone))), between
        ).map(_joined)
    )


def _alone(entry: Any) -> tuple[Any]:
    return (entry,)


def _joined(parts: tuple[tuple[Any, ...], ...]) -> tuple[Any, ...]:
    return tuple(entry for part in parts for entry in part)


@given(indexes())
def test_reading_gives_what_numpy_gives(given: Any) -> None:
    shape, chunks, index = given
    tensor, array = filled(shape, chunks)
    try:
        expected = array[index]
    except IndexError:
        with pytest.raises(IndexError):
            _ = tensor[index]
        return
    found = tensor[index]
    assert (np.shape(found), found.dtype) == (np.shape(expected), expected.dtype)
    assert np.array_equal(found, expected)


@given(indexes(), st.booleans())
def test_assigning_does_what_numpy_does(given: Any, is_one: bool) -> None:
    shape, chunks, index = given
    tensor, array = filled(shape, chunks)
    try:
        value: Any = -1 if is_one else -1 - np.arange(array[index].size).reshape(np.shape(array[index]))
        array[index] = value
    except IndexError:
        with pytest.raises(IndexError):
            tensor[index] = -1
        return
    tensor[index] = value
    assert np.array_equal(tensor.copy(), array)


PARTS = [slice(None), 1, [0, 1, 1], np.array([True, False, True]), None, ...]
"""Entries of an index; those that select fit a dimension of three."""


@pytest.mark.parametrize("first", PARTS, ids=repr)
def test_what_parts_the_arrays_of_an_index_is_what_parts_them_to_numpy(first: Any) -> None:
    for index in product([first], PARTS, PARTS, PARTS):
        tensor, array = filled((3, 3, 3), (2, 3, 1))
        try:
            expected = array[index]
        except IndexError:
            with pytest.raises(IndexError):
                _ = tensor[index]
            continue
        assert np.array_equal(tensor[index], expected), index
        tensor[index] = array[index] = -1 - np.arange(expected.size).reshape(expected.shape)
        assert np.array_equal(tensor.copy(), array), index


@pytest.mark.parametrize(
    ("index", "value"),
    [
        (LONG, [3, 3]),
        ((slice(LONG, LONG + 3), 1), [4, 5, 6]),
        ((slice(None, -4, -1), slice(1)), [[1], [2], [3]]),
        (([5, -1, LONG // 3], [0, 1, 0]), [7, 8, 9]),
    ],
    ids=str,
)
def test_a_long_dimension_costs_what_is_selected(index: Any, value: Any) -> None:
    tensor = VolatileObjectSpace().create_tensor("t", (LONG + 5, 2))
    tensor[index] = value
    assert np.array_equal(tensor[index], value)
    assert 1 <= tensor.touched() <= 3


@pytest.mark.parametrize(
    "index", [slice(0, 0), (slice(0, 0), slice(None)), (slice(None), slice(5, 5)), (3, slice(0, 0))]
)
def test_an_empty_selection_costs_nothing_however_long_the_other_dimensions_are(index: Any) -> None:
    shape = (2**31, 2**31)
    tensor = VolatileObjectSpace().create_tensor("t", shape, "int64")
    assert tensor[index].shape == np.broadcast_to(np.False_, shape)[index].shape
    tensor[index] = 1
    assert not tensor[0, :10].any()


@pytest.mark.parametrize("dtype", ["int8", "uint8", "uint64"])
def test_indexes_may_be_integers_of_any_size(dtype: str) -> None:
    tensor, array = filled((1000, 3), (7, 2))
    places = np.array([3, 100, 3], dtype)
    assert np.array_equal(tensor[places, 1], array[places, 1])
    tensor[places] = array[places] = [[1, 2, 3]]
    assert np.array_equal(tensor.copy(), array)
    assert np.array_equal(tensor[places[0], [0, 2]], array[places[0], [0, 2]])
    assert tensor[[], 1].shape == array[[], 1].shape


def test_more_elements_than_integers_of_64_bits_can_count_are_refused() -> None:
    with pytest.raises(ValueError, match="at most 9223372036854775807 elements"):
        VolatileObjectSpace().create_tensor("t", (LONG, 4, 1))


@pytest.mark.parametrize(
    "index", [..., slice(None), slice(None, None, -2), (slice(LONG), [0, 1]), (..., [True, False])]
)
def test_what_has_no_room_in_memory_is_refused_before_its_chunks_are_looked_for(
    index: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for step in ("_parts", "_coordinates"):
        monkeypatch.setattr(indexing, step, Mock(side_effect=AssertionError("the chunks are looked for")))
    tensor = VolatileObjectSpace().create_tensor("t", (LONG, 2), "int8")
    with pytest.raises(MemoryError, match="Unable to allocate"):
        _ = tensor[index]


def test_chunks_are_read_together(monkeypatch: pytest.MonkeyPatch) -> None:
    space = PersistedObjectSpace(CheckpointStore(":memory:"))
    space.create_tensor("t", (3000, 4), "int64", chunks=(1, 4))[...] = np.arange(12_000).reshape(3000, 4)
    space.checkpoint()
    found = PersistedObjectSpace(space.store)
    asked: list[int] = []
    items_at = type(found.reader()).items_at

    def _items_at(self: Any, object_id: int, slots: Any) -> Any:
        asked.append(len(slots))
        return items_at(self, object_id, slots)

    monkeypatch.setattr(type(found.reader()), "items_at", _items_at)
    tensor: Tensor = found.get_tensor("t")
    assert tensor[100:900, 2].tolist() == list(range(402, 3600, 4))
    assert sum(asked) <= 800
    assert len(asked) <= 4


@pytest.mark.parametrize("index", [..., (), (..., None), None])
@pytest.mark.parametrize("value", [5, np.array(5), np.array([5]), np.array([[5]]), np.array([5, 6])])
def test_a_tensor_without_dimensions_is_one_element(index: Any, value: Any) -> None:
    tensor, array = filled((), ())
    try:
        array[index] = value
    except (ValueError, TypeError):
        with pytest.raises((ValueError, TypeError)):
            tensor[index] = value
    else:
        tensor[index] = value
    assert np.array_equal(tensor, array)
    assert type(tensor[index]) is type(array[index])
    assert tensor[index].shape == array[index].shape
