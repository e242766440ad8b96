"""The change feed without Spark: what it gives adds up to the table, whatever became of the space and its caches."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import StructType

from checkpoint import CheckpointError, CheckpointStore, CorruptStoreError, UnknownCheckpointError
from checkpoint.chain import AcceptedRun, Chain, SourcePosition, location_at, write_image
from checkpoint.chain.manifest import seal
from checkpoint.tool.copying import fork_space, restore_space
from objectspace import PersistedObjectSpace
from objectspace.errors import ObjectSpaceError
from objectspace.relational import Column, StateTable, TableSchema
from objectspace.spark import open_shard, rescale, save_shard, shard_of
from objectspace.spark.source import ObjectSpaceSource, SpaceReader
from objectspace.spark.subject import Subject
from tests.spark.feed_readers import FeedReaders

OPERATOR = "totals"
SCHEMA = TableSchema([Column("k", "string"), Column("v", "int64")], ["k"])

Edits = dict[str, int | None]
Change = tuple[Any, ...]


FEED_SCHEMA = StructType().add("op", "string").add("epoch", "long").add("k", "string").add("v", "long")


def feed(path: str, most: int = 1000) -> FeedReaders:
    options = {"path": path, "table": "t", "changes": "true", "maxEpochsPerTrigger": str(most)}
    return FeedReaders(ObjectSpaceSource(options), FEED_SCHEMA)


def changes_of(reader: Any, start: dict[str, Any], end: dict[str, Any]) -> list[Change]:
    return planned(reader, reader.partitions(start, end))


def planned(reader: Any, parts: Sequence[Any]) -> list[Change]:
    """Return what the tasks of partitions that were planned give."""
    batches = [batch for part in parts for batch in reader.read(part)]
    return [(row["op"], row["epoch"], row["k"], row["v"]) for batch in batches for row in batch.to_pylist()]


class Space:
    """A space with one table, whose epochs are published without Spark."""

    def __init__(self, folder: Path) -> None:
        self.path, self._cache = str(folder / "space"), str(folder / "cache")
        self.rows: dict[str, int] = {}

    def epoch(self, edits: Edits, shards: int = 1, images: Sequence[AcceptedRun] = (), full_after: int = 64) -> Chain:
        """Publish an epoch that sets some keys, or deletes those that are None."""
        chain = Chain.open_or_create(location_at(self.path), shards)
        batch = chain.newest.committed["q"] + 1 if chain.newest else 0
        plan = chain.begin(SourcePosition("q", batch), [OPERATOR], full_after, self._cache)
        assert plan is not None
        operator, saved = plan.operators[OPERATOR], []
        for shard in range(shards):
            with open_shard(operator, shard) as space:
                table = StateTable(space, "t", SCHEMA)
                for key, value in edits.items():
                    if shard_of(shards, key) == shard:
                        self._edit(table, key, value)
                saved.append(save_shard(operator, space, shard))
        chain.publish(plan, {OPERATOR: saved}, {}, images)
        return chain

    def image(self, epoch: int | None = None) -> AcceptedRun:
        plan = Chain.open(location_at(self.path)).operator_plan(OPERATOR, epoch, cache=self._cache)
        return write_image(plan, 0)

    def rescale(self, shards: int) -> None:
        rescale(self.path, shards, keyed={OPERATOR: ["t"]})

    def reader(self, most: int = 1000) -> FeedReaders:
        return feed(self.path, most)

    def latest(self, start: dict[str, Any], most: int = 1000) -> dict[str, Any]:
        """Return the offset that a trigger of a feed that comes from another one reads up to."""
        return self.reader(most).latestOffset(start, None)

    def read(self, start: int, end: int) -> list[Change]:
        """Return the changes of the epochs after one up to another."""
        reader = self.reader()
        found = changes_of(reader, {"epoch": start}, {"epoch": end})
        return sorted(found, key=lambda row: (row[1], row[2], row[0] in ("+", "U+")))

    def _edit(self, table: StateTable, key: str, value: int | None) -> None:
        old = self.rows.pop(key, None)
        if old is not None:
            table.delete_row((key, old))
        if value is not None:
            self.rows[key] = value
            table.insert_row((key, value))


@pytest.fixture
def space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Space:
    """A space that holds nothing yet, and readers whose cache is new."""
    monkeypatch.setenv("OBJECTSPACE_CACHE", str(tmp_path / "readers"))
    return Space(tmp_path)


@pytest.fixture
def new_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """A function that gives readers from now on another cache."""
    return lambda name: monkeypatch.setenv("OBJECTSPACE_CACHE", str(tmp_path / name))


def net(changes: Sequence[Change]) -> dict[str, int]:
    """Return the rows that changes add up to."""
    total: Counter[tuple[str, int]] = Counter()
    for op, _, *row in changes:
        total[row[0], row[1]] += 1 if op in ("+", "U+") else -1
    assert set(total.values()) <= {0, 1}
    return {key: value for (key, value), count in total.items() if count}


def with_image(space: Space) -> None:
    """Make five epochs, of which later ones start from an image of the third."""
    for number, key in enumerate("abc"):
        space.epoch({key: number})
    space.epoch({"d": 3}, images=[space.image(3)])
    space.epoch({"a": None, "e": 4})


def with_full_run(space: Space) -> None:
    """Make five epochs, of which the fourth deletes a row and is a full run."""
    for number, key in enumerate("abc"):
        space.epoch({key: number})
    space.epoch({"a": None, "b": 9}, full_after=0)
    space.epoch({"c": None})


@pytest.mark.parametrize("make", [with_image, with_full_run])
def test_a_new_machine_gives_what_one_gives_that_was_there(
    space: Space, new_machine: Callable[[str], None], make: Callable[[Space], None]
) -> None:
    make(space)
    assert len(Chain.open(location_at(space.path)).lineage(OPERATOR, 0)) < 5, "the state starts later"
    stepwise = [change for epoch in range(5) for change in space.read(epoch, epoch + 1)]
    assert {change[1] for change in stepwise} == {1, 2, 3, 4, 5}
    assert net(stepwise) == space.rows
    for start in range(5):
        for end in range(start + 1, 6):
            new_machine(f"{start}-{end}")
            assert space.read(start, end) == [change for change in stepwise if start < change[1] <= end]


def test_what_a_full_run_deletes_is_told(space: Space) -> None:
    with_full_run(space)
    assert space.read(3, 5) == [("-", 4, "a", 0), ("U-", 4, "b", 1), ("U+", 4, "b", 9), ("-", 5, "c", 2)]


def test_more_epochs_at_once_than_a_cache_keeps_states(space: Space) -> None:
    for number in range(40):
        space.epoch({f"k{number % 7}": number})
    changes = space.read(0, 40)
    assert len(changes) == 7 + 2 * 33
    assert net(changes) == space.rows


def test_the_same_epochs_are_read_again_without_the_run_files(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    with_image(space)
    reader = space.reader()
    parts = [reader.partitions({"epoch": start}, {"epoch": end}) for start, end in [(0, 2), (2, 5)]]
    first = [planned(reader, some) for some in parts]
    assert all(first)
    monkeypatch.setattr("checkpoint.chain.folding.read_run", lambda *_: pytest.fail("the cache has it"))
    assert [planned(reader, some) for some in parts] == first


def test_a_rescale_changes_no_row(space: Space) -> None:
    for number in range(6):
        space.epoch({f"k{number}": number}, shards=2)
    space.rescale(3)
    space.epoch({"k1": 10, "k2": None}, shards=3)
    space.rescale(1)
    space.rescale(2)
    space.epoch({"k3": 11, "new": 12}, shards=2)
    changes = space.read(0, 11)
    assert net(changes) == space.rows
    assert {change[1] for change in changes} == {1, 2, 3, 4, 5, 6, 8, 11}
    assert [space.read(epoch, epoch + 1) for epoch in (6, 8, 9)] == [[], [], []]
    assert [change for end in range(11) for change in space.read(end, end + 1)] == changes


def test_epochs_from_before_a_rescale_are_read_with_their_shards(space: Space) -> None:
    space.epoch({"a": 1, "b": 2, "c": 3})
    space.rescale(4)
    space.epoch({"a": None}, shards=4)
    reader = space.reader()
    spans = [(part.shard, part.span.first, part.span.last) for part in reader.partitions({"epoch": 0}, {"epoch": 3})]
    assert spans == [(0, 1, 1), *((shard, 3, 3) for shard in range(4))]
    assert space.read(0, 1) == [("+", 1, "a", 1), ("+", 1, "b", 2), ("+", 1, "c", 3)]
    assert space.read(1, 3) == [("-", 3, "a", 1)]


@pytest.mark.parametrize("is_old", [False, True])
def test_a_copy_of_a_space_with_fewer_shards_than_once_gives_the_same_changes(
    space: Space, tmp_path: Path, is_old: bool
) -> None:
    space.epoch({f"k{n}": n for n in range(9)}, shards=3)
    space.rescale(2)
    space.epoch({"k1": None, "more": 9}, shards=2)
    wanted = space.read(0, 3)
    assert net(wanted) == space.rows
    fork_space(Chain.open(location_at(space.path)), str(tmp_path / "copy"), 3, (), lambda done, total: None)
    space.path = str(tmp_path / "copy")
    copy = Chain.open(location_at(space.path))
    assert [copy.shards_at(epoch) for epoch in range(4)] == [3, 3, 2, 2]
    if is_old:
        copy.location.write("space.json", seal(asdict(replace(copy.space, shards=2))))
    assert space.read(0, 3) == wanted


def test_a_reader_from_before_a_rescale_stays_with_its_shards(space: Space) -> None:
    space.epoch({"a": 1, "b": 2, "c": 3}, shards=4)
    subject = Subject.of({"path": space.path, "table": "t"})
    reader = SpaceReader(subject, subject.schema())
    space.rescale(2)
    rows = [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]
    assert {row["k"]: row["v"] for row in rows} == space.rows


def test_a_feed_that_begins_after_a_collection_begins_with_all_rows(space: Space) -> None:
    with_image(space)
    chain = space.epoch({"c": 7})
    chain.collect(grace_seconds=0, keep_epochs=2)
    assert space.latest({"epoch": 0}, most=1)["epoch"] == 5
    assert space.read(0, 5) == [("+", 5, "b", 1), ("+", 5, "c", 2), ("+", 5, "d", 3), ("+", 5, "e", 4)]
    assert net(space.read(0, 6)) == space.rows
    assert space.read(5, 6) == [("U-", 6, "c", 2), ("U+", 6, "c", 7)]
    for start, end in ((3, 6), (0, 4)):
        with pytest.raises(UnknownCheckpointError, match="the oldest that is kept is 5: start a new feed"):
            space.read(start, end)


@pytest.mark.parametrize("start", [0, 1])
def test_a_task_says_that_a_collection_has_overtaken_its_feed(space: Space, start: int) -> None:
    for number in range(3):
        chain = space.epoch({"a": number}, full_after=0)
    planned_first = space.reader().partitions({"epoch": start}, {"epoch": 3})
    chain.collect(grace_seconds=0, keep_epochs=1)
    whole = space.reader().partitions({"epoch": 0}, {"epoch": 3})
    assert net(planned(space.reader(), whole)) == {"a": 2}
    for number in range(4):
        chain = space.epoch({"b": number}, full_after=0)
    chain.collect(grace_seconds=0, keep_epochs=2)
    for epoch, parts in ((start, planned_first), (3, whole)):
        with pytest.raises(
            UnknownCheckpointError, match=f"from epoch {epoch}, and the oldest that is kept is 6: start"
        ):
            planned(space.reader(), parts)


@pytest.mark.parametrize("is_collected", [True, False])
def test_a_task_that_a_collection_overtakes_halfway_says_so(space: Space, is_collected: bool) -> None:
    for number in range(4):
        chain = space.epoch({"a": number}, full_after=0)
    [part] = space.reader().partitions({"epoch": 1}, {"epoch": 4})
    task = iter(space.reader().read(part))
    assert next(task)["epoch"].to_pylist() == [2, 2]
    space.epoch({"b": 1}, full_after=0)
    if is_collected:
        assert Chain.open(chain.location).collect(grace_seconds=0, keep_epochs=1).first_epoch == 5
    else:
        chain.location.delete(chain.lineage(OPERATOR, 0, 4)[-1].file)
    error, told = (
        (UnknownCheckpointError, "from epoch 1, and the oldest that is kept is 5: start a new feed")
        if is_collected
        else (CorruptStoreError, r"\(epoch 4, totals/0\) is missing: restore it from a backup")
    )
    with pytest.raises(error, match=told):
        list(task)


def test_a_restart_goes_on_from_its_start(space: Space) -> None:
    for number in range(5):
        space.epoch({"a": number})
    assert space.latest({"epoch": 0}, most=2)["epoch"] == 2
    assert space.latest({"epoch": 4}, most=2)["epoch"] == 5
    assert space.latest({"epoch": 5}, most=2)["epoch"] == 5
    assert space.read(5, 5) == []


def test_the_source_gives_the_columns_that_the_stream_has(space: Space) -> None:
    space.epoch({"a": 1})
    source = ObjectSpaceSource({"path": space.path, "table": "t", "changes": "true"})
    reader = FeedReaders(source)
    assert source.schema().names == ["op", "epoch", "k", "v"]
    assert changes_of(reader, {"epoch": 0}, {"epoch": 1}) == [("+", 1, "a", 1)]


def test_a_feed_has_the_columns_of_its_start_whatever_the_table_had_and_comes_to_have(tmp_path: Path) -> None:
    path = str(tmp_path / "state.db")
    with PersistedObjectSpace.open(path) as space:
        table = StateTable(space, "t", SCHEMA)
        table.insert_row(("a", 1))
        space.checkpoint()
        added = table.schema.with_column(Column("n", "string", default="?")).renamed("v", "w")
        table = StateTable(space, "t", added, evolve=True)
        table.insert_row(("b", 2, "x"))
        space.checkpoint()

        def feed_of(*names: str) -> Callable[[int], list[tuple[Any, ...]]]:
            source = ObjectSpaceSource({"path": path, "table": "t", "changes": "true", "columns": ",".join(names)})
            reader = FeedReaders(source)

            def read(end: int) -> list[tuple[Any, ...]]:
                parts = reader.partitions({"epoch": 0}, {"epoch": end})
                batches = [batch for part in parts for batch in reader.read(part)]
                return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]

            return read

        whole, part = feed_of("k", "w", "n"), feed_of("k", "w")
        assert whole(2) == [("+", 1, "a", 1, "?"), ("+", 2, "b", 2, "x")]
        table = StateTable(
            space, "t", table.schema.without_column("n").with_column(Column("m", "bool", True)), evolve=True
        )
        table.insert_row(("c", 3, None))
        space.checkpoint()
        assert part(3) == [("+", 1, "a", 1), ("+", 2, "b", 2), ("+", 3, "c", 3)]
        with pytest.raises(ObjectSpaceError, match="table 't' at epoch 3 no longer has column 'n'"):
            whole(3)


@pytest.mark.parametrize("taken", ["op", "epoch"])
def test_columns_that_are_called_as_those_of_changes_are_refused(tmp_path: Path, taken: str) -> None:
    with PersistedObjectSpace.open(tmp_path / "state.db") as space:
        StateTable(space, "t", TableSchema([Column(taken, "string"), Column("v", "int64")], [taken]))
        space.checkpoint()
    options = {"path": str(tmp_path / "state.db"), "table": "t", "changes": "true"}
    with pytest.raises(ObjectSpaceError, match=f"table 't' has a column '{taken}', .*: choose others with the option"):
        ObjectSpaceSource(options).schema()
    assert ObjectSpaceSource({**options, "columns": "v"}).schema().names == ["op", "epoch", "v"]


@pytest.mark.parametrize("text", ["0", "-1", "abc", "²", "1.5"])
def test_epochs_a_trigger_that_are_no_number_are_refused(space: Space, text: str) -> None:
    space.epoch({"a": 1})
    source = ObjectSpaceSource({"path": space.path, "table": "t", "changes": "true", "maxEpochsPerTrigger": text})
    with pytest.raises(ObjectSpaceError, match=f"option maxEpochsPerTrigger is '{text}': expected a number of at"):
        FeedReaders(source)


def test_the_feed_of_a_file_begins_with_what_the_file_still_has(tmp_path: Path) -> None:
    rows: dict[str, int] = {}
    with PersistedObjectSpace(CheckpointStore(tmp_path / "state.db", history=4)) as space:
        table = StateTable(space, "t", SCHEMA)
        for epoch in range(1, 31):
            rows[f"k{epoch % 7}"] = epoch
            table.insert_row((f"k{epoch % 7}", epoch))
            space.checkpoint(epoch=epoch)
        space.store.close()
    subject = Subject.of({"path": str(tmp_path / "state.db"), "table": "t"})
    oldest, newest = subject.epochs()
    assert 1 < oldest <= 27
    assert newest == 30
    reader = feed(str(tmp_path / "state.db"))

    def read(start: int, end: int) -> list[Change]:
        return changes_of(reader, {"epoch": start}, {"epoch": end})

    assert net(read(0, 30)) == rows
    assert net(read(0, oldest) + read(oldest, 30)) == rows
    assert read(29, 30) == [("U-", 30, "k2", 23), ("U+", 30, "k2", 30)]
    with pytest.raises(
        UnknownCheckpointError, match=rf"comes from epoch 1, and the oldest that is kept is {oldest}: start"
    ):
        read(1, 30)


@pytest.mark.parametrize("epochs", [(0,), (0, 1, 2), (-3, 0, 5), (-3, -1)])
def test_the_feed_of_a_file_has_epoch_0_and_those_below(tmp_path: Path, epochs: Sequence[int]) -> None:
    path = str(tmp_path / "state.db")
    with PersistedObjectSpace.open(path) as space:
        if epochs[0] < 0:  # A table takes epochs below 1 only after such a checkpoint.
            space.checkpoint(epoch=-9)
        table = StateTable(space, "t", SCHEMA)
        for epoch in epochs:
            table.insert_row((f"k{epoch}", epoch))
            space.checkpoint(epoch=epoch)
    wanted = [("+", epoch, f"k{epoch}", epoch) for epoch in epochs]
    for most in (1, 1000):
        reader = feed(path, most)
        found, seen = [], reader.initialOffset()
        while (following := reader.latestOffset(seen, None)) != seen:
            found += changes_of(reader, seen, following)
            seen = following
        assert (found, reader.partitions(seen, seen)) == (wanted, [])
    assert (reader.initialOffset(), seen["epoch"]) == ({"epoch": 0}, epochs[-1])


def test_the_feed_of_a_file_that_has_seen_epoch_0_says_that_what_follows_is_gone(tmp_path: Path) -> None:
    path = str(tmp_path / "state.db")
    with PersistedObjectSpace(CheckpointStore(path)) as space:
        for epoch in range(4):
            StateTable(space, "t", SCHEMA).insert_row((f"k{epoch}", epoch))
            space.checkpoint(epoch=epoch)
        seen = feed(path, 1).latestOffset({"epoch": 0}, None)
        space.store.prune(keep=2)
        end = feed(path).latestOffset(seen, None)
        with pytest.raises(UnknownCheckpointError, match="comes from epoch 0, and the oldest that is kept is 2: start"):
            feed(path).partitions(seen, end)
        assert len(changes_of(feed(path), {"epoch": 0}, end)) == 4
        space.store.close()


def put_back(copy: Path, place: str) -> None:
    """Put a copy of a space, or of a store file, in its place."""
    if copy.is_dir():
        shutil.rmtree(place)
        shutil.copytree(copy, place)
    else:
        shutil.copy(copy, place)


@pytest.mark.parametrize(("more", "found"), [(0, "the newest epoch is 1"), (2, "epoch 3 has"), (4, "epoch 3 has")])
@pytest.mark.parametrize("is_anew", [False, True])
def test_a_feed_goes_on_in_no_other_history(
    space: Space, tmp_path: Path, more: int, found: str, *, is_anew: bool
) -> None:
    space.epoch({"a": 1})
    shutil.copytree(space.path, tmp_path / "older")
    space.epoch({"b": 2})
    seen = space.latest({"epoch": 0}, most=3)
    space.epoch({"c": 3})
    after = space.latest(seen)
    shutil.copytree(space.path, tmp_path / "whole")
    put_back(tmp_path / "older", space.path)
    if is_anew:
        shutil.rmtree(space.path)
        space.epoch({"x": 0})
    for number in range(more):
        space.epoch({f"n{number}": number})
    again = pytest.raises(
        CheckpointError,
        match=f"{space.path}: the change feed comes from epoch 3: expected .*mark {after['history']}"
        f", found that {found}.*put back what it has followed, or start a new feed, with another checkpointLoc",
    )
    with again:
        space.latest(after)
    for start, end in ((seen, after), (after, {"epoch": 5})):
        with pytest.raises(CheckpointError, match=r"the change feed comes from epoch [23]"):
            space.reader().partitions(start, end)
    put_back(tmp_path / "whole", space.path)
    assert space.latest(after) == after
    space.rows = {"a": 1, "b": 2, "c": 3}
    space.epoch({"d": 4})
    assert space.latest(after)["epoch"] == 4


@pytest.mark.parametrize(("more", "found"), [(0, "the newest epoch is 1"), (1, "epoch 2 has"), (3, "epoch 2 has")])
@pytest.mark.parametrize("options", [{}, {"epoch": "2"}])
def test_a_data_frame_gives_no_row_of_another_history(
    space: Space, tmp_path: Path, more: int, found: str, options: dict[str, str]
) -> None:
    space.epoch({"a": 1})
    shutil.copytree(space.path, tmp_path / "older")
    space.epoch({"b": 2})
    shutil.copytree(space.path, tmp_path / "whole")
    source = ObjectSpaceSource({"path": space.path, "table": "t", **options})
    reader = source.reader(source.schema())
    [part] = reader.partitions()
    put_back(tmp_path / "older", space.path)
    for number in range(more):
        space.epoch({f"n{number}": number})
    for read in (reader.partitions, lambda: list(reader.read(part))):
        with pytest.raises(
            CheckpointError, match=f"the DataFrame is of epoch 2: expected .* found that {found}.*: reload it"
        ):
            read()
    put_back(tmp_path / "whole", space.path)
    space.rows = {"a": 1, "b": 2}
    space.epoch({"c": 3})
    assert [batch.to_pydict() for batch in reader.read(part)] == [{"k": ["a", "b"], "v": [1, 2]}]


def test_a_feed_that_has_read_nothing_has_no_history(space: Space) -> None:
    Chain.open_or_create(location_at(space.path), 1)
    start = space.reader().initialOffset()
    assert (start, space.latest(start)) == ({"epoch": 0}, {"epoch": 0})
    shutil.rmtree(space.path)
    space.epoch({"a": 1})
    assert space.latest(start) == space.latest(start)
    assert space.latest(start)["epoch"] == 1


def test_an_offset_of_an_earlier_version_says_only_that_its_epoch_must_be_there(space: Space) -> None:
    for number in range(3):
        space.epoch({"a": number})
    assert space.latest({"epoch": 3}) == {"epoch": 3}
    assert space.latest({"epoch": 2}).keys() == {"epoch", "history"}
    with pytest.raises(
        CheckpointError, match=r"comes from epoch 4: expected that epoch, found that the newest .* is 3"
    ):
        space.latest({"epoch": 4})


def test_a_feed_whose_epoch_was_collected_goes_on_while_it_has_nothing_to_read(space: Space) -> None:
    space.epoch({"a": 1})
    reader = space.reader()
    reader.prepareForTriggerAvailableNow()
    seen = space.latest({"epoch": 0})
    chain = [space.epoch({"a": number}, full_after=0) for number in range(3)][-1]
    chain.collect(grace_seconds=0, keep_epochs=1)
    assert reader.latestOffset(seen, None) == seen
    with pytest.raises(UnknownCheckpointError, match="the oldest that is kept is 4: start a new feed"):
        space.reader().partitions(seen, space.latest(seen))


@pytest.mark.parametrize("is_fork", [True, False])
@pytest.mark.parametrize("names", [(), ("t",)])
def test_a_feed_goes_on_in_a_copy_that_has_what_it_has_read(
    space: Space, tmp_path: Path, names: tuple[str, ...], *, is_fork: bool
) -> None:
    for number in range(3):
        space.epoch({f"k{number}": number})
    chain, copy = Chain.open(location_at(space.path)), tmp_path / "copy"
    seen, later = space.latest({"epoch": 0}, most=2), space.latest({"epoch": 0})
    if is_fork:
        fork_space(chain, str(copy), 2, names, lambda done, total: None)
    else:
        restore_space(chain, str(copy), 2, [(OPERATOR, 0)], names, lambda done, total: None)
    put_back(copy, space.path)
    del space.rows["k2"]
    with pytest.raises(CheckpointError, match=r"comes from epoch 3: expected that epoch with the mark .* the newest"):
        space.latest(later)
    space.epoch({"new": 9, "k0": None})
    with pytest.raises(CheckpointError, match="found that epoch 3 has the mark"):
        space.latest(later)
    end = space.latest(seen)
    assert sorted(changes_of(space.reader(), seen, end)) == [("+", 3, "new", 9), ("-", 3, "k0", 0)]


def test_a_task_reads_the_history_that_its_epochs_were_planned_in(space: Space, tmp_path: Path) -> None:
    space.epoch({"a": 1})
    shutil.copytree(space.path, tmp_path / "older")
    space.epoch({"b": 2})
    [part] = space.reader().partitions({"epoch": 0}, {"epoch": 2})
    put_back(tmp_path / "older", space.path)
    space.epoch({"c": 3})
    with pytest.raises(CheckpointError, match=r"comes from epoch 2: expected .* found that epoch 2 has the mark"):
        list(space.reader().read(part))


@pytest.mark.parametrize("held_epochs", [(), (2,), (1, 3)])
def test_a_task_gives_all_changes_of_a_file_that_were_planned_or_says_that_they_are_gone(
    tmp_path: Path, held_epochs: Sequence[int]
) -> None:
    path = str(tmp_path / "state.db")
    with PersistedObjectSpace(CheckpointStore(path)) as space:
        table = StateTable(space, "t", SCHEMA)
        for epoch in range(1, 7):
            table.insert_row((f"k{epoch}", epoch))
            space.checkpoint()
        parts = {start: feed(path).partitions({"epoch": start}, {"epoch": 6}) for start in (0, 3, 5)}

        def read(start: int) -> list[Change]:
            return planned(feed(path), parts[start])

        whole = [("+", epoch, f"k{epoch}", epoch) for epoch in range(1, 7)]
        assert (read(0), read(3), read(5)) == (whole, whole[3:], whole[5:])
        held = [space.store.reader(epoch=epoch) for epoch in held_epochs]
        space.store.prune(keep=2)
        assert (read(0), read(5)) == ([("+", 5, *row) for _, _, *row in whole[:5]] + whole[5:], whole[5:])
        with pytest.raises(UnknownCheckpointError, match="comes from epoch 3, and the oldest that is kept is 5: start"):
            read(3)
        space.checkpoint()
        space.store.prune(keep=1)
        for start in parts:
            with pytest.raises(UnknownCheckpointError, match=f"from epoch {start}, and the oldest that is kept is 7"):
                read(start)
        assert [reader.newest for reader in held] == [*held_epochs]
        space.store.close()


def test_who_reads_a_file_goes_on_in_no_other_history(tmp_path: Path) -> None:
    path = str(tmp_path / "state.db")

    def write(key: str, epoch: int) -> None:
        with PersistedObjectSpace(CheckpointStore(path)) as space:
            StateTable(space, "t", SCHEMA).insert_row((key, epoch))
            space.checkpoint(epoch=epoch)
            space.store.close()

    def latest(start: dict[str, Any], most: int = 1000) -> dict[str, Any]:
        return feed(path, most).latestOffset(start, None)

    write("a", 10)
    shutil.copy(path, tmp_path / "older.db")
    between = latest({"epoch": 0}, most=15)
    write("b", 20)
    seen = latest({"epoch": 0})
    source = ObjectSpaceSource({"path": path, "table": "t"})
    loaded = source.reader(source.schema())
    [part] = loaded.partitions()
    assert (between["epoch"], latest(between), latest(seen)) == (10, seen, seen)
    put_back(tmp_path / "older.db", path)
    assert latest(between) == between
    with pytest.raises(CheckpointError, match=r"state\.db: .* from epoch 20: expected .* the newest epoch is 10: what"):
        latest(seen)
    write("c", 20)
    with pytest.raises(CheckpointError, match=r"comes from epoch 20: expected .* found that epoch 20 has the mark"):
        latest(seen)
    with pytest.raises(CheckpointError, match=r"the DataFrame is of epoch 20: expected .* found that epoch 20 has the"):
        list(loaded.read(part))
    assert latest(between)["epoch"] == 20


def test_the_epoch_of_a_copy_that_lets_objects_go_is_its_own(space: Space, tmp_path: Path) -> None:
    space.epoch({"a": 1})
    chain = Chain.open(location_at(space.path))
    plan = chain.begin(SourcePosition("q", 1), [OPERATOR], cache=str(tmp_path / "cache"))
    assert plan is not None
    with open_shard(plan.operators[OPERATOR], 0) as opened:
        opened.create_dictionary("other")["x"] = 1
        chain.publish(plan, {OPERATOR: [save_shard(plan.operators[OPERATOR], opened, 0)]})
    marks = []
    for name in ("one", "two"):
        fork_space(chain, str(tmp_path / name), 2, ["other"], lambda done, total: None)
        fork = Chain.open(location_at(tmp_path / name))
        assert fork.manifest(2).publisher == chain.manifest(2).publisher
        marks.append(fork.manifest(3).publisher)
    restore_space(chain, str(tmp_path / "three"), 2, [(OPERATOR, 0)], ["other"], lambda done, total: None)
    marks.append(Chain.open(location_at(tmp_path / "three")).manifest(2).publisher)
    assert len({chain.manifest(2).publisher, *marks}) == 4


@pytest.mark.parametrize(
    "noted",
    [{"logOffset": 3}, {}, 3, None, [1], {"epoch": 1.0}, {"epoch": True}, {"epoch": 1, "history": 5}],
    ids=str,
)
def test_an_offset_that_no_change_feed_has_given_is_refused(noted: Any, space: Space) -> None:
    space.epoch({"a": 1})
    reader = feed(space.path)
    last = reader.latestOffset({"epoch": 0}, None)
    for ask in (lambda: reader.latestOffset(noted, None), lambda: reader.partitions(noted, last)):
        with pytest.raises(
            CheckpointError, match=r'^Spark.* has come to .*: expected \{"epoch": 3, .* checkpointLocation'
        ):
            ask()
