"""Fields of dataclasses that cannot be read, and that come and go while instances are stored."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, tzinfo
from functools import partial
from typing import Any, ClassVar

import pytest

from checkpoint import CheckpointStore, UnknownCheckpointError
from objectspace import (
    CheckpointProtocolError,
    ObjectSpaceError,
    PersistedObjectSpace,
    UnencodableValueError,
    codec,
    register_dataclass,
)
from tests.objects.kinds import PUTS, create

NO_VALUE = r"the field 'name' of a Unset has no value \(AttributeError\(.*'name'.*\)\): set it, or give it a default"


@register_dataclass
@dataclass
class Unset:
    number: int
    name: str = field(init=False)


@register_dataclass
@dataclass(frozen=True)
class UnsetKey:
    number: int
    name: str = field(init=False, compare=False)


@register_dataclass
@dataclass
class ReadAloud:
    """A value that asks something when a field of it is read."""

    number: int = 1
    ask: ClassVar[Callable[[], object] | None] = None

    def __getattribute__(self, name: str) -> Any:
        if ReadAloud.ask is not None:
            ReadAloud.ask()
        return object.__getattribute__(self, name)


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object] | None], None]:
    return lambda asked: monkeypatch.setattr(ReadAloud, "ask", staticmethod(asked) if asked else None)


def fail(error: BaseException) -> None:
    raise error


HOLDERS = sorted(PUTS.keys() - {"set", "sorted_set", "tensor"})


@pytest.mark.parametrize("kind", HOLDERS)
def test_a_field_that_was_never_set_is_refused_and_all_else_is_saved(space: PersistedObjectSpace, kind: str) -> None:
    other, handle = space.create_list("other"), create(space, kind, "t")
    space.checkpoint()
    value = Unset(1)
    other.append(1)
    PUTS[kind](handle, (value,))
    for _ in range(2):
        with pytest.raises(UnencodableValueError, match=f"'t', .*: {NO_VALUE}") as refused:
            space.checkpoint()
        assert isinstance(refused.value.__cause__, AttributeError)
    value.name = "set"
    space.checkpoint()
    assert PersistedObjectSpace(space.store).get("other").copy() == [1]


@pytest.mark.parametrize(
    ("put", "told"),
    [
        (lambda space: space.create_set("t").add(UnsetKey(1)), "Set 't', element "),
        (lambda space: space.create_dictionary("t").update({(UnsetKey(1), 2): 3}), "Dictionary 't', slot "),
        (lambda space: space.create_dictionary("t", of=list).setdefault(UnsetKey(1)), "Dictionary 't', key "),
        (lambda space: space.create_array("t", 3, default=UnsetKey(1)), "the default of a new object: "),
        (lambda space: space.create_sorted_set("t").add(UnsetKey(1)), "has no place in a sorted object"),
    ],
)
def test_a_key_whose_fields_have_no_value_is_refused(space: PersistedObjectSpace, put: Any, told: str) -> None:
    space.create_list("other").append(1)
    with pytest.raises(TypeError, match=told) as refused:
        put(space)
        space.checkpoint()
    assert "sorted" in told or isinstance(refused.value.__cause__, AttributeError)
    if "t" in space:
        space.delete("t")
    space.checkpoint()
    assert list(PersistedObjectSpace(space.store)) == ["other"]


def test_a_key_is_found_by_an_equal_one_whose_other_fields_have_no_value(space: PersistedObjectSpace) -> None:
    key = UnsetKey(1)
    object.__setattr__(key, "name", "a")
    space.create_dictionary("d").update(dict.fromkeys(range(5000), 0) | {key: "found"})
    space.checkpoint()
    stored = PersistedObjectSpace(space.store).get("d")
    assert (stored.get(UnsetKey(1)), stored.get(UnsetKey(2))) == ("found", None)


@pytest.mark.parametrize("error", [ValueError("no"), KeyError("no"), RecursionError("no"), OSError("no")], ids=repr)
def test_code_that_fails_while_a_field_is_read_is_a_refusal(space: PersistedObjectSpace, ask: Any, error: Any) -> None:
    space.create_value("v", ReadAloud())
    ask(partial(fail, error))
    with pytest.raises(
        UnencodableValueError, match=r"Value 'v', .*: the field 'number' of a ReadAloud .*Error"
    ) as refused:
        space.checkpoint()
    assert refused.value.__cause__ is error
    ask(None)
    assert space.checkpoint().slots == 1


def test_what_the_library_refuses_while_a_field_is_read_passes_as_it_is(space: PersistedObjectSpace, ask: Any) -> None:
    space.create_value("v", ReadAloud())
    ask(space.checkpoint)
    with pytest.raises(CheckpointProtocolError):
        space.checkpoint()
    ask(partial(space.at, 7))
    with pytest.raises(UnknownCheckpointError, match="7"):
        space.checkpoint()
    ask(None)
    assert space.checkpoint().slots == 1


def test_lack_of_memory_while_a_field_is_read_is_no_refusal(space: PersistedObjectSpace, ask: Any) -> None:
    space.create_value("v", ReadAloud())
    ask(partial(fail, MemoryError()))
    with pytest.raises(MemoryError):
        space.checkpoint()
    ask(None)
    with pytest.raises(CheckpointProtocolError, match="interrupted partway"):
        space.checkpoint()


def test_a_zone_that_gives_no_offset_is_a_refusal(space: PersistedObjectSpace) -> None:
    moment = space.create_value("v", datetime(2024, 1, 1, tzinfo=tzinfo()))
    with pytest.raises(
        UnencodableValueError, match=r"Value 'v', .*: the zone of a datetime, a tzinfo, gives no offset"
    ):
        space.checkpoint()
    moment.value = datetime(2024, 1, 1)
    assert space.checkpoint().slots == 1


def changed(before: list[Any], after: list[Any], **options: Any) -> Any:
    """Return what was stored as an instance of a class with some fields, as one of the same name with others."""
    old, new = (dataclasses.make_dataclass("Changed", fields, **options) for fields in (before, after))
    text = codec.encode(register_dataclass(old)(**{one[0]: one[0] for one in before}))
    codec._registered.pop("Changed")
    register_dataclass(new)
    return codec.decode(text)


@pytest.mark.parametrize("options", [{}, {"slots": True}, {"frozen": True}, {"frozen": True, "slots": True}], ids=repr)
def test_a_field_that_was_removed_is_gone_when_read(monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]) -> None:
    monkeypatch.setattr(codec, "_registered", dict(codec._registered))
    found = changed([("kept", str), ("removed", str)], [("kept", str), ("new", str, "default")], **options)
    assert (found.kept, found.new, hasattr(found, "removed")) == ("kept", "default", False)


@pytest.mark.parametrize("slots", [False, True])
def test_a_field_that_was_added_without_a_default_is_unset_until_it_is_assigned(
    monkeypatch: pytest.MonkeyPatch, slots: bool
) -> None:
    monkeypatch.setattr(codec, "_registered", dict(codec._registered))
    found = changed([("kept", str)], [("kept", str), ("new", str)], slots=slots)
    assert (found.kept, hasattr(found, "new")) == ("kept", False)
    with pytest.raises(codec.Unencodable, match="the field 'new' of a Changed has no value"):
        codec.encode(found)
    found.new = 1
    assert codec.decode(codec.encode(found)) == found


@pytest.mark.parametrize("others", [0, 5000], ids=["read whole", "read slot by slot"])
@pytest.mark.parametrize("fields", [["y", "x"], ["x"], ["x", "y", "z"]], ids=repr)
@pytest.mark.parametrize("holds", [lambda key: key, lambda key: ("in a tuple", key)], ids=["alone", "in a tuple"])
def test_a_key_that_is_compared_by_other_fields_now_is_refused_and_nothing_is_lost(
    monkeypatch: pytest.MonkeyPatch, holds: Callable[[Any], Any], fields: list[str], others: int
) -> None:
    monkeypatch.setattr(codec, "_registered", dict(codec._registered))

    def declared(names: list[str]) -> Callable[[int, int], Any]:
        codec._registered.pop("Point", None)
        made = dataclasses.make_dataclass("Point", [(name, int, 0) for name in names], frozen=True)
        register_dataclass(made)
        return lambda x, y: holds(made(**{name: value for name, value in zip("xy", (x, y)) if name in names}))

    store, point = CheckpointStore(":memory:"), declared(["x", "y"])
    with PersistedObjectSpace(store) as space:
        space.create_dictionary("d").update({point(1, 2): "a", point(2, 1): "b"} | dict.fromkeys(range(others)))
        space.create_set("s").update([point(1, 2), point(2, 1), *range(others)])
        space.checkpoint()
    changed = declared(fields)
    for name in ("d", "s"):
        with pytest.raises(
            ObjectSpaceError, match=r"that a Point is compared by, or their order, are not .*nothing is"
        ):
            list(PersistedObjectSpace(store).get(name))
        if fields == ["y", "x"]:
            with pytest.raises(ObjectSpaceError, match="declare Point as it was"):
                PersistedObjectSpace(store).get("d")[changed(1, 2)]
    point = declared(["x", "y"])
    again = PersistedObjectSpace(store)
    assert (again.get("d")[point(1, 2)], again.get("d")[point(2, 1)], point(2, 1) in again.get("s")) == ("a", "b", True)


EDITS: dict[str, Callable[[PersistedObjectSpace], object]] = {
    "edited": lambda space: space.get("sums").update(a=1),
    "appended to": lambda space: space.get("other").append(2),
    "cleared": lambda space: space.get("many").clear(),
    "edited before and cleared": lambda space: space.get("dirty").clear(),
    "created": lambda space: space.create_list("new").append(1),
    "created in another object": lambda space: space.get("groups").setdefault("new").append(1),
    "deleted": lambda space: space.delete("other"),
    "edited before and deleted": lambda space: space.delete("dirty"),
    "created before and deleted": lambda space: space.delete("fresh"),
    "renamed": lambda space: space.rename("other", "by now"),
    "created before and renamed": lambda space: space.rename("fresh", "by now"),
}


@pytest.mark.parametrize("order", [("v", "fresh"), ("fresh", "v")])
@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize("edit", EDITS)
def test_what_is_edited_while_a_save_reads_a_field_is_in_the_next_checkpoint(
    space: PersistedObjectSpace, ask: Any, edit: str, commits: bool, order: tuple[str, str]
) -> None:
    for name in ("other", "many", "dirty"):
        space.create_list(name).extend(range(100))
    space.create_dictionary("groups", of=list)
    space.create_dictionary("sums")
    space.checkpoint()
    for name in order:
        space.create_value(name, ReadAloud() if name == "v" else 1)
        space.get("dirty").append(name)
    left = [partial(EDITS[edit], space)]
    ask(lambda: left.pop()() if left else None)
    writer = space.store.writer()
    space.save(writer)
    if commits:
        writer.commit()
        space.on_saved()
        between = PersistedObjectSpace(space.store)
        assert contents(between).items() >= {name: list(range(100)) for name in ("other", "many")}.items()
    else:
        writer.rollback()
    space.checkpoint()
    space._check()
    space.store.verify()
    assert (contents(PersistedObjectSpace(space.store)), left) == (contents(space), [])
    assert space.checkpoint().slots == 0


def contents(space: PersistedObjectSpace) -> dict[str, Any]:
    return {name: space.get(name).value if space.kind_of(name) == "Value" else space.get(name).copy() for name in space}


FILLS: dict[str, Callable[[PersistedObjectSpace, list[Any]], object]] = {
    "value": lambda space, some: space.create_value("t", some),
    "list": lambda space, some: space.create_list("t").extend(some),
    "dictionary": lambda space, some: space.create_dictionary("t").update(enumerate(some)),
    "keyed by bool": lambda space, some: space.create_dictionary("t").update(zip([True, (1, 2)], some, strict=False)),
    "sorted": lambda space, some: space.create_sorted_dictionary("t").update(enumerate(some)),
    "queue": lambda space, some: [space.get_or_create_queue("t").enqueue(one) for one in some],
    "stack": lambda space, some: [space.get_or_create_stack("t").push(one) for one in some],
    "linked list": lambda space, some: [space.get_or_create_linked_list("t").add_last(one) for one in some],
    "sparse array": lambda space, some: space.create_sparse_array("t", 9).__setitem__(3, some),
    "in objects": lambda space, some: space.create_dictionary("t", of=list).update(k=some),
}
ADDED = {"with a default": ("new", int, 5), "without one": ("new", int)}


@pytest.fixture
def reread(monkeypatch: pytest.MonkeyPatch) -> Callable[..., PersistedObjectSpace]:
    """What fills an object with instances and returns a space that reads them as if their class had got a field."""
    monkeypatch.setattr(codec, "_registered", dict(codec._registered))

    def _reread(fill: Any, added: Any, count: int = 40) -> PersistedObjectSpace:
        space = PersistedObjectSpace(CheckpointStore(":memory:"))
        old = register_dataclass(dataclasses.make_dataclass("Grown", [("x", Any)]))
        fill(space, [old([number]) if number % 2 else [{"in": (old(number), {1})}] for number in range(count)])
        space.checkpoint()
        codec._registered.pop("Grown")
        register_dataclass(dataclasses.make_dataclass("Grown", [("x", Any), added]))
        return PersistedObjectSpace(space.store)

    return _reread


def read_through(handle: Any) -> list[Any]:
    """Read all that an object holds, and keep it in memory as far as the object does."""
    if hasattr(handle, "items"):
        return [handle[key] for key in list(handle)]
    if hasattr(handle, "peek"):
        handle.peek()
    return [handle.value] if hasattr(handle, "value") else list(handle)


@pytest.mark.parametrize("added", ADDED)
@pytest.mark.parametrize("fill", FILLS)
def test_instances_whose_class_got_a_field_are_not_named_as_changed_in_place(
    reread: Any, fill: str, added: str
) -> None:
    space = reread(FILLS[fill], ADDED[added])
    read_through(space.get("t"))
    assert (space.check_mutations(), space.checkpoint().slots) == ([], 0)


@pytest.mark.parametrize("added", ADDED)
def test_an_instance_that_was_changed_in_place_is_named_whatever_its_class_got(reread: Any, added: str) -> None:
    for fill in ("list", "dictionary", "sorted", "queue", "stack", "linked list"):
        space = reread(FILLS[fill], ADDED[added])
        handle = space.get("t")
        values = read_through(handle)
        one = handle.peek() if fill in ("queue", "stack") else values[0]
        (one.x if hasattr(one, "x") else one).append("new")
        assert space.check_mutations() == [("t", 39 if fill == "stack" else 0)], fill


@pytest.mark.parametrize("fill", FILLS)
def test_what_can_no_longer_be_stored_is_named_and_so_is_all_else(fill: str) -> None:
    space = PersistedObjectSpace(CheckpointStore(":memory:"))
    space.create_dictionary("a")["k"] = [1]
    FILLS[fill](space, [[1]])
    space.create_dictionary("z")["k"] = [1]
    space.checkpoint()
    stored = space.get("t")["k"] if fill == "in objects" else space.get("t")
    changed = stored[3] if fill == "sparse array" else read_through(stored)[0]
    for one in (space.get("a")["k"], changed, space.get("z")["k"]):
        one.append(object())
    first, (name, _), last = sorted(space.check_mutations())
    assert (first, name[0], last) == (("a", "k"), "t", ("z", "k"))


@pytest.mark.parametrize("added", ADDED)
def test_a_stack_saves_only_what_was_popped_and_pushed(reread: Any, added: str) -> None:
    space = reread(FILLS["stack"], ADDED[added])
    stack = space.get("t")
    stack.pop()
    assert space.checkpoint().slots == 1
    stack.pop()
    stack.peek().x.append(object()) if hasattr(stack.peek(), "x") else stack.peek().append(object())
    stack.pop()
    assert (space.checkpoint().slots, space.check_mutations()) == (2, [])


@pytest.mark.parametrize("commits", [True, False])
def test_elements_that_give_way_to_insertions_are_not_refused(reread: Any, commits: bool) -> None:
    space = reread(FILLS["list"], ADDED["without one"])
    elements = space.get("t")
    for number in range(400):
        elements.insert(20, number)
        if not number % 50:
            writer = space.store.writer()
            space.save(writer)
            if commits:
                writer.commit()
                space.on_saved()
            else:
                writer.rollback()
    assert space.checkpoint().slots
    assert space.check_mutations() == []
    stored = PersistedObjectSpace(space.store).get("t")
    assert len(stored) == 440
    assert [one.x for one in stored if hasattr(one, "x")] == [[number] for number in range(1, 40, 2)]
    elements[0][0]["in"][0].x = 1
    elements[0] = elements[0]
    with pytest.raises(UnencodableValueError, match="List 't', index 0: the field 'new'"):
        space.checkpoint()
