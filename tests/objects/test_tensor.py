"""What a tensor is filled with comes back as it was, and one without dimensions is indexed as numpy indexes it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from checkpoint import CheckpointStore
from objectspace import PersistedObjectSpace, VolatileObjectSpace
from objectspace.objects.tensor import Tensor

INF, NAN = float("inf"), float("nan")

FILLS: list[tuple[str, Any]] = [
    ("float64", INF),
    ("float32", -INF),
    ("float16", NAN),
    (">f8", -0.0),
    ("complex128", complex(INF, 0)),
    ("complex64", complex(-0.0, NAN)),
    ("uint64", 2**64 - 1),
    ("int8", -128),
    ("bool", True),
]


@pytest.mark.parametrize(("dtype", "fill"), FILLS)
def test_a_fill_comes_back_as_it_was(dtype: str, fill: Any) -> None:
    space = PersistedObjectSpace(CheckpointStore(":memory:"))
    tensor = space.create_tensor("t", (5,), dtype, chunks=(2,), fill=fill)
    tensor[0] = 0
    space.checkpoint()
    found = PersistedObjectSpace(space.store).get_tensor("t")
    assert found.dtype == tensor.dtype
    assert found.copy().tobytes() == tensor.copy().tobytes()


@pytest.mark.parametrize("value", [300, -129, 300.0, np.int64(300)])
def test_a_number_that_does_not_fit_is_refused_under_every_numpy(value: Any) -> None:
    space = VolatileObjectSpace()
    with pytest.raises(ValueError, match=r"the fill of a tensor is .*(300|-129)"):
        space.create_tensor("filled", (3,), "int8", fill=value)
    t = space.create_tensor("t", (3,), "int8", fill=7)
    for edit in (lambda: t.__setitem__(0, value), lambda: t.__setitem__(slice(2), [1, value]), lambda: t.fill(value)):
        with pytest.raises(OverflowError, match="out of bounds for int8"):
            edit()
    t[1:] = np.array([-300, 120])  # As numpy casts arrays.
    assert t.copy().tolist() == [7, -44, 120]


@pytest.mark.parametrize(("dtype", "fill"), [("float64", None), ("complex128", [None, 0.0])])
def test_a_fill_that_an_older_version_wrote_as_null_can_be_read(
    dtype: str, fill: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    space = PersistedObjectSpace(CheckpointStore(":memory:"))
    options = Tensor._options
    monkeypatch.setattr(Tensor, "_options", lambda self: options(self) | {"fill": fill})
    space.create_tensor("t", (4,), dtype, chunks=(2,))[:2] = 7
    space.checkpoint()
    assert np.isnan(PersistedObjectSpace(space.store).get("t")[...]).tolist() == [False, False, True, True]


@pytest.mark.parametrize("dtype", ["longdouble", "clongdouble", "datetime64[s]", "U5", "object"])
def test_a_type_without_a_stored_form_is_refused(dtype: str) -> None:
    space = VolatileObjectSpace()
    with pytest.raises(ValueError, match="the dtype of a tensor is"):
        space.create_tensor("t", (3,), dtype)
    assert "t" not in space


@pytest.mark.parametrize("index", [(), ..., None, True, False, (None, ...), (True, None), np.array(True)], ids=repr)
def test_a_tensor_without_dimensions_is_indexed_like_an_array(index: Any) -> None:
    tensor, array = VolatileObjectSpace().create_tensor("t", (), fill=2.0), np.full((), 2.0)
    assert np.shape(tensor[index]) == np.shape(array[index])
    tensor[index] = array[index] = 5
    assert np.asarray(tensor).tobytes() == array.tobytes()
    with pytest.raises(IndexError):
        _ = tensor[0]


@pytest.mark.parametrize(
    ("index", "shape"),
    [(slice(None), (1, 4, 3)), ([0, 2], (1, 1, 2, 3)), ((slice(1, 3), 1), (1, 1)), (0, (1, 1)), (..., (1, 1, 1))],
    ids=str,
)
def test_leading_dimensions_of_one_are_passed_over_in_an_assignment(index: Any, shape: tuple[int, ...]) -> None:
    tensor, array = VolatileObjectSpace().create_tensor("t", (4, 3), chunks=(2, 2)), np.zeros((4, 3))
    value = np.arange(np.prod(shape)).reshape(shape)
    tensor[index] = array[index] = value
    assert np.asarray(tensor).tolist() == array.tolist()
    with pytest.raises(ValueError, match="dimensions"):
        tensor[0] = np.ones((2, 1, 3))


def test_a_tensor_compares_element_by_element() -> None:
    tensor = VolatileObjectSpace().create_tensor("t", (3,))
    tensor[1] = 5
    assert [(tensor == 5).tolist(), (tensor != 5).tolist()] == [[False, True, False], [True, False, True]]
    assert not (tensor != np.asarray(tensor)).any()
    with pytest.raises(ValueError, match="it must be copied"):
        tensor.__array__(copy=False)


def test_a_chunk_is_no_longer_than_the_tensor() -> None:
    space = PersistedObjectSpace(CheckpointStore(":memory:"))
    tensor = space.create_tensor("t", (10, 0, 3), chunks=(2**40, 2**40, 2))
    assert tensor.chunks == (10, 1, 2)
    assert space.create_tensor("narrow", 10, chunks=4).chunks == (4,)
    assert space.create_tensor("wide", (10,), chunks=(2**40,)).chunks == (10,)
    space.checkpoint()
    space.get("wide")[3] = 1
    assert space.checkpoint().slots == 1
    assert space.get_or_create_tensor("wide", (10,), chunks=(2**40,))[...].tolist() == [0, 0, 0, 1, 0, 0, 0, 0, 0, 0]


def test_chunks_that_were_stored_longer_than_the_tensor_can_be_read_and_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    space = PersistedObjectSpace(CheckpointStore(":memory:"))
    configure = Tensor._configure
    monkeypatch.setattr(Tensor, "_configure", lambda self, options: configure(self, options | {"chunks": (4, 3)}))
    space.create_tensor("t", (3, 5), "int16")[...] = np.arange(15).reshape(3, 5)
    space.checkpoint()
    monkeypatch.undo()
    found = PersistedObjectSpace(space.store)
    found.get("t")[2, 4] = 99
    found.checkpoint()
    tensor = PersistedObjectSpace(space.store).get("t")
    assert (tensor.chunks, tensor.copy().ravel().tolist()) == ((4, 3), [*range(14), 99])


@pytest.mark.parametrize(
    ("shape", "dtype", "chunks"), [((2**40,), "i1", (2**40,)), ((2**14, 2**14), "f8", (2**13, 2**13))]
)
def test_chunks_too_large_to_be_read_and_written_whole_are_refused(shape: Any, dtype: str, chunks: Any) -> None:
    space = VolatileObjectSpace()
    with pytest.raises(ValueError, match="bytes: expected at most 268435456"):
        space.create_tensor("t", shape, dtype, chunks=chunks)
    assert (len(space), space.create_tensor("t", shape, dtype).touched()) == (0, 0)


@pytest.mark.parametrize("shape", [(1,) * 65, (0,) * 65, (0, 2**70), (0, 2**62, 4), (0, 2**40, 2**40, 2**40)], ids=str)
def test_a_shape_that_numpy_does_not_take_is_refused(shape: tuple[int, ...]) -> None:
    """Else nothing could be read, and no checkpoint of the space would succeed."""
    space = PersistedObjectSpace(CheckpointStore(":memory:"))
    with pytest.raises(ValueError, match=r"the shape of a tensor is \(.*, which numpy does not take"):
        space.create_tensor("t", shape, "i8")
    assert "t" not in space


def test_a_tensor_without_elements_is_filled_at_once() -> None:
    space = PersistedObjectSpace(CheckpointStore(":memory:"))
    tensor = space.create_tensor("t", (0, 2**50), "i1", chunks=(1, 1))
    tensor.fill(1)
    assert (tensor.shape, tensor.touched(), space.checkpoint().objects["t"].slots) == ((0, 2**50), 0, 0)
