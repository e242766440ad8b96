"""All kinds of objects: how one is created, and how a value gets into it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

PUTS: dict[str, Callable[[Any, Any], Any]] = {
    "value": lambda t, v: setattr(t, "value", v),
    "array": lambda t, v: t.__setitem__(0, v),
    "list": lambda t, v: t.append(v),
    "queue": lambda t, v: t.enqueue(v),
    "stack": lambda t, v: t.push(v),
    "linked_list": lambda t, v: t.add_last(v),
    "set": lambda t, v: t.add(v),
    "sorted_set": lambda t, v: t.add(v),
    "dictionary": lambda t, v: t.__setitem__(1, v),
    "sorted_dictionary": lambda t, v: t.__setitem__(1, v),
    "sparse_array": lambda t, v: t.__setitem__(1, v),
    "tensor": lambda t, v: t.__setitem__(0, v),
}
"""How a value gets into an object of each kind."""

every_kind = pytest.mark.parametrize("kind", sorted(PUTS))


def create(space: Any, kind: str, name: str) -> Any:
    return getattr(space, f"create_{kind}")(name, *({"array": (3, 0), "tensor": (3,)}.get(kind, ())))
