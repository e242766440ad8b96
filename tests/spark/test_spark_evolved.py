"""Tables that have evolved in some shards only, as each does when a row comes to it: reads, feeds and rescales."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
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
from tests.spark.feed_readers import FeedReaders

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
        reader = FeedReaders(source)

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


@pytest.mark.parametrize("kind", ["int64", "float64", "decimal"])
@pytest.mark.parametrize("shard", [0, 1])
def test_a_column_with_a_default_that_one_shard_has_renamed_and_widened_is_refused(
    space: Space, shard: int, kind: str
) -> None:
    def narrow(schema: TableSchema) -> TableSchema:
        return schema.with_column(Column("b", "int32", default=3))

    space.epoch(*[put(KEYS[place][1], 1, 10, change=narrow) for place in range(2)])
    edits: list[Edit] = [None, None]
    edits[shard] = put(KEYS[shard][2], 5, 11, change=lambda schema: schema.renamed("b", "z").widened("z", kind))
    space.epoch(*edits)
    with pytest.raises(ObjectSpaceError, match=r"column '[bz]' of shard [01] may be '[bz]' of shard [01] with another"):
        space.read()


def added_again(schema: TableSchema) -> TableSchema:
    return schema.renamed("a", "z").with_column(Column("a", "int32", nullable=True))


def swapped(schema: TableSchema) -> TableSchema:
    return schema.renamed("a", "q").renamed("b", "a").renamed("q", "b")


@pytest.mark.parametrize(("change", "other"), [(added_again, "z"), (swapped, "b")])
def test_a_name_that_another_column_has_taken_over_in_one_shard_is_refused_until_both_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Change, other: str
) -> None:
    monkeypatch.setenv("OBJECTSPACE_CACHE", str(tmp_path / "readers"))
    space, is_wide = Space(tmp_path), change is swapped
    wide: Change = (lambda schema: schema.with_column(Column("b", "int32", nullable=True))) if is_wide else same
    space.epoch(*[put(KEYS[shard][0], 1, *[10] * is_wide, change=wide) for shard in range(2)])
    space.epoch(None, put(KEYS[1][1], 2, 20, change=change))
    for options in ({}, {"columns": "k,a"}, {"columns": f"k,{other}"}):
        with pytest.raises(ObjectSpaceError, match=r"of shard [01] may be '[abz]' of shard [01] with another name"):
            space.read(**options)
    named = space.read(columns=f"k,a,{other}")[1]
    assert (KEYS[0][0], 1, 10 if is_wide else None) in named
    assert (KEYS[1][0], *((10, 1) if is_wide else (None, 1))) in named


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
    with pytest.raises(ObjectSpaceError, match="'t' at epoch 5 no longer has column 'c'"):
        feed(4, 5)


def test_a_feed_takes_a_column_that_a_shard_gets_later_and_not_the_one_with_its_number(space: Space) -> None:
    space.epoch(put(KEYS[0][1], 3, 30, change=adding("b")), None)
    space.epoch(None, put(KEYS[1][1], 4, 40, change=adding("c", 9)))
    feed = space.feed()
    assert feed(2, 3) == [("+", 3, KEYS[1][1], 4, 7, 40)]
    space.epoch(None, put(KEYS[1][2], 5, 50, 500, change=adding("b")))
    assert feed(3, 4) == [("+", 4, KEYS[1][2], 5, 500, 50)]


def adds_up(space: Space, end: int, **options: str) -> bool:
    """Tell whether a feed that begins now adds up to what is read now."""
    left = Counter[tuple[Any, ...]]()
    for op, _, *row in space.feed(**options)(0, end):
        left[tuple(row)] += 1 if "+" in op else -1
    return +left == Counter(space.read(**options)[1]) and not -left


def test_a_feed_has_the_default_of_each_shard(space: Space) -> None:
    space.epoch(*[put(KEYS[shard][1], 3, 30, change=adding("b", 7 + shard)) for shard in range(2)])
    assert {row[4] for row in space.feed()(0, 1)} == {7, 8}
    assert adds_up(space, 2)


@pytest.mark.parametrize(
    ("change", "row", "columns"),
    [
        (renaming("a", "z"), (4,), "k,a,z"),
        (added_again, (4, 5), "k,a,z"),
        (dropping("a"), (), "k,a"),
        (dropping("a", adding("a")), (4,), "k,a"),
        (dropping("a", lambda s: s.with_column(Column("a", "int16", default=3))), (4,), "k,a"),
    ],
)
def test_a_feed_takes_no_older_column_for_another_one(
    space: Space, change: Change, row: tuple[int, ...], columns: str
) -> None:
    space.epoch(None, put(KEYS[1][1], *row, change=change))
    assert adds_up(space, 2, columns=columns)


def test_a_feed_takes_no_older_column_of_another_type(space: Space) -> None:
    space.epoch(None, put(KEYS[1][1], 4, "x", change=lambda s: s.with_column(Column("b", "string", default="s"))))
    space.epoch(None, put(KEYS[1][2], 4, change=dropping("b")))
    space.epoch(put(KEYS[0][1], 4, 40, change=adding("b")), None)
    assert adds_up(space, 4)


def test_a_feed_goes_over_a_table_that_was_made_again_before_it(space: Space) -> None:
    other = TableSchema([Column("k", "string"), Column("z", "string", default="q")], ["k"])

    def again(key: str) -> Edit:
        def _make(made: PersistedObjectSpace) -> None:
            made.delete("t")
            StateTable(made, "t", other).insert_row((key, "x"))

        return _make

    before = space.feed()
    space.epoch(put("x", 1, table="u"), None)
    space.epoch(again(KEYS[0][1]), again(KEYS[1][1]))
    assert adds_up(space, 3)
    with pytest.raises(ObjectSpaceError, match=r"made again|no longer has column 'a'"):
        before(2, 3)


def test_a_column_that_a_shard_adds_later_with_another_default_ends_a_feed(space: Space) -> None:
    space.epoch(put(KEYS[0][1], 3, 30, change=adding("b")), None)
    before = space.feed()
    space.epoch(None, put(KEYS[1][1], 4, 40, change=adding("b", 8)))
    for _ in range(2):  # The first attempt leaves a cache that is ahead.
        with pytest.raises(
            ObjectSpaceError, match=r"column 'b' with the default 8 now, .* without it with 7: start another"
        ):
            before(2, 3)
    assert adds_up(space, 3)


def test_a_feed_is_not_misled_by_what_another_one_has_read_ahead(space: Space) -> None:
    space.epoch(put(KEYS[0][1], 3, 30, change=adding("b")), None)
    before, other = space.feed(), space.feed(columns="k,a")
    space.epoch(None, put(KEYS[1][1], 4, 40, change=adding("b")))
    space.epoch(None, put(KEYS[1][2], 5, 50, change=renaming("b", "z")))
    assert [row[2] for row in other(2, 4)] == [KEYS[1][1], KEYS[1][2]]
    assert before(2, 3) == [("+", 3, KEYS[1][1], 4, 40)]


@pytest.mark.parametrize(
    ("kind", "value", "is_held"),
    [("int64", 2**40, False), ("float64", 2.0, True), ("float64", 2.5, False), ("decimal", Decimal(2), True)],
)
def test_a_feed_that_began_before_a_column_was_widened_gives_what_its_type_holds(
    space: Space, kind: str, value: Any, is_held: bool
) -> None:
    before = space.feed()
    space.epoch(None, put(KEYS[1][1], value, change=widening("a", kind)))
    if is_held:
        assert before(1, 2) == [("+", 2, KEYS[1][1], 2)]
    else:
        with pytest.raises(ObjectSpaceError, match=f"column 'a' is {kind} now, and the feed began with int32, which"):
            before(1, 2)


HELD = [
    ("int64", "decimal", Decimal(10) ** 28, None),
    ("float32", "float64", 1e39, None),
    ("float32", "float64", 0.1, None),
    ("float32", "float64", 0.5, 0.5),
    ("float32", "float64", float("inf"), float("inf")),
    ("list<int32>", "list<float64>", [2.0, None], [2, None]),
    ("list<int32>", "list<float64>", [2.5], None),
    ("list<float32>", "list<float64>", [0.1], None),
    ("list<list<int64>>", "list<list<decimal>>", [[Decimal(2)], None], [[2], None]),
    ("list<list<int64>>", "list<list<decimal>>", [[Decimal(10) ** 28]], None),
]
"""Types of a column when a feed begins and later, a later value, and what the feed gives, nothing if it cannot."""


@pytest.mark.parametrize(("old", "new", "value", "wanted"), HELD)
def test_a_feed_gives_no_value_that_the_type_of_its_start_would_round(
    tmp_path: Path, old: str, new: str, value: Any, wanted: Any
) -> None:
    options = {"path": str(tmp_path / "state.db"), "table": "t", "changes": "true"}
    with PersistedObjectSpace.open(options["path"]) as space:
        table = StateTable(space, "t", TableSchema([Column("k", "string"), Column("a", old)], ["k"]))
        space.checkpoint()
        source = ObjectSpaceSource(options)
        reader = FeedReaders(source)
        StateTable(space, "t", table.schema.widened("a", new), evolve=True).insert_row(("x", value))
        space.checkpoint()
        [part] = reader.partitions({"epoch": 1}, {"epoch": 2})
        if wanted is not None:
            assert [row["a"] for batch in reader.read(part) for row in batch.to_pylist()] == [wanted]
            return
        with pytest.raises(
            ObjectSpaceError,
            match=f"'t' at epoch 2: column 'a' is {new} now, .* with {old}, .*: start another one, .*; .*",
        ):
            list(reader.read(part))


def test_another_column_that_a_shard_renames_later_ends_a_feed(space: Space) -> None:
    space.epoch(put(KEYS[0][1], 3, 30, change=adding("b")), put(KEYS[1][1], 4, 5, change=adding("c", 9)))
    before = space.feed(columns="k,b")
    space.epoch(None, put(KEYS[1][2], 4, 5, change=renaming("c", "b")))
    with pytest.raises(ObjectSpaceError, match="has renamed another column to 'b', of which the feed has given the"):
        before(2, 3)


@pytest.mark.parametrize(
    ("change", "row", "message"),
    [
        (dropping("b"), (5,), "no longer has column 'b'"),
        (renaming("b", "z"), (5, 50), "has renamed column 'b', which it got after the feed began, to 'z'"),
        (dropping("b", renaming("a", "b")), (5,), "no longer has column 'b'"),
    ],
)
def test_a_column_that_a_shard_got_later_and_has_no_more_ends_a_feed(
    space: Space, change: Change, row: tuple[int, ...], message: str
) -> None:
    space.epoch(put(KEYS[0][1], 3, 30, change=adding("b")), None)
    before = space.feed()
    space.epoch(None, put(KEYS[1][1], 4, 40, change=adding("b")))
    assert before(2, 3) == [("+", 3, KEYS[1][1], 4, 40)]
    space.epoch(None, put(KEYS[1][2], *row, change=change))
    with pytest.raises(ObjectSpaceError, match=f"at epoch 4 {message}.*: start another feed"):
        before(3, 4)


def test_a_feed_that_began_before_its_table_has_the_columns_of_all_shards(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("OBJECTSPACE_CACHE", str(tmp_path / "readers"))
    space = Space(tmp_path)
    space.epoch(put("x", 1, table="u"), None)
    source = space.source(changes="true")
    reader = FeedReaders(source, StructType().add("op", "string").add("k", "string").add("b", "long"))
    space.epoch(put(KEYS[0][0], 1, 10, change=adding("b")), put(KEYS[1][0], 2))
    history = Subject.of(source.options).history()
    parts = reader.partitions(history.seen(1).offset(), history.seen(2).offset())
    found = [tuple(row.values()) for part in parts for batch in reader.read(part) for row in batch.to_pylist()]
    assert sorted(found) == sorted([("+", KEYS[0][0], 10), ("+", KEYS[1][0], 7)])


def test_a_feed_goes_on_by_numbers_after_another_number_of_shards(space: Space) -> None:
    space.epoch(*[put(KEYS[shard][1], 3, 30, change=adding("b")) for shard in range(2)])
    before = space.feed()
    space.rescale(1)
    assert adds_up(space, 3)
    space.epoch(put(KEYS[0][2], 5, 50, change=renaming("b", "c")))
    assert before(3, 4) == [("+", 4, KEYS[0][2], 5, 50)]
    assert adds_up(space, 4)
    space.epoch(put(KEYS[0][3], 5, change=dropping("c")))
    with pytest.raises(ObjectSpaceError, match="at epoch 5 no longer has column 'b'"):
        before(4, 5)
    space.epoch(put(KEYS[0][3], 5, 60, change=adding("b", 8)))
    assert adds_up(space, 6)


def test_a_feed_over_a_division_says_where_nothing_tells_what_a_column_was(space: Space) -> None:
    space.epoch(*[put(KEYS[shard][1], 3, 30, change=adding("b")) for shard in range(2)])
    space.rescale(3)
    edits: list[Edit] = [None] * 3
    edits[shard_of(3, KEYS[0][1])] = put(KEYS[0][1], 3, change=dropping("b"))
    space.epoch(*edits)
    with pytest.raises(
        ObjectSpaceError, match="column 'b' in shards that have dropped or added it in other ways since"
    ):
        space.feed()(0, 4)
    assert adds_up(space, 4, columns="k,a")


def test_a_feed_finds_a_column_that_was_renamed_before_the_shards_were_others(space: Space) -> None:
    space.epoch(*[put(KEYS[shard][1], 3, change=renaming("a", "z")) for shard in range(2)])
    space.rescale(1)
    space.epoch(put(KEYS[0][2], 4))
    new = [("+", 2, KEYS[shard][1], 3) for shard in range(2)]
    assert space.feed()(0, 4) == sorted([*[("+", 1, *row) for row in OLD], *new, ("+", 4, KEYS[0][2], 4)])


def test_tables_that_shards_have_made_in_another_order_are_divided(space: Space) -> None:
    space.epoch(put(KEYS[0][1], 3, table="u"), put(KEYS[1][1], 4, table="v"))
    space.epoch(put(KEYS[0][1], 3, table="v"), put(KEYS[1][1], 4, table="u"))
    rescale(space.path, 1, keyed={OPERATOR: ["t", "u", "v"]})
    for table in ("u", "v"):
        assert rows_of(space.source(table=table).reader(StructType().add("k", "string").add("a", "integer"))) == sorted(
            [(KEYS[0][1], 3), (KEYS[1][1], 4)]
        )


APART_BY = [
    ((adding("b"), (1, 30)), (same, (2,)), "shard 1 has the columns k string not null .number 1., a int32 .number 2."),
    ((adding("b"), (1, 30)), (adding("b", 8), (2, 40)), "b int64 not null default 7 .number 3.; shard 1 has"),
    (
        (adding("b"), (1, 30)),
        (lambda s: adding("b")(adding("c")(s)), (2, 9, 40)),
        "b int64 not null default 7 .number 4",
    ),
    (
        (adding("b"), (1, 30)),
        (lambda s: adding("b")(s).without_column("b"), (2,)),
        "rows of shard 0 were written with the columns numbered .1, 2. or .1, 2, 3.",
    ),
    ((same, (1,)), (renaming("a", "z"), (2,)), "shard 1 has the columns k string not null .number 1., z int32"),
]
"""What shards have evolved apart by, and what is said of it."""


@pytest.mark.parametrize("shards", [1, 3, 4])
@pytest.mark.parametrize(("first", "second", "message"), APART_BY)
def test_tables_that_have_evolved_apart_are_not_divided(
    space: Space, first: tuple[Change, Any], second: tuple[Change, Any], message: str, shards: int
) -> None:
    edits = [put(KEYS[shard][1], *row, change=change) for shard, (change, row) in enumerate((first, second))]
    space.epoch(*edits)
    with pytest.raises(
        ObjectSpaceError, match=f"shard 0 and shard 1 have evolved table 't' apart: .*{message}.*: shards"
    ):
        space.rescale(shards)
    assert (Chain.open(location_at(space.path)).shards, Chain.open(location_at(space.path)).epoch) == (2, 2)


def test_a_shard_that_lags_behind_is_divided_when_it_has_taken_a_row_with_each_version(space: Space) -> None:
    space.epoch(put(KEYS[0][1], 3, 30, change=adding("b")), None)
    space.epoch(put(KEYS[0][2], 5, change=dropping("b")), None)
    space.epoch(None, put(KEYS[1][1], 4, 40, change=adding("b")))
    with pytest.raises(ObjectSpaceError, match="one that lags behind with those it lacks"):
        space.rescale(1)
    space.epoch(None, put(KEYS[1][2], 6, change=dropping("b")))
    wanted = space.read()
    space.rescale(1)
    assert space.read() == wanted


TIMED = TableSchema([Column("k", "string"), Column("t", "int32")], ["k"], watermark_column="t")


def timed(*rows: tuple[str, int], watermark: int | None = None) -> Edit:
    """Return what gives a shard rows of a table with a watermark, and raises it."""

    def _put(space: PersistedObjectSpace) -> None:
        table = StateTable(space, "t", TIMED)
        for row in rows:
            table.insert_row(row)
        if watermark is not None:
            table.update_watermark(watermark)

    return _put


def test_a_watermark_that_a_shard_with_rows_does_not_have_is_not_divided(tmp_path: Path) -> None:
    space = Space(tmp_path)
    space.epoch(timed((KEYS[0][0], 50)), timed((KEYS[1][0], 6)))
    space.epoch(timed(watermark=10), None)
    with pytest.raises(
        ObjectSpaceError, match=r"watermark of table 't' is .* in shard 0 and None in shard 1, which has"
    ):
        space.rescale(1)
    space.epoch(None, timed(watermark=10))
    space.rescale(1)
    assert space.read()[1] == [(KEYS[0][0], 50)]


def test_a_shard_without_rows_needs_no_watermark(tmp_path: Path) -> None:
    space = Space(tmp_path)
    space.epoch(timed((KEYS[0][0], 50), watermark=10), timed())
    space.rescale(1)
    assert space.read()[1] == [(KEYS[0][0], 50)]


@pytest.mark.parametrize("table", ["a", "a/table", "a/b", "a/b/table"])
def test_an_operator_whose_name_begins_with_that_of_another_one_is_found(tmp_path: Path, table: str) -> None:
    operators = ["a", "a/b"]
    chain = Chain.open_or_create(location_at(tmp_path / "space"), 1)
    plan = chain.begin(SourcePosition("q", 0), operators, cache=str(tmp_path / "cache"))
    assert plan is not None
    saved = {}
    for name in operators:
        with open_shard(plan.operators[name], 0) as space:
            StateTable(space, f"{name}/table", FIRST).insert_row((name, 1))
            saved[name] = [save_shard(plan.operators[name], space, 0)]
    chain.publish(plan, saved)
    source = ObjectSpaceSource({"path": str(tmp_path / "space"), "table": table})
    assert rows_of(source.reader(source.schema())) == [(table.removesuffix("/table"), 1)]
