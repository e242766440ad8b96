"""Serializers, arguments, the mapping view, and the control plane where the cases say nothing."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from objectspace import VolatileObjectSpace
from objectspace.kvt import (
    BYTES,
    JSON,
    UTF8,
    BadKeyVersionError,
    FamilyRequiredError,
    Insert,
    KeyValueTable,
    KeyValueTableConfiguration,
    KeyValueTableManager,
    NoSuchScopeError,
    NoSuchTableError,
    Put,
    Remove,
    ScopeNotEmptyError,
    SerializationError,
    TableSealedError,
    partition_of,
    partition_sql,
    route_bytes,
    split_table_key,
    table_key,
)

Table = KeyValueTable[Any, Any]


@pytest.mark.parametrize("value", [0, "", [], {"b": [1, 2.5, None, "é"], "a": {}}, True, -(2**63), "\x00"])
def test_json_comes_back(manager: KeyValueTableManager, value: Any) -> None:
    table = manager.open_key_value_table("s", "t", value_serializer=JSON)
    table.put(b"k", value)
    assert table.get(b"k").value == value  # type: ignore[union-attr]


def test_what_is_nested_too_deep_to_be_shown_is_refused_as_what_is_not(manager: KeyValueTableManager) -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    for serializer in (JSON, UTF8, BYTES):
        table = manager.open_key_value_table("s", "t", value_serializer=serializer)
        with pytest.raises(TypeError, match="a deeply nested list"):
            table.put(b"k", deep)


@pytest.mark.parametrize("serializer", [None, "utf8", SimpleNamespace(serialize=bytes)])
@pytest.mark.parametrize("what", ["key_serializer", "value_serializer"])
def test_what_is_no_serializer_is_refused_when_the_table_is_opened(
    manager: KeyValueTableManager, what: str, serializer: Any
) -> None:
    with pytest.raises(TypeError, match=rf"{what} is .*, which has no method (de)?serialize\(\)"):
        manager.open_key_value_table("s", "t", **{what: serializer})


def test_a_family_with_keys_that_have_no_hash_is_compared(manager: KeyValueTableManager) -> None:
    table = manager.open_key_value_table("s", "t", key_serializer=JSON, value_serializer=JSON)
    table.put([1], 2, key_family="f")
    assert table.family("f") != {1: 2}
    assert table.family("f") == table.family("f")


@pytest.mark.parametrize("count", [0, -4])
def test_a_table_without_partitions_has_no_place_for_a_key(count: int) -> None:
    with pytest.raises(ValueError, match=f"the partition count is {count}"):
        partition_of(b"k", "f", count)
    with pytest.raises(ValueError, match=f"the partition count is {count}"):
        partition_sql("key", "f", count)


@pytest.mark.parametrize("address", [b"", b"\x00", b"\x00\x09a"])
def test_what_ends_before_its_key_is_no_table_key(address: bytes) -> None:
    with pytest.raises(ValueError, match="is no table key: it ends before its key begins"):
        split_table_key(address)


@pytest.mark.parametrize("value", [(1, 2), float("nan"), {1: 2}, b"x", 2**70, object(), [{"a": (1,)}]])
def test_what_json_would_change_is_refused(manager: KeyValueTableManager, value: Any) -> None:
    table = manager.open_key_value_table("s", "t", value_serializer=JSON)
    with pytest.raises(TypeError, match="JSON"):
        table.put_all("f", [(b"a", 1), (b"k", value)])
    assert table.count() == 0


def test_serialized_keys_decide_equality(manager: KeyValueTableManager) -> None:
    table = manager.open_key_value_table("s", "t", key_serializer=JSON, value_serializer=UTF8)
    table.put({"a": 1, "b": 2}, "first", "f")
    table.put({"b": 2, "a": 1}, "second", "f")
    assert [item.key for page in table.key_iterator("f") for item in page.items] == [{"a": 1, "b": 2}]


def test_only_of_a_value_none_is_said_how_a_key_is_removed(table: Table) -> None:
    with pytest.raises(TypeError, match=r"the value is None: give a value; to remove a key call remove\(\)"):
        table.put(b"k", None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"the key is None: give a key$"):
        table.put(None, b"v")  # type: ignore[arg-type]


class Broken:
    """A serializer that makes no bytes."""

    def serialize(self, value: Any) -> Any:
        return str(value)

    def deserialize(self, data: bytes) -> Any:
        return data


def test_a_serializer_must_make_bytes(manager: KeyValueTableManager) -> None:
    table = manager.open_key_value_table("s", "t", value_serializer=Broken())
    with pytest.raises(TypeError, match="serialize\\(\\) must return bytes"):
        table.put(b"k", 1)


class OneWay:
    """A serializer that reads nothing back."""

    def serialize(self, value: bytes) -> bytes:
        return value

    def deserialize(self, data: bytes) -> bytes:
        raise ValueError("one way")


def test_a_conflict_is_told_and_keys_are_counted_where_no_key_can_be_read(manager: KeyValueTableManager) -> None:
    table = manager.open_key_value_table("s", "t", key_serializer=OneWay())
    table.put(b"k", b"v", "f")
    with pytest.raises(BadKeyVersionError, match="b'k'"):
        table.put_if_absent(b"k", b"w", "f")
    assert (table.count("f"), len(table.family("f")), bool(table.family("f"))) == (1, 1, True)


@pytest.mark.parametrize(("serializer", "name"), [(UTF8, "UTF-8"), (JSON, "JSON")])
def test_what_another_serializer_wrote_is_told_in_words(
    manager: KeyValueTableManager, serializer: Any, name: str
) -> None:
    manager.open_key_value_table("s", "t").put(b"k", b"\xff", "f")
    table = manager.open_key_value_table("s", "t", value_serializer=serializer)
    with pytest.raises(SerializationError, match=f"is no {name}: it was written with another serializer"):
        table.get(b"k", "f")
    with pytest.raises((TypeError, ValueError), match=r"surrogate|has no JSON"):
        table.put(b"k", "\ud800", "f")


def test_arguments_of_the_wrong_type_are_named(table: Table) -> None:
    refused = {
        "expected a KeyVersion": lambda: table.replace(b"k", b"v", None),  # type: ignore[arg-type]
        "expected TableEntry": lambda: table.replace_all("f", [(b"k", b"v")]),  # type: ignore[list-item]
        "expected TableKey": lambda: table.remove_all("f", [b"k"]),  # type: ignore[list-item]
        "expected a pair": lambda: table.put_all("f", [1]),  # type: ignore[list-item]
        "expected Insert or Put or Remove": lambda: table.apply("f", [(b"k", b"v")]),  # type: ignore[list-item]
        "expected a list": lambda: table.get_all(b"key"),
        "key_serializer=": lambda: table.put("text", b"v"),
        "expected text": lambda: table.put(b"k", b"v", 7),  # type: ignore[arg-type]
        "the key is 'k': expected bytes": lambda: table_key("k", "f"),  # type: ignore[arg-type]
        "the key is None: expected bytes": lambda: route_bytes(None),  # type: ignore[arg-type]
        r"\['f'\]: expected text": lambda: table.get(b"k", ["f"]),  # type: ignore[arg-type]
        "lone surrogate": lambda: table.put(b"k", b"v", "\ud800"),
        "is empty": lambda: table.put(b"k", b"v", ""),
        "give key_family": lambda: table.apply(None, [Put(b"k", b"v")]),  # type: ignore[arg-type]
    }
    for message, call in refused.items():
        with pytest.raises((TypeError, ValueError), match=message):
            call()
    assert table.count() == 0


@pytest.mark.parametrize("family", ["", "f" * 9_000, 5, "\ud800"])
def test_what_is_no_family_is_refused_also_where_no_key_comes_with_it(table: Table, family: Any) -> None:
    for name in ("put_all", "replace_all", "remove_all", "apply"):
        with pytest.raises((TypeError, ValueError), match=r"family|expected text"):
            getattr(table, name)(family, [])
    with pytest.raises((TypeError, ValueError), match=r"family|expected text"):
        table.get_all([], family)


def test_an_iterable_is_consumed_once_and_validated_before_any_change(table: Table) -> None:
    def members() -> Any:
        yield Insert(b"a", b"1")
        yield Put(b"b", b"2")
        yield Remove(b"c")
        raise OSError("the source failed")

    with pytest.raises(OSError, match="the source failed"):
        table.apply("f", members())
    assert table.count() == 0
    assert [bool(version) for version in table.apply("f", iter([Put(b"a", b"1"), Remove(b"b")]))] == [True, False]


def test_a_function_that_fails_changes_nothing(table: Table) -> None:
    table.put(b"k", b"v")
    with pytest.raises(ZeroDivisionError):
        table.update(b"k", lambda value: 1 // 0)  # type: ignore[arg-type, return-value]
    with pytest.raises(TypeError, match="call remove"):
        table.update(b"k", lambda value: None)
    assert table.get(b"k").value == b"v"  # type: ignore[union-attr]


def test_an_update_is_tried_again_where_another_write_came_first(table: Table) -> None:
    seen = []

    def function(value: bytes) -> bytes:
        seen.append(value)
        if len(seen) == 1:
            table.put(b"k", b"other")
        return value + b"!"

    table.update(b"k", function, default=b"none")
    assert seen == [b"none", b"other"]
    assert table.get(b"k").value == b"other!"  # type: ignore[union-attr]


def test_a_family_is_a_mapping(table: Table) -> None:
    view = table.family("f")
    view.update({b"b": b"2", b"a": b"1"})
    assert (list(view), len(view), view == {b"a": b"1", b"b": b"2"}) == ([b"a", b"b"], 2, True)
    assert view.setdefault(b"c", b"3") == view.setdefault(b"c", b"4") == b"3"
    assert (view.pop(b"c"), view.pop(b"c", None)) == (b"3", None)
    assert view.popitem() == (b"a", b"1")
    for absent in (view.__getitem__, view.__delitem__, view.pop):
        with pytest.raises(KeyError):
            absent(b"zz")
    for key in view:
        view[key] = b"new"
    view.clear()
    assert (dict(view), bool(view)) == ({}, False)
    with pytest.raises(TypeError):
        view.setdefault(b"k")


def test_a_family_may_change_while_its_views_are_iterated_over(table: Table) -> None:
    view = table.family("f")
    expected = [(b"%d" % place, b"") for place in range(5)]
    for meet in (view.items, view.values):
        view.update(expected)
        met = [(one, view.pop(b"3", None)) for one in meet()]
        assert len(met) == 5
    view.update(expected)
    assert view == dict(expected)
    assert (view != {**dict(expected), b"3": b"x"}, view != dict(expected[1:]), view == 5) == (True, True, False)
    assert (b"" in view.values(), (b"1", b"") in view.items(), len(view.items())) == (True, True, 5)
    with pytest.raises(TypeError, match="unhashable"):
        hash(view)


def test_whether_a_family_has_keys_is_told_without_counting_them(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    view = table.family("f")
    monkeypatch.setattr(table, "count", lambda family: pytest.fail("counted"))
    assert not view
    view.update([(b"%d" % place, b"") for place in range(3)])
    assert view
    view.clear()
    assert not view


def test_a_comparison_holds_while_the_family_changes(table: Table) -> None:
    view = table.family("f")
    view.update([(b"a", b"1"), (b"b", b"2")])

    class Removing(dict[bytes, bytes]):
        def get(self, key: bytes, default: Any = None) -> Any:
            table.remove(b"b", key_family="f")
            return super().get(key, default)

    assert view == Removing({b"a": b"1", b"b": b"2"})


def test_popitem_takes_what_was_read_or_tries_again(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    view = table.family("f")
    view.update({b"a": b"1", b"b": b"2"})
    commit = table._commit

    def overtaken(*arguments: Any) -> Any:
        monkeypatch.undo()
        table.put(b"a", b"newer", "f")
        return commit(*arguments)

    monkeypatch.setattr(table, "_commit", overtaken)
    assert [view.popitem(), view.popitem()] == [(b"a", b"newer"), (b"b", b"2")]
    with pytest.raises(KeyError, match="family 'f' is empty"):
        view.popitem()


def test_what_another_spelling_wrote_is_popped_and_cleared(manager: KeyValueTableManager, table: Table) -> None:
    view = manager.open_key_value_table("s", "t", key_serializer=JSON).family("f")
    for empty in (view.popitem, view.clear):
        table.put(b'{"a": 2}', b"1", "f")
        empty()
        assert len(view) == 0
    view.clear()


def test_pop_takes_one_default(table: Table) -> None:
    view: Any = table.family("f")
    assert (view.pop(b"k", default=2), view.pop(b"k", None)) == (2, None)
    with pytest.raises(TypeError):
        view.pop(b"k", 1, 2)


def test_keys_without_a_family_are_a_mapping_without_iteration(table: Table) -> None:
    view = table.family(None)
    view.update({b"k": b"v"})
    view[b"l"] = b"w"
    del view[b"k"]
    assert (b"k" in view, view[b"l"]) == (False, b"w")
    for call in (view.clear, view.__len__, view.popitem, lambda: list(view), lambda: list(view.items())):
        with pytest.raises(FamilyRequiredError):
            call()


def test_a_table_key_can_be_taken_apart(table: Table) -> None:
    for place in [(None, b""), (None, b"k"), (None, b"k" * 8190), ("é", b""), ("f" * 255, b"\x00")]:
        assert split_table_key(table_key(place[1], place[0])) == place


@pytest.mark.parametrize("count", [0, -1, 2**31, True, 1.5, None])
def test_a_configuration_is_checked(count: Any) -> None:
    with pytest.raises((ValueError, TypeError), match="partition_count"):
        KeyValueTableConfiguration(count)


@pytest.mark.parametrize("space", ["x.db", None, KeyValueTableManager])
def test_a_manager_says_what_it_stands_on(space: Any) -> None:
    with pytest.raises(TypeError, match=r"pass an object space, such as PersistedObjectSpace\.open\(path\)"):
        KeyValueTableManager(space)
    with pytest.raises(TypeError, match="version_floor is 0: expected a function"):
        KeyValueTableManager(VolatileObjectSpace(), version_floor=0)  # type: ignore[arg-type]


def test_scopes_and_tables_are_listed_and_found(manager: KeyValueTableManager) -> None:
    assert manager.list_scopes() == ["s"]
    assert manager.create_scope("s-1")
    assert not manager.create_scope("s")
    assert manager.create_key_value_table("s-1", "t", KeyValueTableConfiguration(2))
    assert manager.list_key_value_tables("s") == ["t"]
    assert manager.get_key_value_table_configuration("s-1", "t") == KeyValueTableConfiguration(2)
    with pytest.raises(NoSuchTableError):
        manager.get_key_value_table_configuration("s", "u")
    with pytest.raises(NoSuchScopeError):
        manager.create_key_value_table("x", "t", KeyValueTableConfiguration(2))
    with pytest.raises(ScopeNotEmptyError, match="'t'"):
        manager.delete_scope("s")
    with pytest.raises(TypeError, match="KeyValueTableConfiguration"):
        manager.create_key_value_table("s", "u", 4)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="cannot name a scope"):
        manager.delete_scope("s/t")


def test_a_scope_has_no_part_in_one_whose_name_goes_on(manager: KeyValueTableManager) -> None:
    assert [manager.create_scope(scope) for scope in ("team", "team0", "team-1", "team.")] == [True] * 4
    assert manager.create_key_value_table("team0", "t", KeyValueTableConfiguration(1))
    assert manager.list_key_value_tables("team") == []
    assert manager.delete_scope("team")
    assert manager.list_key_value_tables("team0") == ["t"]


def test_keys_that_python_finds_equal_are_set_one_by_one(manager: KeyValueTableManager) -> None:
    family = manager.open_key_value_table("s", "t", key_serializer=JSON, value_serializer=JSON).family("f")
    family.update([(1, "a"), (True, "b"), ([1], "c")])
    family.update({"x": 1}, y=2)
    assert sorted(map(repr, family.items())) == sorted(
        map(repr, [(1, "a"), (True, "b"), ([1], "c"), ("x", 1), ("y", 2)])
    )
    with pytest.raises(TypeError, match="one mapping or iterable of pairs: found 2"):
        family.update({}, {})


def test_a_family_is_equal_to_a_mapping_of_the_same_pairs_and_to_no_longer_one(manager: KeyValueTableManager) -> None:
    table = manager.open_key_value_table("s", "t")
    family = table.family("f")
    family.update({b"a": b"1", b"b": b"2"})
    assert family == {b"b": b"2", b"a": b"1"}
    for unequal in ({b"a": b"1"}, {b"a": b"1", b"b": b"3"}, {b"a": b"1", b"b": b"2", b"c": b"3"}, {}, [b"a", b"b"]):
        assert family != unequal


def test_one_partition_has_every_key_and_none_is_refused() -> None:
    assert {partition_of(b"%d" % number, None, 1) for number in range(50)} == {0}
    for count in (0, -1):
        with pytest.raises(ValueError, match=f"the partition count is {count}: expected"):
            partition_of(b"k", None, count)


def test_an_empty_family_of_a_sealed_table_is_not_cleared(manager: KeyValueTableManager) -> None:
    family = manager.open_key_value_table("s", "t").family("f")
    family.clear()
    manager.seal_key_value_table("s", "t")
    with pytest.raises(TableSealedError):
        family.clear()
