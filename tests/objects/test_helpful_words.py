"""Mistakes that are easily made are answered with what to do instead."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import pytest

from objectspace import CheckpointProtocolError, UnencodableValueError, VolatileObjectSpace
from objectspace.operators import Pipeline, avg
from objectspace.part import SpacePart
from objectspace.relational import SchemaError


def put_a_list_into_a_dictionary() -> None:
    space = VolatileObjectSpace()
    space.create_dictionary("d")["l"] = space.create_list("l")
    space.check_mutations()
    space.get("d")._encode(space.get("l"), "l")


def average_of_text() -> None:
    rows = Pipeline().source("rows", {"id": "int64", "name": "string"}, key=["id"])
    rows.agg(mean=avg("name"))


MISTAKES: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (put_a_list_into_a_dictionary, UnencodableValueError, r"store handle.copy\(\), or make the dictionary with"),
    (lambda: SpacePart(VolatileObjectSpace(), "op/").checkpoint(), CheckpointProtocolError, "whoever has the space"),
    (lambda: SpacePart(VolatileObjectSpace(), "op/").rollback(), CheckpointProtocolError, "whoever has the space"),
    (lambda: Pipeline().run_local({"rows": []}), TypeError, "a list of mappings, one for each epoch"),  # type: ignore[arg-type]
    (average_of_text, SchemaError, "'name' is string: expected decimal, float32, float64, int16"),
]


@pytest.mark.parametrize(("mistake", "kind", "message"), MISTAKES)
def test_a_mistake_is_answered_with_what_to_do(mistake: Callable[[], Any], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        mistake()


def test_a_library_that_is_not_installed_is_named_with_what_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr("objectspace.extras.find_spec", lambda name: None if name == "numpy" else found(name))
    with pytest.raises(ImportError, match=r"takes numpy, .*pip install 'objectspace\[tensor\]'"):
        VolatileObjectSpace().create_tensor("t", (2, 2))
