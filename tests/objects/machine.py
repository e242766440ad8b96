"""The protocol of a space as a state machine: every way in which a checkpoint can go, against plain containers.

``models`` says what each object holds, by name; ``committed`` what the store holds. A machine for one kind of object
adds the rules of that kind, each applied to the object and to its model alike.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any, ClassVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from checkpoint import CheckpointError, CheckpointKind, CheckpointStore
from objectspace import PersistedObjectSpace
from objectspace.objects import limits
from objectspace.objects.variants import is_dead
from tests.objects.samples import change_in_place, shape

kinds = st.sampled_from(CheckpointKind)

ENDINGS = ["succeeds", "is given back", "is refused", "fails", "succeeds unheard"]
"""What may become of a commit."""


def rows(run: Any) -> list[Any]:
    run.sort()
    return [run.index, run.metadata, run.items]


def stored_rows(store: CheckpointStore, number: int) -> list[list[tuple[Any, ...]]]:
    """Return what lies in the tables under the number of one checkpoint."""
    tables = {"state_index": "object", "state_metadata": "object, key", "stored_item": "object, slot"}
    query = "SELECT * FROM {} WHERE checkpoint = ? ORDER BY {}"
    connection = store.database.conn
    return [
        [row[1:] for row in connection.execute(query.format(table, order), (number,))]
        for table, order in tables.items()
    ]


def outcome(target: Any, method: str, args: tuple[Any, ...]) -> str:
    """Return what a call gives: the shape of its result, or the kind of its error."""
    try:
        result = getattr(target, method)(*args)
    except (LookupError, ValueError, TypeError) as error:
        return next(kind.__name__ for kind in (KeyError, IndexError, ValueError, TypeError) if isinstance(error, kind))
    return "itself" if result is target else shape(result)


class SpaceMachine(RuleBasedStateMachine):
    """The rules of the protocol; subclasses say how objects are made, changed and read."""

    @initialize(
        whole=st.sampled_from([0, 3, 1024]),
        cache=st.sampled_from([1, 8, 1000]),
        few=st.sampled_from([2, 32]),
        promote=st.sampled_from([0, 8]),
    )
    def begin(self, whole: int, cache: int, few: int, promote: int) -> None:
        self.patch = pytest.MonkeyPatch()
        small = {"WHOLE_SLOTS": whole, "DENSE_LENGTH": whole, "PROMOTE_SHARE": promote, "EXPECT_SHARE": promote}
        small |= dict.fromkeys(("OPEN_SHARE", "CLEAR_ROWS", "QUEUE_SLOTS", "STACK_SLOTS"), few)
        small |= dict.fromkeys(("FETCH_SLOTS", "FETCH_SHARE", "COLUMN_SLOTS", "PASSED_SLOTS"), few)
        for name, value in small.items():
            self.patch.setattr(limits, name, value)
        self.cache = cache
        self.store = CheckpointStore(":memory:")
        self.models: dict[str, Any] = {}
        self.committed: dict[str, Any] = {}
        self.flight: tuple[Any, dict[str, Any]] | None = None
        self.space = self.new_space()
        self.prepare()

    def new_space(self) -> PersistedObjectSpace:
        return PersistedObjectSpace(self.store, cache_slots=self.cache)

    def prepare(self) -> None:
        """Make what the rules need; called in the beginning and after whatever may have taken it away."""

    def expect(self, name: str, model: Any) -> None:
        """Assert that an object holds what its model holds."""
        raise AssertionError(f"{type(self).__name__} must say how to compare")

    def expect_all(self) -> None:
        assert set(self.space) == self.models.keys()
        for name, model in self.models.items():
            self.expect(name, model)

    def has_flight(self) -> bool:
        return self.flight is not None

    def is_uncommitted(self) -> bool:
        return self.flight is not None and self.flight[0].state == "open"

    def is_committed(self) -> bool:
        return self.flight is not None and self.flight[0].state == "committed"

    def is_free(self) -> bool:
        return not self.is_uncommitted()

    @rule()
    def look(self) -> None:
        self.expect_all()

    @precondition(is_free)
    @rule(kind=kinds)
    def checkpoint(self, kind: CheckpointKind) -> None:
        self.flight = None
        self.space.checkpoint(kind=kind)
        self.committed = deepcopy(self.models)
        assert self.space.check_mutations() == []
        assert self.space.checkpoint().slots == 0

    @precondition(is_free)
    @rule(kind=kinds)
    def save(self, kind: CheckpointKind) -> None:
        writer = self.store.writer(kind)
        self.space.save(writer)
        self.flight = (writer, deepcopy(self.models))

    @precondition(is_free)
    @rule(kind=kinds, ending=st.sampled_from(ENDINGS))
    def save_and_end(self, kind: CheckpointKind, ending: str) -> None:
        self.save(kind)
        self.end_flight(ending)

    @precondition(has_flight)
    @rule(ending=st.sampled_from(ENDINGS), look=st.booleans())
    def end_flight(self, ending: str, look: bool = False) -> None:
        """Commit what is saved, in one of the ways in which that can end; or else acknowledge it, or forget to.

        Who looks before and after sees the same, whatever the objects have to read again.
        """
        if look:
            self.expect_all()
        self.end(ending)
        if look:
            self.expect_all()

    def end(self, ending: str) -> None:
        writer, models = self.flight
        if self.is_committed():
            self.flight = None
            if ending != "fails":
                self.space.on_saved()
        elif ending == "succeeds":
            writer.commit()
            self.committed = models
        else:
            self.flight = None
            self.end_badly(writer, ending)
            if ending == "succeeds unheard":
                self.committed = models

    def end_badly(self, writer: Any, ending: str) -> None:
        if ending == "is given back":
            writer.rollback()
            return
        error, append = CheckpointError if ending == "is refused" else OSError, self.store.append

        def _append(*args: Any) -> None:
            if ending == "succeeds unheard":
                append(*args)
            raise error("the line is cut")

        with pytest.MonkeyPatch.context() as patch, pytest.raises(error):
            patch.setattr(self.store, "append", _append)
            writer.commit()

    @rule(is_crash=st.booleans())
    def lose_edits(self, is_crash: bool) -> None:
        """Go back to what is committed: in a new space, or in this one."""
        if is_crash:
            self.recover()
        else:
            self.space.rollback()
            self.flight = None
            self.models = deepcopy(self.committed)
            self.prepare()

    def recover(self) -> None:
        self.flight = None
        self.models = deepcopy(self.committed)
        self.space = self.new_space()
        self.expect_all()
        self.space = self.new_space()
        self.prepare()

    @rule(gently=st.booleans())
    def evict(self, gently: bool) -> None:
        self.space._evict(gently=gently)

    @precondition(is_free)
    @rule()
    def replay_is_full(self) -> None:
        """A full checkpoint holds byte for byte what the differential ones before it add up to."""
        self.checkpoint(CheckpointKind.DIFFERENTIAL)
        image = rows(self.store.reader().image())
        receipt = self.space.checkpoint(kind=CheckpointKind.FULL)
        assert rows(self.store.reader().image()) == image
        assert stored_rows(self.store, receipt.number) == image

    @invariant()
    def holds_together(self) -> None:
        if hasattr(self, "space"):
            self.space._check()

    def teardown(self) -> None:
        if hasattr(self, "space"):
            try:
                self.expect_all()
                if not self.is_uncommitted():
                    self.checkpoint(CheckpointKind.DIFFERENTIAL)
                self.recover()
            finally:
                self.patch.undo()
                self.store.close()


class ObjectMachine(SpaceMachine):
    """One object under one name, beside one model."""

    kind: ClassVar[str]

    @property
    def model(self) -> Any:
        return self.models[self.name]

    def new_model(self) -> Any:
        """Return the model of a new object."""
        raise AssertionError(f"{type(self).__name__} must say what a new object holds")

    def create(self) -> Any:
        return getattr(self.space, f"create_{self.kind}")(self.name)

    def contents(self, target: Any) -> Any:
        """Return the contents of an object or of a model, with its order."""
        return list(target)

    def prepare(self) -> None:
        self.name = next(iter(self.models), "foo")
        known = getattr(self, "handle", None)
        if self.name in self.models:
            self.handle = self.space.get(self.name)
            assert known is None or is_dead(known) or known._home is not self.space or known is self.handle
        else:
            self.models[self.name] = self.new_model()
            self.handle = self.create()

    def expect(self, name: str, model: Any) -> None:
        handle = self.space.get(name)
        assert shape(self.contents(handle)) == shape(self.contents(model))
        assert len(handle) == len(model)

    def both(self, method: str, *args: Any) -> None:
        """Call a method of the object and of the model, which must do the same."""
        expected = outcome(self.model, method, deepcopy(args))
        assert outcome(self.handle, method, deepcopy(args)) == expected

    def change_and_assign(self, key: Any) -> None:
        """Change the value of a slot in place, then assign it again: that is an edit."""
        for target in (self.handle, self.model):
            value = target[key]
            change_in_place(value)
            target[key] = value

    @rule(new=st.sampled_from(["foo", "bar"]))
    def rename_or_recreate(self, new: str) -> None:
        if new == self.name:
            self.recreate()
        else:
            self.space.rename(self.name, new)
            self.models = {new: self.models[self.name]}
            self.name = new
        assert self.space.get(self.name) is self.handle

    def recreate(self) -> None:
        self.space.delete(self.name)
        del self.models[self.name]
        assert is_dead(self.handle)
        self.prepare()
