"""Tables that have evolved in some shards only, as each does when a row comes to it: reads, feeds and rescales."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql.datasource import EqualTo
from pyspark.sql.types import StructType

from checkpoint.chain import Chain, SourcePosition, location_at
from objectspace import PersistedObjectSpace
from objectspace.errors import ObjectSpaceError
from objectspace.relational import Column, StateTable, TableSchema
from objectspace.spark import open_shard, rescale, save_shard, shard_of
from objectspace.spark.history import Seen
from objectspace.spark.source import ObjectSpaceSource, SpaceReader
from objectspace.spark.subject import Subject

OPERATOR = "op"
FIRST = TableSchema([Column("k", "string"), Column("a", "int32", nullable=True)], ["k"])
KEYS = [[key for key in (f"k{n}" for n in range(99)) if shard_of(2, key) == shard] for shard in range(2)]
"""Keys of each of two shards."""

Change = Callable[[TableSchema], TableSchema]
Edit = Callable[[PersistedObjectSpace], None] | None


def same(schema: TableSchema) -> TableSchema:
    return schema


def adding(name: str, default: int | None = 7) -> Change:
    return lambda schema: schema.with_column(Column(name, "int64", nullable=default is None, default=default))


def dropping(name: str, then: Change = same) -> Change:
    return lambda schema: then(schema.without_column(name))


def renaming(name: str, new_name: str) -> Change:
    return lambda schema: schema.renamed(name, new_name)


def widening(name: str, kind: str) -> Change:
    return lambda schema: schema.widened(name, kind)


def put(*row: Any, change: Change = same, table: str = "t") -> Edit:
    """Return what gives a shard a row, after its table has evolved."""

    def _put(space: PersistedObjectSpace) -> None:
        there = StateTable(space, table, None if table in space else FIRST)
        StateTable(space, table, change(there.schema), evolve=True).insert_row(row)

    return _put


class Space:
    """A space with one operator, whose epochs are published without Spark."""

    def __init__(self, folder: Path) -> None:
        self.path, self._cache = str(folder / "space"), str(folder / "cache")

    def epoch(self, *edits: Edit) -> None:
        """Publish an epoch in which each shard is edited, or gets nothing."""
        chain = Chain.open_or_create(location_at(self.path), len(edits))
        batch = chain.newest.committed.get("q", -1) + 1 if chain.newest else 0
        plan = chain.begin(SourcePosition("q", batch), [OPERATOR], cache=self._cache)
        assert plan is not None
        operator, saved = plan.operators[OPERATOR], []
        for shard, edit in enumerate(edits):
            with open_shard(operator, shard) as space:
                if edit is not None:
                    edit(space)
                saved.append(save_shard(operator, space, shard))
        chain.publish(plan, {OPERATOR: saved})

    def rescale(self, shards: int) -> None:
        rescale(self.path, shards, keyed={OPERATOR: ["t"]})

    def source(self, **options: str) -> ObjectSpaceSource:
        return ObjectSpaceSource({"path": self.path, "table": "t", **options})

    def read(self, **options: str) -> tuple[str, list[tuple[Any, ...]]]:
        """Return the schema of a read, and its rows in order."""
        source = self.source(**options)
        schema = source.schema()
        return schema.simpleString(), rows_of(source.reader(schema))

    def feed(self, **options: str) -> Callable[[int, int], list[tuple[Any, ...]]]:
        """Return what reads a feed that begins now: the changes of the epochs after one up to another."""
        source = self.source(changes="true", **options)
        reader = source.streamReader(source.schema())

        def _read(start: int, end: int) -> list[tuple[Any, ...]]:
            seen = [
                Seen(0) if epoch == 0 else Subject.of(source.options).history().seen(epoch) for epoch in (start, end)
            ]
            parts = reader.partitions(seen[0].offset(), seen[1].offset())
            batches = [batch for part in parts for batch in reader.read(part)]
            return sorted(tuple(row.values()) for batch in batches for row in batch.to_pylist())

        return _read


def rows_of(reader: Any) -> list[tuple[Any, ...]]:
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    return sorted(tuple(row.values()) for batch in batches for row in batch.to_pylist())


@pytest.fixture
def space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Space:
    """A space of two shards with a row in each."""
    monkeypatch.setenv("OBJECTSPACE_CACHE", str(tmp_path / "readers"))
    made = Space(tmp_path)
    made.epoch(put(KEYS[0][0], 1), put(KEYS[1][0], 2))
    return made


OLD = [(KEYS[0][0], 1), (KEYS[1][0], 2)]


@pytest.mark.parametrize("shard", [0, 1])
def test_a_column_that_one_shard_has_is_read_of_all(space: Space, shard: int) -> None:
    edits: list[Edit] = [None, None]
    edits[shard] = put(KEYS[shard][1], 3, 30, change=adding("b"))
    space.epoch(*edits)
    new = (KEYS[shard][1], 3, 30)
    assert space.read() == ("struct<k:string,a:int,b:bigint>", sorted([*[(*row, 7) for row in OLD], new]))
    assert space.read(columns="b,k")[1] == sorted([*[(7, key) for key, _ in OLD], (30, new[0])])
    assert space.read(epoch="1")[1] == sorted(OLD)
    assert space.feed()(0, 2) == sorted([*[("+", 1, *row, 7) for row in OLD], ("+", 2, *new)])
    reader = SpaceReader(
        Subject.of({"path": space.path, "table": "t", "columns": "b"}), StructType().add("b", "integer")
    )
    assert rows_of(reader) == [(7,), (7,), (30,)]


@pytest.mark.parametrize("shard", [0, 1])
def test_a_column_that_one_shard_has_widened_is_read_of_all_in_the_wider_type(space: Space, shard: int) -> None:
    edits: list[Edit] = [None, None]
    edits[shard] = put(KEYS[shard][1], 2**40, change=widening("a", "int64"))
    before = space.feed()
    space.epoch(*edits)
    new = (KEYS[shard][1], 2**40)
    assert space.read() == ("struct<k:string,a:bigint>", sorted([*OLD, new]))
    assert space.feed()(0, 2) == sorted([*[("+", 1, *row) for row in OLD], ("+", 2, *new)])
    with pytest.raises(
        ObjectSpaceError,
        match=r"'t' at epoch 2: column 'a' is int64 now, and the feed began with int32, .*: start another one, with",
    ):
        before(1, 2)


def test_a_filter_on_the_key_finds_rows_of_shards_that_lack_a_column(space: Space) -> None:
    space.epoch(put(KEYS[0][1], 3, 30, change=adding("b")), None)
    source = space.source(pushdown="true")
    for key, wanted in ((KEYS[1][0], (KEYS[1][0], 2, 7)), (KEYS[0][1], (KEYS[0][1], 3, 30))):
        reader: Any = source.reader(source.schema())
        list(reader.pushFilters([EqualTo(("k",), key)]))
        assert rows_of(reader) == [wanted]


def test_a_column_that_may_have_another_name_in_one_shard_is_refused_until_it_is_said_what_is_read(
    space: Space,
) -> None:
    before = space.feed()
    space.epoch(None, put(KEYS[1][1], 4, change=renaming("a", "z")))
    for options in ({}, {"columns": "a"}, {"columns": "k,z"}):
        with pytest.raises(
            ObjectSpaceError, match=r"table 't' has evolved apart: column .* leave it out with the option"
        ):
            space.read(**options)
    assert space.read(columns="k")[1] == sorted([(KEYS[0][0],), (KEYS[1][0],), (KEYS[1][1],)])
    assert {row for row in space.read(columns="k,a,z")[1] if row[1] is None} == {
        (KEYS[1][0], None, 2),
        (KEYS[1][1], None, 4),
    }
    assert before(1, 2) == [("+", 2, KEYS[1][1], 4)]
    space.epoch(put(KEYS[0][1], 5, change=renaming("a", "z")), None)
    assert space.read()[0] == "struct<k:string,z:int>"
    assert space.feed()(0, 1) == sorted(("+", 1, *row) for row in OLD)


def test_types_that_do_not_go_together_are_refused(space: Space) -> None:
    text = dropping("a", lambda schema: schema.with_column(Column("a", "string", default="x")))
    space.epoch(None, put(KEYS[1][1], "y", change=text))
    with pytest.raises(ObjectSpaceError, match="column 'a' is int32 in shard 0, string in shard 1, and none of these"):
        space.read()
    assert len(space.read(columns="k")[1]) == 3


def apart(space: Space) -> None:
    """Bring both shards to the columns k, a and c, of which only one has had a column b before."""
    space.epoch(put(KEYS[0][1], 3, 30, change=adding("b")), None)
    space.epoch(
        put(KEYS[0][2], 5, 50, change=dropping("b", adding("c", 9))), put(KEYS[1][2], 6, 60, change=adding("c", 9))
    )


APART = [(KEYS[0][0], 1, 9), (KEYS[0][1], 3, 9), (KEYS[0][2], 5, 50), (KEYS[1][0], 2, 9), (KEYS[1][2], 6, 60)]


def test_a_feed_finds_columns_that_each_shard_has_numbered_itself(space: Space) -> None:
    apart(space)
    feed = space.feed()
    epochs = dict(zip([row[0] for row in APART], (1, 2, 3, 1, 3), strict=True))
    assert feed(0, 3) == sorted(("+", epochs[row[0]], *row) for row in APART)
    space.epoch(put(KEYS[0][3], 7, 70), put(KEYS[1][3], 8, 80, change=renaming("c", "d")))
    assert feed(3, 4) == sorted([("+", 4, KEYS[0][3], 7, 70), ("+", 4, KEYS[1][3], 8, 80)])
    space.epoch(None, put(KEYS[1][4], 9, change=dropping("d")))
    with pytest.raises(ObjectSpaceError, match="'t' at epoch 5 has no column 'c' any more"):
        feed(4, 5)


def test_a_feed_takes_a_column_that_a_shard_gets_later_and_not_the_one_with_its_number(space: Space) -> None:
    space.epoch(put(KEYS[0][1], 3, 30, change=adding("b")), None)
    space.epoch(None, put(KEYS[1][1], 4, 40, change=adding("c", 9)))
    feed = space.feed()
    assert feed(2, 3) == [("+", 3, KEYS[1][1], 4, 7, 40)]
    space.epoch(None, put(KEYS[1][2], 5, 50, 500, change=adding("b")))
    assert feed(3, 4) == [("+", 4, KEYS[1][2], 5, 500, 50)]


def test_a_feed_finds_a_column_that_was_renamed_before_the_shards_were_others(space: Space) -> None:
    space.epoch(*[put(KEYS[shard][1], 3, change=renaming("a", "z")) for shard in range(2)])
    space.rescale(1)
    space.epoch(put(KEYS[0][2], 4))
    new = [("+", 2, KEYS[shard][1], 3) for shard in range(2)]
    assert space.feed()(0, 4) == sorted([*[("+", 1, *row) for row in OLD], *new, ("+", 4, KEYS[0][2], 4)])


@pytest.mark.parametrize("shards", [1, 3])
def test_rows_that_were_written_with_other_layouts_are_divided(space: Space, shards: int) -> None:
    apart(space)
    feed = space.feed()
    space.rescale(shards)
    assert space.read() == ("struct<k:string,a:int,c:bigint>", sorted(APART))
    key = KEYS[1][3]
    edits: list[Edit] = [None] * shards
    edits[shard_of(shards, key)] = put(key, 8, 80)
    space.epoch(*edits)
    assert space.read()[1] == sorted([*APART, (key, 8, 80)])
    assert feed(4, 5) == space.feed()(4, 5) == [("+", 5, key, 8, 80)]
    assert len(space.feed()(0, 5)) == len(APART) + 1
    assert {row[2:] for row in space.feed()(0, 3)} == {*APART}


def test_a_column_that_was_dropped_in_one_shard_does_not_come_back_by_its_number(space: Space) -> None:
    space.epoch(put(KEYS[0][1], 3, 30, change=adding("b")), None)
    space.epoch(put(KEYS[0][2], 5, change=dropping("b")), put(KEYS[1][2], 6, 60, change=adding("c", 9)))
    rows = space.read()[1]
    assert (KEYS[0][1], 3, 9) in rows
    space.rescale(1)
    assert space.read() == ("struct<k:string,a:int,c:bigint>", rows)


def test_tables_that_shards_have_made_in_another_order_are_divided(space: Space) -> None:
    space.epoch(put(KEYS[0][1], 3, table="u"), put(KEYS[1][1], 4, table="v"))
    space.epoch(put(KEYS[0][1], 3, table="v"), put(KEYS[1][1], 4, table="u"))
    rescale(space.path, 1, keyed={OPERATOR: ["t", "u", "v"]})
    for table in ("u", "v"):
        assert rows_of(space.source(table=table).reader(StructType().add("k", "string").add("a", "integer"))) == sorted(
            [(KEYS[0][1], 3), (KEYS[1][1], 4)]
        )


@pytest.mark.parametrize(
    ("change", "row", "message"),
    [
        (renaming("a", "z"), (1,), "column 'a' of .* may be 'z' of .* with another name, or another column"),
        (dropping("a", lambda s: s.with_column(Column("a", "string", default="x"))), ("y",), "column 'a' is int32 in"),
    ],
)
def test_columns_that_do_not_go_together_are_not_divided_until_all_shards_have_them(
    space: Space, change: Change, row: tuple[Any, ...], message: str
) -> None:
    space.epoch(None, put(KEYS[1][1], *row, change=change))
    with pytest.raises(ObjectSpaceError, match=f"{message}.*: let each shard take a row with the same version"):
        space.rescale(1)
    assert Chain.open(location_at(space.path)).shards == 2
    space.epoch(put(KEYS[0][1], *row, change=change), None)
    wanted = space.read()
    space.rescale(1)
    assert space.read() == wanted


def test_rows_without_a_column_that_hold_other_defaults_are_not_divided(space: Space) -> None:
    space.epoch(put(KEYS[0][1], 3, 30, change=adding("b")), put(KEYS[1][1], 4, 40, change=adding("b", 8)))
    assert {row[2] for row in space.read()[1]} == {7, 8, 30, 40}
    with pytest.raises(ObjectSpaceError, match="rows without column 'b' hold 7 in some shards, 8 here: let each shard"):
        space.rescale(1)


@pytest.mark.parametrize("seed", range(6))
def test_however_shards_have_evolved_another_number_of_them_has_the_same_rows(space: Space, seed: int) -> None:
    """Each version adds, drops or widens a column; a shard may pass over some of them."""
    rng, versions = Random(seed), [FIRST]
    for number in range(8):
        schema = versions[-1]
        droppable = [name for name in schema.names if name not in ("k", "a")]
        change = dropping(rng.choice(droppable)) if droppable and rng.random() < 0.4 else adding(f"c{number}", number)
        versions.append(change(schema))
    at, keys = [0, 0], [iter(KEYS[shard][1:]) for shard in range(2)]
    for _ in range(8):
        edits: list[Edit] = [None, None]
        for shard in range(2):
            if rng.random() < 0.7:
                at[shard] = rng.randrange(at[shard], len(versions))
                edits[shard] = written(versions[at[shard]], next(keys[shard]), rng.randrange(99))
        space.epoch(*edits)
    end = [written(versions[-1], next(keys[shard]), 5) for shard in range(2)]
    space.epoch(*end)
    wanted = space.read()
    for shards in (3, 1, 2):
        space.rescale(shards)
        assert space.read() == wanted


def written(schema: TableSchema, key: str, value: int) -> Edit:
    """Return what a version of an operator writes, whose table has a schema."""

    def _write(space: PersistedObjectSpace) -> None:
        now = StateTable(space, "t", None if "t" in space else FIRST).schema
        for name in set(now.names) - set(schema.names):
            now = now.without_column(name)
        for name in schema.names:
            now = (
                now
                if name in now.names
                else now.with_column(Column(name, "int64", default=schema.column(name).default))
            )
        table = StateTable(space, "t", now, evolve=True)
        table.insert_row({"k": key, **{name: value for name in now.names if name != "k"}})

    return _write
