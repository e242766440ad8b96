"""Which table a change feed follows: where others have its name, and where it was made again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.types import StructType

from objectspace import PersistedObjectSpace
from objectspace.errors import ObjectSpaceError
from objectspace.relational import Column, StateTable, TableSchema, drop_table, rename_table
from objectspace.spark import shard_of
from objectspace.spark.source import ObjectSpaceSource
from tests.spark.feed_readers import FeedReaders

from .test_spark_evolved import FIRST, KEYS, adding, dropping, put, renaming
from .test_spark_evolved import Space as ShardedSpace

A = TableSchema([Column("k", "string"), Column("a", "int64")], ["k"])
ZIP = TableSchema([Column("k", "string"), Column("zip", "int64")], ["k"])
NAMES = TableSchema([Column("k", "string"), Column("first", "string"), Column("last", "string")], ["k"])
SWAPPED = TableSchema([Column("k", "string"), Column("last", "string"), Column("first", "string")], ["k"])

Read = Callable[..., list[tuple[Any, ...]]]


class Following:
    """A store file, and feeds of what is called ``t`` in it."""

    def __init__(self, path: Path, space: PersistedObjectSpace) -> None:
        self.space, self.options = space, {"path": str(path), "table": "t", "changes": "true"}

    def epoch(self, table: str | None = None, *row: Any, schema: TableSchema | None = A) -> None:
        """Save, at first a row of a table if one is given."""
        if table is not None:
            StateTable(self.space, table, schema).insert_row(row)
        self.space.checkpoint()

    def feed(self, schema: StructType | None = None) -> Read:
        """Return what reads a feed that begins now: the changes after one epoch up to another, all by default."""
        source = ObjectSpaceSource(self.options)
        reader = FeedReaders(source, schema)

        def _read(start: int = 0, end: int | None = None) -> list[tuple[Any, ...]]:
            last = self.space.store.next_epoch() - 1 if end is None else end
            parts = reader.partitions({"epoch": start}, {"epoch": last})
            found = [batch for part in parts for batch in reader.read(part)]
            return [tuple(row.values()) for batch in found for row in batch.to_pylist()]

        return _read


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Following]:
    """A store file without a table."""
    with PersistedObjectSpace.open(tmp_path / "state.db") as space:
        yield Following(tmp_path / "state.db", space)


def total(changes: list[tuple[Any, ...]]) -> Counter[tuple[Any, ...]]:
    """Return what changes add up to."""
    found = Counter[tuple[Any, ...]]()
    for op, _, *row in changes:
        found[tuple(row)] += 1 if "+" in op else -1
    return Counter({row: count for row, count in found.items() if count})


@pytest.mark.parametrize("has_gap", [False, True])
@pytest.mark.parametrize(
    ("old", "new", "rows"), [(A, ZIP, [(1,), (90210,)]), (NAMES, SWAPPED, [("Ada", "Lovelace"), ("Curie", "Marie")])]
)
def test_a_table_that_is_made_again_with_other_columns_ends_a_feed_and_begins_another(
    file: Following, old: TableSchema, new: TableSchema, rows: list[Any], *, has_gap: bool
) -> None:
    file.epoch("t", "x", *rows[0], schema=old)
    feed = file.feed()
    drop_table(file.space, "t")
    if has_gap:
        file.epoch()
    file.epoch("t", "y", *rows[1], schema=new)
    with pytest.raises(ObjectSpaceError, match=r"'t' at epoch [23] was made again with other columns, or in another"):
        feed(1)
    assert file.feed()() == [("+", 3 if has_gap else 2, "y", *rows[1])]


def test_a_table_that_is_made_again_with_the_same_columns_goes_on(file: Following) -> None:
    file.epoch("t", "x", 1)
    feed = file.feed()
    drop_table(file.space, "t")
    file.epoch("t", "y", 2)
    assert feed() == feed(0, 1) + file.feed()(1) == [("+", 1, "x", 1), ("-", 2, "x", 1), ("+", 2, "y", 2)]
    assert file.feed()() == [("+", 2, "y", 2)]


def test_a_new_feed_begins_with_the_table_that_there_is(file: Following) -> None:
    for number, schema in enumerate((A, ZIP, A), start=1):
        file.epoch("t", f"x{number}", number, schema=schema)
        if number < 3:
            drop_table(file.space, "t")
    assert file.feed()() == [("+", 3, "x3", 3)]
    with pytest.raises(ObjectSpaceError, match="'t' at epoch 2 was made again with other columns"):
        file.feed()(1)


def test_a_new_feed_gives_no_row_with_the_default_of_a_table_that_was_dropped(file: Following) -> None:
    file.epoch("t", "x", 1)
    wide = adding("b")(A)
    StateTable(file.space, "t", wide, evolve=True)
    file.epoch()
    drop_table(file.space, "t")
    file.epoch("t", "z", 3, 3, schema=wide)
    assert file.feed()() == [("+", 3, "z", 3, 3)]


def test_a_new_feed_leaves_out_a_table_that_had_the_name_before_it_was_renamed(file: Following) -> None:
    file.epoch("t", "x", 1)
    rename_table(file.space, "t", "old")
    file.epoch()
    file.epoch("t", "y", 2)
    assert file.feed()() == [("+", 3, "y", 2)]


@pytest.mark.parametrize("is_again", [False, True])
def test_all_rows_of_a_table_that_is_dropped_go(file: Following, *, is_again: bool) -> None:
    file.epoch("t", "x", 1)
    file.epoch("t", "y", 2)
    feed = file.feed()
    drop_table(file.space, "t")
    file.epoch()
    wanted = [("-", 3, "x", 1), ("-", 3, "y", 2)]
    assert feed(2) == wanted
    assert file.feed(EARLY)(2) == wanted
    assert file.feed(EARLY)() == []
    if is_again:
        file.epoch("t", "z", 3)
        assert feed(2) == file.feed()(2) == [*wanted, ("+", 4, "z", 3)]
        assert feed(3) == file.feed()(3) == [("+", 4, "z", 3)]


def test_a_feed_that_began_before_its_table_gives_it_though_it_is_dropped_soon(file: Following) -> None:
    keys = StructType().add("op", "string").add("epoch", "long").add("k", "string")
    file.epoch()
    at_once, one_by_one = file.feed(keys), file.feed(keys)
    file.epoch("t", "x", 1)
    drop_table(file.space, "t")
    file.epoch()
    file.epoch()
    wanted = [("+", 2, "x"), ("-", 3, "x")]
    assert at_once(1) == [row for epoch in (1, 2, 3) for row in one_by_one(epoch, epoch + 1)] == wanted
    assert file.feed(keys)(2) == wanted[1:]


def test_a_feed_does_not_go_over_to_a_table_that_was_there_beside_its_own(file: Following) -> None:
    file.epoch("t", "x", 1)
    feed = file.feed()
    rename_table(file.space, "t", "old")
    file.epoch("t", "other", 2)
    assert feed(1) == []
    drop_table(file.space, "old")
    file.epoch("t", "other2", 3)
    with pytest.raises(ObjectSpaceError, match="'t' at epoch 3 was dropped, and 't' is another one now, which was"):
        feed(1)


def test_a_renamed_table_that_is_dropped_leaves_a_feed_until_its_name_is_there_again(file: Following) -> None:
    file.epoch("t", "x", 1)
    feed = file.feed()
    rename_table(file.space, "t", "old")
    file.epoch("old", "y", 2)
    drop_table(file.space, "old")
    file.epoch()
    file.epoch("t", "z", 3)
    wanted = [("+", 2, "y", 2), ("-", 3, "x", 1), ("-", 3, "y", 2), ("+", 4, "z", 3)]
    assert feed(1) == [row for epoch in (1, 2, 3) for row in feed(epoch, epoch + 1)] == wanted


def test_a_column_that_is_renamed_after_its_table_was_made_again_ends_a_feed(file: Following) -> None:
    file.epoch("t", "x", 1)
    feed = file.feed()
    drop_table(file.space, "t")
    file.epoch("t", "y", 2)
    assert feed(1) == [("-", 2, "x", 1), ("+", 2, "y", 2)]
    StateTable(file.space, "t", A.renamed("a", "b"), evolve=True)
    file.epoch("t", "z", 3, schema=None)
    with pytest.raises(
        ObjectSpaceError, match="at epoch 3 is another one than the feed began with, as it was made again or cleared"
    ):
        feed(2)


def test_the_first_trigger_of_a_new_feed_goes_as_far_as_its_table_is_the_only_one(file: Following) -> None:
    for number in range(1, 6):
        file.epoch("t", f"x{number}", number)
        if number == 3:
            drop_table(file.space, "t")
    source = ObjectSpaceSource({**file.options, "maxEpochsPerTrigger": "1"})
    reader: Any = FeedReaders(source)
    first = reader.latestOffset(reader.initialOffset(), None)
    assert [first["epoch"], reader.latestOffset(first, None)["epoch"]] == [4, 5]


def one_by_one(source: ObjectSpaceSource) -> list[tuple[int, list[tuple[Any, ...]]]]:
    """Return the ends of the triggers of a feed that begins now, with what each of them gives."""
    reader: Any = FeedReaders(source)
    start, found = reader.initialOffset(), list[tuple[int, list[tuple[Any, ...]]]]()
    while (end := reader.latestOffset(start)) != start:
        batches = [batch for part in reader.partitions(start, end) for batch in reader.read(part)]
        found.append((end["epoch"], sorted(tuple(row.values()) for batch in batches for row in batch.to_pylist())))
        start = end
    return found


@pytest.mark.parametrize("old", [A, ZIP])
@pytest.mark.parametrize("was_named", ["t", "u"])
def test_the_first_trigger_of_a_new_feed_goes_on_to_its_table_past_others_that_come_before(
    file: Following, old: TableSchema, was_named: str
) -> None:
    file.epoch("u", "x", 1, schema=old)
    if was_named == "u":
        rename_table(file.space, "u", "t")
    file.epoch("t", "y", 2, schema=old)
    drop_table(file.space, "t")
    file.epoch()
    for number in (4, 5):
        file.epoch("t", f"x{number}", number)
    source = ObjectSpaceSource({**file.options, "maxEpochsPerTrigger": "1"})
    assert one_by_one(source) == [(4, [("+", 4, "x4", 4)]), (5, [("+", 5, "x5", 5)])]


@pytest.mark.parametrize("edit", [drop_table, lambda space, name: rename_table(space, name, "old")])
def test_a_first_trigger_that_failed_is_read_again_as_it_was_planned(
    file: Following, edit: Callable[[PersistedObjectSpace, str], object]
) -> None:
    file.epoch("t", "x", 1)
    began = file.feed()
    edit(file.space, "t")
    file.epoch()
    file.epoch("t", "z", 3)
    again = file.feed()
    assert again(0, 1) == began(0, 1) == [("+", 1, "x", 1)]
    assert total(again(0, 1) + again(1)) == {("z", 3): 1}
    assert file.feed()() == [("+", 3, "z", 3)]


def test_a_first_trigger_that_failed_is_read_again_with_the_columns_of_now(file: Following) -> None:
    file.epoch("t", "x", 1)
    drop_table(file.space, "t")
    file.epoch()
    file.epoch("t", "y", 2, 3, schema=A.with_column(Column("b", "int64", nullable=True)))
    again = file.feed()
    assert again(0, 1) == [("+", 1, "x", 1, None)]
    assert total(again(0, 1) + again(1)) == {("y", 2, 3): 1}


def test_a_first_trigger_that_failed_ends_a_feed_whose_table_was_made_again_with_other_columns(file: Following) -> None:
    file.epoch("t", "x", 1)
    drop_table(file.space, "t")
    file.epoch()
    file.epoch("t", "y", 90210, schema=ZIP)
    again = file.feed()
    for ends in ((0, 1), (1,)):
        with pytest.raises(
            ObjectSpaceError, match=r"made again or cleared since, and has other columns.*start another"
        ):
            again(*ends)


@pytest.mark.parametrize("edit", [drop_table, lambda space, name: rename_table(space, name, "old")])
def test_a_restarted_feed_follows_the_table_of_its_start_though_its_first_task_comes_later(
    file: Following, edit: Callable[[PersistedObjectSpace, str], object]
) -> None:
    file.epoch("t", "x", 1)
    feed = file.feed()
    edit(file.space, "t")
    file.epoch()
    assert feed(1) == ([("-", 2, "x", 1)] if edit is drop_table else [])
    file.epoch("t", "z", 3)
    assert feed(2) == ([("+", 3, "z", 3)] if edit is drop_table else [])


@pytest.mark.slow
def test_a_restarted_query_gives_what_changes_while_it_runs(
    spark: SparkSession, file: Following, tmp_path: Path
) -> None:
    given: list[tuple[Any, ...]] = []

    def follow() -> StreamingQuery:
        feed = spark.readStream.format("objectspace").options(**file.options).load()
        writer = feed.writeStream.foreachBatch(lambda rows, _: given.extend(map(tuple, rows.collect())))
        query = writer.option("checkpointLocation", str(tmp_path / "feed")).start()
        query.processAllAvailable()
        return query

    file.epoch("t", "x", 1)
    follow().stop()
    query = follow()  # It has nothing to read, so Spark has not made the reader of its tasks yet.
    drop_table(file.space, "t")
    file.epoch()
    query.processAllAvailable()
    file.epoch("t", "z", 3)
    query.processAllAvailable()
    query.stop()
    assert given == [("+", 1, "x", 1), ("-", 2, "x", 1), ("+", 3, "z", 3)]


def test_a_restarted_feed_goes_on_under_the_names_that_columns_had_at_its_start(file: Following) -> None:
    file.epoch("t", "x", 1)
    feed = file.feed()
    StateTable(file.space, "t", A.renamed("a", "b"), evolve=True).insert_row(("y", 2))
    file.epoch()
    assert feed(1) == [("+", 2, "y", 2)]


def test_a_feed_gives_no_row_of_others_that_have_the_name_that_was_asked_for(file: Following) -> None:
    for table in ("q/t/table", "r/t/table", "t"):
        StateTable(file.space, table, A).insert_row((table, 0))
    file.epoch()
    for table in ("q/t/table", "r/t/table", "t"):
        drop_table(file.space, table)
    file.epoch("p/t/table", "x", 1)
    feed = file.feed()
    file.epoch("t", "other", 3)
    drop_table(file.space, "p/t/table")
    file.epoch("t", "other2", 4)
    assert feed() == [("+", 2, "x", 1), ("-", 4, "x", 1)]


@pytest.mark.parametrize("is_later", [False, True])
def test_a_feed_follows_a_table_that_is_renamed(file: Following, *, is_later: bool) -> None:
    file.epoch("q/t/table", "x", 1)
    before = file.feed()
    rename_table(file.space, "q/t/table", "p/t/table" if is_later else "t")
    file.epoch("q/t/table", "other", 2)
    if is_later:
        drop_table(file.space, "q/t/table")
    file.epoch("p/t/table" if is_later else "t", "y", 3)
    assert before() == file.feed()() == [("+", 1, "x", 1), ("+", 3, "y", 3)]


EARLY = StructType().add("op", "string").add("epoch", "long").add("k", "string").add("a", "long")


@pytest.mark.parametrize("is_at_once", [False, True])
def test_a_feed_that_began_before_its_table_stays_with_the_columns_that_it_had_first(
    file: Following, *, is_at_once: bool
) -> None:
    file.epoch()
    feed, reads = file.feed(EARLY), list[tuple[Any, ...]]()
    file.epoch("t", "x", 1)
    if not is_at_once:
        reads = feed(1)
    table = StateTable(file.space, "t")
    added = table.schema.renamed("a", "b").with_column(Column("a", "int64", default=7))
    table = StateTable(file.space, "t", added, evolve=True)
    table.insert_row(("y", 2, 3))
    file.epoch()
    table.delete_row(("x", 1, 7))
    file.epoch()
    reads += feed(1 if is_at_once else 2)
    assert reads == [("+", 2, "x", 1), ("+", 3, "y", 2), ("-", 4, "x", 1)]
    StateTable(file.space, "t", table.schema.without_column("b"), evolve=True)
    file.epoch()
    with pytest.raises(ObjectSpaceError, match="at epoch 5 no longer has column 'a'"):
        feed(4)


def test_a_feed_that_began_before_its_table_waits_for_it(file: Following) -> None:
    file.epoch("u", "x", 1)
    feed = file.feed(EARLY)
    file.epoch()
    assert feed() == []
    file.epoch("t", "x", 1, schema=ZIP)
    with pytest.raises(ObjectSpaceError, match="table 't' has no column 'a': it has k, zip"):
        feed(2)


@pytest.fixture
def space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ShardedSpace:
    """A space of two shards with a row in each."""
    monkeypatch.setenv("OBJECTSPACE_CACHE", str(tmp_path / "readers"))
    made = ShardedSpace(tmp_path)
    made.epoch(put(KEYS[0][0], 1), put(KEYS[1][0], 2))
    return made


def again(key: str, schema: TableSchema) -> Callable[[PersistedObjectSpace], None]:
    """Return what drops the table of a shard, and makes it again with one row."""

    def _make(made: PersistedObjectSpace) -> None:
        drop_table(made, "t")
        StateTable(made, "t", schema).insert_row((key, 9))

    return _make


def test_a_table_that_one_shard_makes_again_is_known_there(space: ShardedSpace) -> None:
    feed = space.feed()
    space.epoch(put(KEYS[0][1], 3), again(KEYS[1][1], ZIP))
    with pytest.raises(ObjectSpaceError, match="'t' at epoch 2 was made again with other columns"):
        feed(1, 2)
    space.epoch(again(KEYS[0][2], ZIP), None)
    assert space.feed()(0, 3) == [("+", 2, KEYS[1][1], 9), ("+", 3, KEYS[0][2], 9)]


@pytest.mark.parametrize("schema", [FIRST, ZIP])
def test_the_first_trigger_of_a_new_feed_goes_on_until_each_shard_has_its_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, schema: TableSchema
) -> None:
    monkeypatch.setenv("OBJECTSPACE_CACHE", str(tmp_path / "readers"))
    space = ShardedSpace(tmp_path)
    source = space.source(changes="true", maxEpochsPerTrigger="1")
    space.epoch(put(KEYS[0][0], 1), None)
    space.epoch(None, lambda made: StateTable(made, "t", schema).insert_row((KEYS[1][0], 2)))
    space.epoch(None, lambda made: drop_table(made, "t"))
    first = ("+", 1, KEYS[0][0], 1)
    assert one_by_one(source) == [(3, [first])]
    for number in (4, 5):
        space.epoch(None, put(KEYS[1][number], number))
    later = [("+", number, KEYS[1][number], number) for number in (4, 5)]
    assert one_by_one(source) == [(4, [first, later[0]]), (5, later[1:])]


def test_a_first_trigger_that_failed_is_read_again_under_the_names_of_now_though_a_shard_lacks_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OBJECTSPACE_CACHE", str(tmp_path / "readers"))
    space = ShardedSpace(tmp_path)
    space.epoch(put(KEYS[0][0], 1), None)
    space.epoch(put(KEYS[0][1], 2, change=renaming("a", "b")), None)
    feed = space.feed()
    assert feed(0, 1) + feed(1, 2) == [("+", 1, KEYS[0][0], 1), ("+", 2, KEYS[0][1], 2)]


def test_a_task_is_told_only_of_the_table_that_its_own_shard_has(space: ShardedSpace) -> None:
    parts = FeedReaders(space.source(changes="true")).partitions({"epoch": 0}, {"epoch": 1})
    known = [[place for place, table in enumerate(part.fed.starts) if table is not None] for part in parts]
    assert known == [[part.shard] for part in parts] == [[0], [1]]


def test_rows_of_a_table_that_one_shard_drops_go_there(space: ShardedSpace) -> None:
    feed = space.feed()
    space.epoch(lambda made: drop_table(made, "t"), None)
    gone = [("-", 2, KEYS[0][0], 1)]
    assert feed(1, 2) == space.feed()(1, 2) == gone
    assert space.feed()(0, 2) == [("+", 1, KEYS[1][0], 2)]
    space.epoch(put(KEYS[0][1], 3), None)
    new = [("+", 3, KEYS[0][1], 3)]
    assert feed(2, 3) == space.feed()(2, 3) == new
    assert feed(1, 3) == space.feed()(1, 3) == sorted([*gone, *new])
    assert space.feed()(0, 3) == sorted([("+", 1, KEYS[1][0], 2), *new])


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("schema", [FIRST, ZIP])
def test_a_new_feed_begins_with_the_table_that_there_is_after_another_number_of_shards(
    space: ShardedSpace, schema: TableSchema, shards: int
) -> None:
    space.rescale(shards)
    keys = [next(key for key in (*KEYS[0], *KEYS[1]) if shard_of(shards, key) == shard) for shard in range(shards)]
    space.epoch(*[again(key, schema) for key in keys])
    space.epoch(put(KEYS[0][9], 1), *[None] * (shards - 1))
    assert space.feed()(0, 4) == sorted([*[("+", 3, key, 9) for key in keys], ("+", 4, KEYS[0][9], 1)])


def test_a_new_feed_begins_with_the_rows_of_other_shards_where_one_has_made_its_table_again(
    space: ShardedSpace,
) -> None:
    space.rescale(3)
    edits: list[Any] = [None] * 3
    edits[shard_of(3, KEYS[0][0])] = again(KEYS[0][0], FIRST)
    space.epoch(*edits)
    space.rescale(2)
    space.epoch(put(KEYS[0][1], 3), None)
    feed = space.feed()(0, 5)
    assert total(feed) == Counter(space.read()[1])
    assert {epoch for _, epoch, *_ in feed} == {3, 5}


def test_a_table_that_is_made_again_after_another_number_of_shards_ends_a_feed(space: ShardedSpace) -> None:
    feed = space.feed()
    space.rescale(1)
    space.epoch(put(KEYS[0][1], 3, change=renaming("a", "z")))
    assert feed(2, 3) == [("+", 3, KEYS[0][1], 3)]
    space.epoch(again(KEYS[0][2], ZIP))
    with pytest.raises(
        ObjectSpaceError, match=r"at epoch 4 was made again with other columns, .*, before it had k, z:"
    ):
        feed(3, 4)


def test_a_table_that_shards_have_under_two_names_is_followed_in_each(space: ShardedSpace) -> None:
    space.epoch(lambda made: rename_table(made, "t", "x/t/table"), None)
    feed = space.feed()
    space.epoch(put(KEYS[0][1], 5, table="x/t/table"), put(KEYS[1][1], 6))
    wanted = {(KEYS[0][0], 1): 1, (KEYS[1][0], 2): 1, (KEYS[0][1], 5): 1, (KEYS[1][1], 6): 1}
    assert total(feed(0, 3)) == total(space.feed()(0, 3)) == wanted


def test_a_name_that_another_column_had_for_a_while_is_free_for_one_that_a_shard_gets(space: ShardedSpace) -> None:
    space.epoch(put(KEYS[0][1], 3, 30, change=adding("b")), None)
    feed = space.feed()
    space.epoch(None, put(KEYS[1][1], 4, change=renaming("a", "b")))
    space.epoch(None, put(KEYS[1][2], 5, 6, change=lambda schema: adding("b")(schema.renamed("b", "a"))))
    assert feed(2, 4) == sorted([("+", 3, KEYS[1][1], 4, 7), ("+", 4, KEYS[1][2], 5, 6)])
    space.epoch(None, put(KEYS[1][3], 6, change=dropping("b")))
    with pytest.raises(ObjectSpaceError, match="at epoch 5 no longer has column 'b'"):
        feed(4, 5)


def test_a_column_that_a_shard_widens_beyond_the_type_of_a_feed_goes_on_while_values_fit(space: ShardedSpace) -> None:
    space.epoch(put(KEYS[0][1], 1, 2, change=lambda schema: schema.with_column(Column("b", "int16", default=7))), None)
    space.epoch(
        None, put(KEYS[1][1], 1, 0.5, change=lambda schema: schema.with_column(Column("b", "float32", default=7.0)))
    )
    feed = space.feed()
    space.epoch(put(KEYS[0][2], 1, 3, change=lambda schema: schema.widened("b", "int64")), None)
    assert feed(3, 4) == [("+", 4, KEYS[0][2], 1, 3.0)]
    space.epoch(put(KEYS[0][3], 1, 2**40 + 1), None)
    with pytest.raises(
        ObjectSpaceError, match="'b' is int64 now, and the feed began with float32, which does not hold"
    ):
        feed(4, 5)
