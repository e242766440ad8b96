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
