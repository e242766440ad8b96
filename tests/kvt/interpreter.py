"""Runs the behaviour cases in ``tests/cases/key_value_tables.json``: what each step means for the tables."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from checkpoint import CheckpointStore
from objectspace import PersistedObjectSpace
from objectspace.kvt import (
    BadKeyVersionError,
    FamilyRequiredError,
    Insert,
    IteratorState,
    KeyValueTable,
    KeyValueTableConfiguration,
    KeyValueTableManager,
    KeyVersion,
    NoSuchKeyError,
    NoSuchScopeError,
    NoSuchTableError,
    Put,
    Remove,
    ScopeNotEmptyError,
    SerializationError,
    TableClosedError,
    TableEntry,
    TableKey,
    family_prefix,
    route_bytes,
    table_key,
)
from tests.fields import only

HEADER = json.loads((Path(__file__).parents[1] / "cases" / "key_value_tables.json").read_text())
CASES = HEADER["cases"]

ERRORS: dict[str, tuple[type[Exception], ...]] = {
    "BadKeyVersion": (BadKeyVersionError,),
    "NoSuchKey": (NoSuchKeyError,),
    "IllegalArgument": (ValueError,),
    "NullArgument": (TypeError, ValueError),
    "Closed": (TableClosedError,),
    "NoSuchTable": (NoSuchTableError,),
    "NoSuchScope": (NoSuchScopeError,),
    "ScopeNotEmpty": (ScopeNotEmptyError,),
    "Serialization": (SerializationError,),
    "Unsupported": (FamilyRequiredError,),
}


class Interpreter:
    """One case: a store, a manager, handles by name, and what was bound."""

    def __init__(self, partitions: int) -> None:
        self.store = CheckpointStore(":memory:")
        self.space = PersistedObjectSpace(self.store)
        self.manager = KeyValueTableManager(self.space)
        self.handles: dict[str, KeyValueTable[Any, Any]] = {}
        self.current = "t"
        self.env: dict[str, Any] = {}
        self.iterators: dict[str, Any] = {}
        if partitions:
            self.do_create_scope("scope")
            self.do_create("scope", "table", {"partitions": partitions})
            self.do_open("t", "scope", "table")

    @property
    def table(self) -> KeyValueTable[Any, Any]:
        return self.handles[self.current]

    def step(self, step: list[Any]) -> None:
        op, *args, expected = step
        assert expected, f"{step} expects nothing"
        if "error" in expected or "error_any" in expected:
            assert len(expected) == 1, f"{step} expects an error and something else"
        wanted = [expected["error"]] if "error" in expected else expected.get("error_any", [])
        before = self.contents()
        result, error = attempt(getattr(self, f"do_{op}"), args)
        if wanted:
            kinds = tuple(kind for name in wanted for kind in ERRORS[name])
            assert isinstance(error, kinds), f"{step} gave {result!r}, {error!r}"
            assert self.contents() == before, f"{step} had an effect"
        else:
            assert error is None, f"{step} raised {error!r}"
            self.expect(step, expected, result)

    def expect(self, step: list[Any], expected: dict[str, Any], result: Any) -> None:
        for form, value in expected.items():
            found, wanted = getattr(self, f"as_{form}")(result, value)
            assert found == wanted, f"{step}: {form} is {found!r}, expected {wanted!r}"

    def contents(self) -> Any:
        """Everything that a step may change, in memory and in the store."""
        in_memory = {name: dump(self.space.get(name)) for name in self.space}
        return in_memory, self.store.reader().image().items

    # Expectations: (found, wanted)

    def as_ok(self, result: Any, value: Any) -> Any:
        return result, value

    def as_value(self, result: Any, value: Any) -> Any:
        return result, data(value)

    as_bytes = as_value

    def as_hex(self, result: Any, value: str) -> Any:
        return result.hex(), value

    def as_any(self, result: Any, value: Any) -> Any:
        return value, True

    def as_count(self, result: Any, value: int) -> Any:
        return len(result), value

    def as_bind(self, result: Any, name: str) -> Any:
        self.env[name] = result
        return result is not None, True

    as_bind_all = as_bind

    def as_bind_list(self, result: Any, names: list[str]) -> Any:
        self.env.update(zip(names, result, strict=True))
        return len(result), len(names)

    def as_bind_state(self, result: Any, name: str) -> Any:
        self.env[name] = result.state
        return result.state.position is not None, True

    def as_names(self, result: list[str], value: list[str]) -> Any:
        return sorted(result), sorted(map(text, value))

    def as_entry(self, result: Any, value: Any) -> Any:
        return self.comparable(result, value)

    def as_entries(self, result: Any, value: list[Any]) -> Any:
        pairs = [self.comparable(*pair) for pair in zip(result, value, strict=True)]
        return [found for found, _ in pairs], [wanted for _, wanted in pairs]

    def as_pages(self, result: Any, value: list[Any]) -> Any:
        pairs = [self.as_page(*pair) for pair in zip(result, value, strict=True)]
        return [found for found, _ in pairs], [wanted for _, wanted in pairs]

    def as_page(self, result: Any, value: Any) -> Any:
        if result is None or value is None:
            return result, value
        return self.as_entries(result.items, value)

    def comparable(self, found: Any, wanted: Any) -> Any:
        if isinstance(found, TableKey):
            return found.key, data(wanted)
        if found is None or wanted is None:
            return found, wanted
        version = found.key.version if wanted[2] is None else self.version(wanted[2])
        return (found.key.key, found.value, found.key.version), (data(wanted[0]), data(wanted[1]), version)

    # Arguments

    def version(self, argument: Any) -> Any:
        if argument is None:
            return None
        if isinstance(argument, dict):
            only(argument, "shift", "partition", "version")
            version = self.version(argument["shift"])
            shift = argument.get("partition", 0), argument.get("version", 0)
            return KeyVersion(version.partition + shift[0], version.number + shift[1])
        if argument in ("NO_VERSION", "NOT_EXISTS"):
            return getattr(KeyVersion, argument)
        return self.env[argument.removeprefix("$")]

    def versions(self, argument: Any) -> list[KeyVersion]:
        """Return versions that are bound as a whole or one by one."""
        return self.version(argument) if isinstance(argument, str) else list(map(self.version, argument))

    def state(self, argument: Any) -> IteratorState | None:
        if isinstance(argument, str) and argument.startswith("$"):
            return self.env[argument.removeprefix("$")]  # type: ignore[no-any-return]
        return None if argument is None else IteratorState.from_bytes(data(argument))

    def table_entry(self, member: list[Any]) -> TableEntry[Any, Any]:
        return TableEntry(self.key_with_version([member[0], *member[2:]]), data(member[1]))

    def key_with_version(self, member: list[Any]) -> TableKey[Any]:
        return TableKey(data(member[0]), *map(self.version, member[1:]))

    # Writing

    def do_put(self, family: Any, key: Any, value: Any) -> Any:
        return self.table.put(data(key), data(value), key_family=text(family))

    def do_put_if_absent(self, family: Any, key: Any, value: Any) -> Any:
        return self.table.put_if_absent(data(key), data(value), key_family=text(family))

    def do_replace(self, family: Any, key: Any, value: Any, version: Any) -> Any:
        return self.table.replace(data(key), data(value), self.version(version), key_family=text(family))

    def do_put_all(self, family: Any, pairs: list[Any]) -> Any:
        return self.table.put_all(text(family), [(data(key), data(value)) for key, value in pairs])

    def do_replace_all(self, family: Any, members: list[Any]) -> Any:
        return self.table.replace_all(text(family), [self.table_entry(member) for member in members])

    def do_remove(self, family: Any, key: Any, *version: Any) -> Any:
        return self.table.remove(data(key), *map(self.version, version), key_family=text(family))

    def do_remove_all(self, family: Any, members: list[Any]) -> Any:
        return self.table.remove_all(text(family), [self.key_with_version(member) for member in members])

    def do_apply(self, family: Any, members: list[Any]) -> Any:
        return self.table.apply(text(family), [self.modification(*member) for member in members])

    def modification(self, kind: str, key: Any, *rest: Any) -> Any:
        if kind == "remove":
            return Remove(data(key), *map(self.version, rest))
        make = {"insert": Insert, "put": Put}[kind]
        return make(data(key), data(rest[0]), *map(self.version, rest[1:]))

    def do_put_range(self, family: Any, start: int, end: int, key: str, value: str) -> Any:
        return [self.do_put(family, printed(key, i), printed(value, i)) for i in range(start, end)]

    def do_put_all_range(self, family: Any, start: int, end: int, key: str, value: str) -> Any:
        return self.do_put_all(family, [(printed(key, i), printed(value, i)) for i in range(start, end)])

    def do_replace_all_range(self, family: Any, start: int, end: int, key: str, value: str, version: Any) -> Any:
        return self.do_replace_all(family, [(printed(key, i), printed(value, i), version) for i in range(start, end)])

    def do_remove_all_range(self, family: Any, start: int, end: int, key: str) -> Any:
        return self.do_remove_all(family, [(printed(key, i),) for i in range(start, end)])

    def do_put_families_range(self, start: int, end: int, family: str, key: Any, value: Any) -> Any:
        return [self.do_put(printed(family, i), key, value) for i in range(start, end)]

    # Reading

    def do_get(self, family: Any, key: Any) -> Any:
        return self.table.get(data(key), key_family=text(family))

    def do_get_all(self, family: Any, keys: list[Any]) -> Any:
        return self.table.get_all(list(map(data, keys)), key_family=text(family))

    def do_get_all_range(self, family: Any, start: int, end: int, key: str) -> Any:
        return [entry for entry in self.do_get_all(family, [printed(key, i) for i in range(start, end)]) if entry]

    def do_exists(self, family: Any, key: Any) -> bool:
        return self.table.exists(data(key), key_family=text(family))

    def do_keys(self, family: Any, size: int, state: Any) -> Any:
        return list(self.table.key_iterator(text(family), size, self.state(state)))

    def do_entries(self, family: Any, size: int, state: Any) -> Any:
        return list(self.table.entry_iterator(text(family), size, self.state(state)))

    def do_keys_prefix(self, family: Any, prefix: Any, size: int, state: Any) -> Any:
        return list(self.table.key_prefix_iterator(text(family), data(prefix), size, self.state(state)))

    def do_keys_range(self, family: Any, start: Any, end: Any, size: int, state: Any) -> Any:
        pages = self.table.key_range_iterator(text(family), data(start), data(end), size, self.state(state))
        return list(pages)

    def do_open_keys(self, name: str, family: Any, size: int, state: Any) -> None:
        self.iterators[name] = self.table.key_iterator(text(family), size, self.state(state))

    def do_open_entries(self, name: str, family: Any, size: int, state: Any) -> None:
        self.iterators[name] = self.table.entry_iterator(text(family), size, self.state(state))

    def do_next(self, name: str) -> Any:
        return next(self.iterators[name], None)

    def do_state_roundtrip(self, state: Any) -> Any:
        return IteratorState.from_bytes(self.state(state).to_bytes())  # type: ignore[union-attr]

    def do_keys_count(self, family: Any) -> int:
        return sum(len(page.items) for page in self.do_keys(family, 100, None))

    def do_all_keys_count(self, size: int) -> int:
        return sum(len(page.items) for page in self.table.global_key_iterator(size))

    def do_pages_shape(self, family: Any, size: int) -> Any:
        return [len(page.items) for page in self.do_keys(family, size, None)]

    # The mapping view

    def do_map_get(self, family: Any, key: Any) -> Any:
        return self.table.family(text(family)).get(data(key))

    def do_map_get_or_default(self, family: Any, key: Any, default: Any) -> Any:
        return self.table.family(text(family)).get(data(key), data(default))

    def do_map_put(self, family: Any, key: Any, value: Any) -> Any:
        view = self.table.family(text(family))
        old = view.get(data(key))
        view[data(key)] = data(value)
        return old

    def do_map_put_if_absent(self, family: Any, key: Any, value: Any) -> Any:
        return self.table.family(text(family)).setdefault(data(key), data(value))

    def do_map_contains_key(self, family: Any, key: Any) -> bool:
        return data(key) in self.table.family(text(family))

    def do_map_contains_value(self, family: Any, value: Any) -> bool:
        return data(value) in self.table.family(text(family)).values()

    def do_map_replace(self, family: Any, key: Any, value: Any) -> Any:
        view = self.table.family(text(family))
        old = view.get(data(key))
        if old is not None:
            view[data(key)] = data(value)
        return old

    def do_map_replace_if(self, family: Any, key: Any, expected: Any, value: Any) -> bool:
        view = self.table.family(text(family))
        is_expected = view.get(data(key)) == data(expected)
        if is_expected:
            view[data(key)] = data(value)
        return bool(is_expected)

    def do_map_remove(self, family: Any, key: Any) -> Any:
        return self.table.family(text(family)).pop(data(key), None)

    def do_map_remove_if(self, family: Any, key: Any, expected: Any) -> bool:
        view = self.table.family(text(family))
        is_expected = view.get(data(key)) == data(expected)
        if is_expected:
            del view[data(key)]
        return bool(is_expected)

    def do_map_size(self, family: Any) -> int:
        return len(self.table.family(text(family)))

    def do_map_is_empty(self, family: Any) -> bool:
        return not self.table.family(text(family))

    def do_map_clear(self, family: Any) -> None:
        self.table.family(text(family)).clear()

    # Versions and addresses

    def do_assert_gt(self, one: Any, other: Any) -> bool:
        newer, older = self.version(one), self.version(other)
        return bool(newer.partition == older.partition and newer.number > older.number)

    def do_assert_eq(self, one: Any, other: Any) -> bool:
        return bool(self.version(one) == self.version(other))

    def do_same_partition(self, versions: Any) -> bool:
        return len({version.partition for version in self.versions(versions)}) == 1

    def do_distinct_partitions_at_least(self, versions: Any, count: int) -> bool:
        return len({version.partition for version in self.versions(versions)}) >= count

    def do_version_roundtrip(self, version: Any) -> Any:
        return KeyVersion.parse(str(self.version(version)))

    do_version_parse = staticmethod(KeyVersion.parse)

    def do_table_key(self, family: Any, key: Any) -> bytes:
        return table_key(data(key), text(family))

    def do_table_key_len(self, family: Any, key: Any) -> int:
        return len(self.do_table_key(family, key))

    def do_family_prefix(self, family: Any) -> bytes:
        return family_prefix(text(family))

    def do_route_bytes(self, family: Any, key: Any) -> bytes:
        return route_bytes(data(key), text(family))

    # Handles, scopes and checkpoints

    def do_use(self, name: str) -> None:
        self.current = name

    def do_open(self, name: str, scope: Any, table: Any) -> None:
        self.handles[name] = self.manager.open_key_value_table(text(scope), text(table))

    def do_close(self) -> None:
        self.table.close()

    def do_create_scope(self, scope: Any) -> bool:
        return self.manager.create_scope(text(scope))

    def do_delete_scope(self, scope: Any) -> bool:
        return self.manager.delete_scope(text(scope))

    def do_create(self, scope: Any, table: Any, config: dict[str, int]) -> bool:
        return self.manager.create_key_value_table(text(scope), text(table), configuration(config))

    def do_update(self, scope: Any, table: Any, config: dict[str, int]) -> bool:
        return self.manager.update_key_value_table(text(scope), text(table), configuration(config))

    def do_delete(self, scope: Any, table: Any) -> bool:
        return self.manager.delete_key_value_table(text(scope), text(table))

    def do_list(self, scope: Any) -> list[str]:
        return self.manager.list_key_value_tables(text(scope))

    def do_save(self) -> None:
        self.space.checkpoint()

    def do_reload(self) -> None:
        self.space = PersistedObjectSpace(self.store)
        self.manager = KeyValueTableManager(self.space)
        self.iterators = {}
        names = {name: table.name.split("/") for name, table in self.handles.items()}
        self.handles = {}
        for name, (scope, table) in names.items():
            if scope in self.manager.list_scopes() and table in self.manager.list_key_value_tables(scope):
                self.do_open(name, scope, table)


def run_case(case: dict[str, Any]) -> None:
    """Run the steps of a case, and check what they leave."""
    only(case, "id", "profile", "title", "config", "script", "source", "pravega", "note")
    only(case["config"], "partitions")
    interpreter = Interpreter(case["config"]["partitions"])
    for step in case["script"]:
        interpreter.step(step)
    interpreter.space._check()
    assert interpreter.space.check_mutations() == []


def attempt(call: Callable[..., Any], args: list[Any]) -> tuple[Any, Exception | None]:
    """The result of a call, or its error."""
    try:
        return call(*args), None
    except Exception as error:
        return None, error


def printed(form: Any, number: int) -> Any:
    """A key, value or family with the number in it, if it has a place for one."""
    return form % number if isinstance(form, str) and "%" in form else form


def configuration(config: dict[str, int]) -> KeyValueTableConfiguration:
    only(config, "partitions")
    return KeyValueTableConfiguration(config["partitions"])


def text(argument: Any) -> Any:
    """A name or family, or ``None``."""
    if isinstance(argument, dict):
        only(argument, "rep_text", "n")
        return argument["rep_text"] * argument["n"]
    return argument


def data(argument: Any) -> Any:
    """A key or value: bytes, or ``None``."""
    if isinstance(argument, str):
        return argument.encode()
    if isinstance(argument, dict):
        forms: dict[str, Callable[[], bytes]] = {
            "hex": lambda: bytes.fromhex(argument["hex"]),
            "rep": lambda: bytes.fromhex(argument["rep"]) * argument["n"],
            "concat": lambda: b"".join(map(data, argument["concat"])),
        }
        form = next(name for name in argument if name in forms)
        only(argument, form, *(["n"] if form == "rep" else []))
        return forms[form]()
    return argument


def dump(handle: Any) -> Any:
    """The contents of a persisted object."""
    return handle.value if handle.kind == "Value" else dict(handle)
