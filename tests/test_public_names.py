"""Every public name has a docstring and type hints, and every mutation says what it costs and what it dirties."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest

import checkpoint
import objectspace
from objectspace import kvt, operators, relational, spark
from objectspace.objects import KINDS, ObjectDictionary
from objectspace.objects.raw_dictionary import RawSortedDictionary
from objectspace.objects.sorted_set import SortedSetView
from objectspace.operators import events
from tests import public_names

PUBLIC = [getattr(module, name) for module in (checkpoint, objectspace) for name in module.__all__]

CHANGING = {
    f"{found.__module__}.{found.__name__}": found
    for found in (
        *(getattr(module, name) for module in (kvt, relational, operators, events, spark) for name in module.__all__),
        *(*PUBLIC, *KINDS.values(), ObjectDictionary, RawSortedDictionary, SortedSetView),
    )
    if inspect.isclass(found) or inspect.isfunction(found)
}
"""What users call, and the classes whose objects they are given, by their full names."""

MUTATIONS = frozenset(
    """
    append insert remove clear sort reverse enqueue dequeue push pop add discard popitem fill add_first add_last
    add_before add_after move_before move_after remove_node remove_first remove_last
    extend update setdefault difference_update intersection_update symmetric_difference_update
    discard_many put_removed insert_row insert_rows write_rows update_row delete_row write_chunk vacuum
    commit update_watermark update_vnodes
    put put_if_absent put_all replace replace_all remove_all apply
    create_scope delete_scope create_key_value_table update_key_value_table seal_key_value_table delete_key_value_table
    rename delete compact prune truncate_after apply_changes configure
    """.split()  # noqa: SIM905
)

PLANNING = (operators.Stream,)
"""The classes whose methods only say what is to be done."""


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


def documented(found: object) -> Iterator[tuple[str, str]]:
    """Yield each function with its docstring: of a class its methods, and those of the classes of ours before it."""
    if not inspect.isclass(found):
        yield getattr(found, "__name__", ""), inspect.getdoc(found) or ""
        return
    for base in found.__mro__:
        if base.__module__.startswith(("checkpoint", "objectspace")):
            for name, method in vars(base).items():
                if inspect.isfunction(method):
                    yield name, inspect.getdoc(method) or ""


@pytest.mark.parametrize("name", sorted(CHANGING))
def test_a_mutation_says_what_it_costs(name: str) -> None:
    texts = list(documented(CHANGING[name]))
    # What has no method that dirties anything keeps all in memory: its mutations have a time alone.
    is_persisted = any("Dirties:" in text for _, text in texts)
    for method, text in texts:
        is_mutation = method in MUTATIONS and inspect.isclass(CHANGING[name]) and CHANGING[name] not in PLANNING
        assert "Time:" in text or not (is_mutation or "Dirties:" in text), f"{name}: {method} does not say its time"
        assert "Dirties:" in text or not (is_mutation and is_persisted), (
            f"{name}: {method} does not say what it dirties"
        )


def test_the_page_of_names_is_what_the_docstrings_say() -> None:
    assert Path("docs/names.md").read_text() == public_names.page(), "run python -m tests.public_names > docs/names.md"
