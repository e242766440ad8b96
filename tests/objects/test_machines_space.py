"""The state machine of a whole space: objects of every kind that come, go and change names between checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from objectspace.objects.variants import is_dead
from tests.objects.machine import SpaceMachine
from tests.objects.samples import shape

names = st.sampled_from("abcd")

Change = Callable[[Any, int], None]

CHANGES: dict[str, tuple[Change, Callable[[Any], Any]]] = {
    "value": (lambda t, n: setattr(t, "value", n), lambda t: t.value),
    "list": (lambda t, n: t.insert(n % 3, n), list),
    "queue": (lambda t, n: t.enqueue(n), list),
    "stack": (lambda t, n: t.push(n), list),
    "linked_list": (lambda t, n: t.add_first(n) and None, list),
    "set": (lambda t, n: t.add(n), list),
    "sorted_set": (lambda t, n: t.add(n), list),
    "dictionary": (lambda t, n: t.__setitem__(n, n), lambda t: list(t.items())),
    "sorted_dictionary": (lambda t, n: t.__setitem__(n, n), lambda t: list(t.items())),
    "sparse_array": (lambda t, n: t.__setitem__(n, n), lambda t: list(t.assigned())),
}
"""How each kind is changed by a number, and what it holds. The model is an object of a space without a store."""


class WholeSpaceMachine(SpaceMachine):
    """The model of an object is (its kind, the changes since it was empty)."""

    def prepare(self) -> None:
        self.handles = {name: self.space.get(name) for name in self.models}

    def expect(self, name: str, model: Any) -> None:
        kind, changes = model
        twin = getattr(self.volatile(), f"create_{kind}")(name)
        change, contents = CHANGES[kind]
        for number in changes:
            change(twin, number)
        assert shape(contents(self.space.get(name))) == shape(contents(twin))

    def volatile(self) -> Any:
        from objectspace import VolatileObjectSpace

        return VolatileObjectSpace()

    def is_filled(self) -> bool:
        return bool(self.models)

    @rule(name=names, kind=st.sampled_from(sorted(CHANGES)))
    def create(self, name: str, kind: str) -> None:
        if name in self.models:
            self.space.delete(name)
            assert is_dead(self.handles[name])
        self.handles[name] = getattr(self.space, f"create_{kind}")(name)
        self.models[name] = (kind, [])

    @precondition(is_filled)
    @rule(data=st.data(), numbers=st.lists(st.integers(0, 99), min_size=1, max_size=50))
    def change(self, data: Any, numbers: list[int]) -> None:
        name = data.draw(st.sampled_from(sorted(self.models)))
        kind, changes = self.models[name]
        for number in numbers:
            CHANGES[kind][0](self.handles[name], number)
        changes += numbers

    @precondition(is_filled)
    @rule(data=st.data())
    def clear(self, data: Any) -> None:
        name = data.draw(st.sampled_from(sorted(self.models)))
        kind, changes = self.models[name]
        if kind != "value":
            self.handles[name].clear()
            changes.clear()

    @precondition(is_filled)
    @rule(data=st.data())
    def delete(self, data: Any) -> None:
        name = data.draw(st.sampled_from(sorted(self.models)))
        self.space.delete(name)
        del self.models[name]
        assert is_dead(self.handles.pop(name))

    @rule(one=names, other=names)
    def swap_names(self, one: str, other: str) -> None:
        if one in self.models and other in self.models and one != other:
            for old, new in ((one, "between"), (other, one), ("between", other)):
                self.space.rename(old, new)
            self.models[one], self.models[other] = self.models[other], self.models[one]
            self.handles[one], self.handles[other] = self.handles[other], self.handles[one]
        assert all(self.space.get(name) is handle for name, handle in self.handles.items())

    @rule()
    def let_go(self) -> None:
        """Let the space drop handles that nobody else knows."""
        self.handles = {}
        self.space._evict(gently=False)
        self.prepare()

    @rule()
    def listed(self) -> None:
        assert list(self.space) == sorted(self.models, key=self.space._ids.__getitem__)


TestWholeSpace = WholeSpaceMachine.TestCase
