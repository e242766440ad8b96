"""``save``, ``commit`` and ``on_saved`` out of order, amid edits and reads of one space, of several, and of threads."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import Mock

import pytest

from checkpoint import CheckpointError, CheckpointKind, CheckpointStore, RunWriter, UnknownCheckpointError
from objectspace import (
    CheckpointProtocolError,
    NameInUseError,
    ObjectNotFoundError,
    PersistedObjectSpace,
    UnencodableValueError,
    WrongKindError,
)
from objectspace.objects import limits
from tests.objects.kinds import PUTS, create, every_kind


def test_on_saved_needs_a_save_and_a_commit(space: PersistedObjectSpace) -> None:
    with pytest.raises(CheckpointProtocolError, match="without a save"):
        space.on_saved()
    writer = space.store.writer()
    space.save(writer)
    with pytest.raises(CheckpointProtocolError, match="before the commit"):
        space.on_saved()
    with pytest.raises(CheckpointProtocolError, match="two saves in flight"):
        space.save(space.store.writer())
    with pytest.raises(CheckpointProtocolError, match="two saves in flight"):
        space.checkpoint()
    writer.commit()
    space.on_saved()
    with pytest.raises(CheckpointProtocolError, match="without a save"):
        space.on_saved()


def test_a_save_whose_writer_nobody_has_any_more_is_taken_back(space: PersistedObjectSpace) -> None:
    items = space.create_list("l")
    items.append(1)
    space.save(space.store.writer())
    items.append(2)
    writer = space.store.writer()
    space.save(writer)
    assert writer.commit() is not None
    space.on_saved()
    items.append(3)
    space.save(space.store.writer())
    assert space.checkpoint().slots == 1
    assert PersistedObjectSpace(space.store).get_list("l").copy() == [1, 2, 3]


def test_a_writer_serves_one_save(space: PersistedObjectSpace) -> None:
    items = space.create_list("l")
    items.append(1)
    writer = space.store.writer()
    with pytest.raises(CheckpointError, match="nothing saved"):
        writer.commit()
    space.save(writer)
    writer.commit()
    space.on_saved()
    items.append(2)
    for misuse in (writer.commit, writer.rollback, lambda: space.save(writer)):
        with pytest.raises(CheckpointError):
            misuse()
    assert space.checkpoint().slots == 1


@pytest.mark.parametrize("is_spent", [False, True])
def test_a_save_that_is_refused_leaves_the_acknowledgement_of_the_one_before(
    space: PersistedObjectSpace, is_spent: bool
) -> None:
    items = space.create_list("l")
    items.append(1)
    writer = space.store.writer()
    space.save(writer)
    writer.commit()
    if not is_spent:
        items.append(object())
    with pytest.raises((CheckpointError, UnencodableValueError)):
        space.save(writer if is_spent else space.store.writer())
    space.on_saved()
    with pytest.raises(CheckpointProtocolError, match="without a save"):
        space.on_saved()
    items[1:] = [2]
    assert space.checkpoint().slots == 1
    with pytest.raises(CheckpointProtocolError, match="without a save"):
        space.on_saved()


@every_kind
def test_a_read_only_space_can_be_read_and_not_changed(space: PersistedObjectSpace, kind: str) -> None:
    PUTS[kind](create(space, kind, "t"), 1)
    space.checkpoint(epoch=5)
    space.delete("t")
    space.checkpoint(epoch=6)
    old = space.at(5)
    handle = old.get("t")
    before = repr(handle)
    for change in (
        lambda: PUTS[kind](handle, 2),
        lambda: old.delete("t"),
        lambda: old.create_list("l"),
        old.checkpoint,
    ):
        with pytest.raises(CheckpointError):
            change()
    assert repr(handle) == before
    old._check()


def test_a_view_that_was_closed_keeps_no_checkpoint() -> None:
    store = CheckpointStore(":memory:", history=2)
    space = PersistedObjectSpace(store)
    numbers = space.create_list("l")
    numbers.append(0)
    space.checkpoint()
    view = space.at(1)
    for is_closed in (False, True):
        if is_closed:
            view.close()
        for number in range(1, 60):
            numbers.append(number)
            space.checkpoint()
        if not is_closed:
            assert list(view.get("l")) == [0]
    with pytest.raises(UnknownCheckpointError):
        store.reader(1)


def test_check_mutations_names_what_was_changed_in_place(space: PersistedObjectSpace) -> None:
    space.create_value("value", [1])
    space.create_list("list").extend([1, [2]])
    space.create_dictionary("dict").update(a={}, b=1)
    space.create_stack("stack").push([3])
    space.create_queue("queue").enqueue([4])
    space.create_linked_list("linked").add_last([5])
    space.create_dictionary("of", of=list)["k"] = [[6]]
    assert space.check_mutations() == []
    space.checkpoint()
    assert space.check_mutations() == []
    space.get("value").value.append(1)
    space.get("list")[1].append(1)
    space.get("dict")["a"]["x"] = 1
    space.get("stack").peek().append(1)
    space.get("queue").peek().append(1)
    space.get("linked").first.value.append(1)
    space.get("of")["k"][0].append(1)
    found = [("dict", "a"), ("linked", 0), ("list", 1), ("of['k']", 0), ("queue", 0), ("stack", 0), ("value", "value")]
    assert sorted(space.check_mutations()) == found
    assert space.checkpoint().slots == 0
    space.get("list")[1] = space.get("list")[1]
    assert space.checkpoint().slots == 1
    assert list(PersistedObjectSpace(space.store).get("list")) == [1, [2, 1]]


@pytest.mark.parametrize("count", [3, 100])
def test_rows_changed_in_place_and_assigned_again_are_saved(space: PersistedObjectSpace, count: int) -> None:
    rows = space.create_dictionary("d")
    rows.update({key: {"n": 2**63 + key} for key in range(count)})
    space.checkpoint()
    assert space.check_mutations() == []
    for key in range(count):
        row = rows[key]
        row["n"] += 1
        assert space.check_mutations() == [("d", key)]
        rows[key] = row
    assert space.checkpoint().slots == count
    rows.update(rows.copy())
    assert (space.check_mutations(), space.checkpoint().slots) == ([], 0)
    assert PersistedObjectSpace(space.store).get("d") == {key: {"n": 2**63 + key + 1} for key in range(count)}


def test_names_and_kinds(space: PersistedObjectSpace) -> None:
    space.create_list("l")
    with pytest.raises(NameInUseError):
        space.create_set("l")
    with pytest.raises(WrongKindError):
        space.get_set("l")
    for missing in (lambda: space.get("x"), lambda: space.delete("x"), lambda: space.rename("x", "y")):
        with pytest.raises(ObjectNotFoundError):
            missing()
    with pytest.raises(NameInUseError):
        space.rename("l", "l")
    with pytest.raises(ValueError, match="surrogate"):
        space.create_list("\ud800")
    with pytest.raises(TypeError):
        space.create_list(5)  # type: ignore[arg-type]
    assert (space.kind_of("l"), len(space), list(space)) == ("List", 1, ["l"])


@pytest.mark.parametrize("when", ["before", "in flight", "committed"])
def test_an_owner_is_deleted_while_its_children_are_dirty(space: PersistedObjectSpace, when: str) -> None:
    groups = space.create_dictionary("g", of="queue")
    groups["a"] = [1, 2]
    child = groups["a"]
    space.checkpoint()
    child.enqueue(3)
    writer = space.store.writer()
    if when != "before":
        space.save(writer)
    if when == "committed":
        writer.commit()
    child.enqueue(4)
    del groups["a"]
    groups["a"] = [9]
    if when == "in flight":
        writer.rollback()
    with pytest.raises(ObjectNotFoundError):
        child.enqueue(5)
    space._check()
    space.checkpoint()
    assert groups.copy() == PersistedObjectSpace(space.store).get("g").copy()
    assert list(groups["a"]) == [9]


@pytest.mark.parametrize("of", ["list", "queue", "stack", "linked_list", "set", "sorted_set", "dictionary", "value"])
def test_objects_of_every_kind_can_be_owned(space: PersistedObjectSpace, of: str) -> None:
    groups = space.create_dictionary("g", of=of)
    PUTS[of](groups.setdefault("a"), 1)
    groups["b"] = {1: 2} if of == "dictionary" else [1]
    space.checkpoint()
    PUTS[of](groups["b"], 3)
    space.rename("g", "h")
    assert set(space.checkpoint().objects) == {"h['b']"}
    found = PersistedObjectSpace(space.store).get("h")
    assert [list(found), repr(found)] == [["a", "b"], repr(groups)]
    assert len(space.store.reader().image().index) == 1


@pytest.mark.parametrize("ending", ["rollback", "commit"])
def test_a_dictionary_opened_in_flight_gets_back_what_the_save_removed(
    space: PersistedObjectSpace, ending: str
) -> None:
    items = space.create_dictionary("d")
    items.update(dict.fromkeys(range(10), "old"))
    space.checkpoint()
    del items[3]
    writer = space.store.writer()
    space.save(writer)
    items.update(dict.fromkeys(range(2, 6), "new"))
    getattr(writer, ending)()
    items[7] = "newer"
    space.checkpoint()
    space._check()
    found = PersistedObjectSpace(space.store).get("d")
    assert list(found.items()) == list(items.items())
    assert list(found) == [0, 1, 2, 4, 5, 6, 7, 8, 9, 3]


def test_a_scan_in_flight_leaves_no_trace(space: PersistedObjectSpace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "WHOLE_SLOTS", 0)
    space.create_sorted_dictionary("s").update(dict.fromkeys(range(10), 0))
    space.checkpoint()
    items = PersistedObjectSpace(space.store).get("s")
    items[4.5] = 1
    writer = space.store.writer()
    items._home.save(writer)
    before = list(items.irange(3, 6))
    writer.commit()
    items._home.on_saved()
    assert before == list(items.irange(3, 6)) == [3, 4, 4.5, 5, 6]


def test_a_child_that_was_cleared_has_one_handle_whatever_its_owner_forgets(space: PersistedObjectSpace) -> None:
    groups = space.create_dictionary("g", of=list)
    groups["a"] = range(100)
    space.checkpoint()
    child = groups["a"]
    child.clear()
    child.append("new")
    space.checkpoint()
    space._evict(gently=False)
    assert groups["a"] is child
    child.append("more")
    space.checkpoint()
    assert PersistedObjectSpace(space.store).get("g").copy() == {"a": ["new", "more"]}


def test_a_value_in_two_types_of_equal_keys_stays_under_the_first(space: PersistedObjectSpace) -> None:
    for kind in ("dictionary", "sorted_dictionary"):
        items = create(space, kind, kind)
        items[1] = "a"
        space.checkpoint()
        items[True] = "b"
        space.checkpoint()
        assert repr(list(PersistedObjectSpace(space.store).get(kind))) == "[1]"
        del items[1]
        items[True] = "b"
        space.checkpoint()
        assert repr(list(PersistedObjectSpace(space.store).get(kind))) == "[True]"


def test_what_failed_before_the_first_save_is_saved_later(space: PersistedObjectSpace) -> None:
    items = space.create_list("l")
    items.extend([1, [2]])
    for change in (lambda: items.insert(0, 0), lambda: items.pop(), lambda: items.clear()):
        writer = space.store.writer()
        space.save(writer)
        change()
        writer.rollback()
        space._check()
    items.append("end")
    space.checkpoint()
    assert list(PersistedObjectSpace(space.store).get("l")) == ["end"]


def test_commit_async_lets_others_go_on(tmp_path: Path) -> None:
    async def run() -> list[int]:
        with PersistedObjectSpace.open(tmp_path / "state.db") as space:
            items = space.create_list("l")
            items.extend(range(10_000))
            writer = space.store.writer()
            space.save(writer)
            commit = asyncio.create_task(writer.commit_async())
            await asyncio.sleep(0)
            items.append("later")
            await commit
            space.on_saved()
            return [space.checkpoint().slots, len(PersistedObjectSpace(space.store).get("l"))]

    assert asyncio.run(run()) == [1, 10_001]


@pytest.mark.parametrize("kind", ["dictionary", "sorted_dictionary", "set", "list", "queue", "stack"])
def test_threads_read_while_another_one_commits(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "WHOLE_SLOTS", 10)
    put = (lambda t, n: t.__setitem__(n, n)) if "dictionary" in kind else PUTS[kind]
    with PersistedObjectSpace.open(tmp_path / "state.db", cache_slots=200) as space:
        for number in range(2000):
            put(space.get("t") if "t" in space else create(space, kind, "t"), number)
        space.create_list("written")
        space.checkpoint()
    with PersistedObjectSpace.open(tmp_path / "state.db", cache_slots=200) as space:
        target, written, failures, expected = space.get("t"), space.get("written"), [], sorted(range(2000))

        def _read() -> None:
            try:
                for turn in range(5):
                    assert sorted(target) == expected
                    if hasattr(target, "keys"):
                        assert all(target[key] == key for key in range(turn, 2000, 7))
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=_read) for _ in range(4)]
        for thread in threads:
            thread.start()
        for number in range(20):
            written.append(number)
            writer = space.store.writer(CheckpointKind.FULL if number == 10 else CheckpointKind.DIFFERENTIAL)
            space.save(writer)
            writer.commit()
        for thread in threads:
            thread.join()
        space._check()
        assert failures == []
        space.checkpoint()
        assert list(PersistedObjectSpace(space.store).get("written")) == list(range(20))


def test_a_space_does_not_save_onto_another_checkpoint_of_the_number_that_it_has_read() -> None:
    store = CheckpointStore(":memory:")
    one = PersistedObjectSpace(store)
    letters = one.create_dictionary("letters")
    for value in (1, 2):
        letters["a"] = value
        one.checkpoint()
    other = PersistedObjectSpace(store)
    assert other.get("letters")["a"] == 2
    one.rollback(epoch=1)
    letters["b"] = 5
    one.checkpoint()
    other.get("letters")["c"] = 1
    with pytest.raises(CheckpointProtocolError, match="has moved on since this space read it"):
        other.checkpoint()
    other.rollback()
    other.get("letters")["c"] = 1
    other.checkpoint()
    assert (store.verify(), other.get("letters")) == (3, {"a": 1, "b": 5, "c": 1})


def test_a_save_is_not_committed_onto_what_another_space_has_committed_since() -> None:
    store = CheckpointStore(":memory:")
    one = PersistedObjectSpace(store)
    one.create_dictionary("letters")["a"] = 1
    one.checkpoint()
    other = PersistedObjectSpace(store)
    one.get("letters")["b"] = 1
    writer = store.writer()
    one.save(writer)
    other.get("letters")["c"] = 1
    other.checkpoint()
    with pytest.raises(CheckpointError, match="has moved on since the save"):
        writer.commit()
    assert one.get("letters") == {"a": 1, "b": 1}, "its edits stay"
    with pytest.raises(CheckpointProtocolError, match="has moved on"):
        one.checkpoint()
    one.rollback()
    assert (store.verify(), one.get("letters")) == (2, {"a": 1, "c": 1})


def test_what_another_space_commits_before_the_acknowledgement_is_not_taken_for_ones_own() -> None:
    store = CheckpointStore(":memory:")
    one = PersistedObjectSpace(store)
    one.create_list("letters").append("a")
    writer = store.writer()
    one.save(writer)
    writer.commit()
    other = PersistedObjectSpace(store)
    other.get("letters").append("b")
    other.checkpoint()
    one.on_saved()
    one.get("letters").append("c")
    with pytest.raises(CheckpointProtocolError, match="has moved on"):
        one.checkpoint()
    one.rollback()
    assert (store.verify(), one.get("letters")) == (2, ["a", "b"])


def test_two_threads_with_a_space_each_lose_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path / "s.db")
    PersistedObjectSpace(store).create_list("of nobody")

    def work(name: str) -> list[int]:
        space, written = PersistedObjectSpace(store), []
        for number in range(60):
            try:
                space.get_or_create_list(name).append(number)
                space.checkpoint()
                written.append(number)
            except (CheckpointError, CheckpointProtocolError):
                space.rollback()
        return written

    with ThreadPoolExecutor(2) as pool:
        expected = dict(zip("ab", pool.map(work, "ab"), strict=True))
    space = PersistedObjectSpace(store)
    assert {name: list(space.get(name)) for name in space} == expected
    assert store.verify() > 0
    assert store.next_number() - 1 == sum(map(len, expected.values()))
    store.close()


@pytest.mark.parametrize(
    ("error", "is_refusal"), [(CheckpointProtocolError, True), (ValueError, True), (KeyError, False), (OSError, False)]
)
def test_what_is_called_before_a_checkpoint_refuses_it_or_has_failed_in_its_midst(
    error: type[Exception], is_refusal: bool
) -> None:
    space = PersistedObjectSpace(CheckpointStore(":memory:"))
    value = space.create_value("v", 1)
    space.checkpoint()
    value.value = 2
    hook = Mock(side_effect=[error("not now"), None, None])
    space.on_barrier(hook)
    with pytest.raises(error, match="not now"):
        space.checkpoint()
    if not is_refusal:
        with pytest.raises(CheckpointProtocolError, match=r"go back to the last checkpoint with rollback\(\)"):
            space.checkpoint()
        space.rollback()
    space.checkpoint()
    assert value.value == (2 if is_refusal else 1)


@pytest.mark.parametrize("kind", list(CheckpointKind))
def test_a_run_that_nobody_applied_is_not_durable(kind: CheckpointKind) -> None:
    space = PersistedObjectSpace(CheckpointStore(":memory:"))
    value = space.create_value("v", 1)
    space.checkpoint(kind=CheckpointKind.FULL)
    for is_applied in (False, True):
        value.value += 1
        writer = RunWriter(kind)
        space.save(writer)
        writer.commit()
        if is_applied:
            space.store.apply(writer.run)
            space.on_saved()
        else:
            with pytest.raises(CheckpointProtocolError):
                space.on_saved()
        assert space.checkpoint().slots == (0 if is_applied else 1)
        assert PersistedObjectSpace(space.store).get("v").value == value.value
