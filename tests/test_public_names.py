"""Every public name has a docstring and type hints, and every mutation says what it dirties."""

from __future__ import annotations

import inspect

import pytest

import checkpoint
import objectspace
from objectspace.objects import KINDS, ObjectDictionary

PUBLIC = [getattr(module, name) for module in (checkpoint, objectspace) for name in module.__all__]

MUTATIONS = frozenset(
    """
    append insert remove clear sort reverse enqueue dequeue push pop add discard popitem fill add_first add_last
    add_before add_after move_before move_after remove_node remove_first remove_last
    """.split()  # noqa: SIM905
)


def methods_of(cls: type) -> list[tuple[str, object]]:
    return [
        (name, found) for name, found in vars(cls).items() if not name.startswith("_") and inspect.isfunction(found)
    ]


@pytest.mark.parametrize("found", PUBLIC, ids=lambda found: found.__name__)
def test_a_public_name_says_what_it_is(found: object) -> None:
    assert inspect.getdoc(found)
    if inspect.isclass(found) and not issubclass(found, Exception):
        for name, method in methods_of(found):
            assert inspect.getdoc(method), f"{found.__name__}.{name} has no docstring"
            assert "return" in inspect.get_annotations(method), f"{found.__name__}.{name} does not say what it returns"


@pytest.mark.parametrize("cls", [*KINDS.values(), ObjectDictionary], ids=lambda cls: cls.__name__)
def test_a_mutation_says_what_it_costs(cls: type) -> None:
    assert inspect.getdoc(cls)
    for name, method in methods_of(cls):
        if name in MUTATIONS:
            text = inspect.getdoc(method) or ""
            assert "Time:" in text, f"{cls.__name__}.{name} does not say its time"
            assert "Dirties:" in text, f"{cls.__name__}.{name} does not say what it dirties"
