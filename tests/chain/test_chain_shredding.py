"""Texts in columns of numbers come back character by character, whatever they are."""

from __future__ import annotations

import io
from dataclasses import replace
from random import Random

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from checkpoint import CheckpointKind, CorruptStoreError, Run
from checkpoint.chain import Location, decode_run, encode_run, read_run, runfile, shredding, write_run
from checkpoint.chain.runfile import checksum, read_pages, write_pages
from checkpoint.chain.shredding import LEAST_ROWS, MOST_NUMBERS, joined, shred, template_of

ROWS = LEAST_ROWS + 100

_pieces = st.text(st.sampled_from('{}[],:"-.é0 ax'), max_size=4)
_numbers = st.one_of(st.integers(-(2**70), 2**70), st.integers(-20, 20), st.just(10**18 - 1), st.just(-(10**18)))


def assert_back(texts: list[str | None]) -> bool:
    """Shred texts and join them again; tell whether they were of one shape."""
    array = pa.array(texts, pa.string())
    template = template_of(array)
    found = shred(array, template) if template else None
    if found is None:
        return False
    assert joined(found, template).to_pylist() == texts
    assert all((number.is_valid == other.is_valid) is False for number, other in zip(found.numbers[0], found.others)
               if number.is_valid)  # fmt: skip
    return True


@given(st.lists(_pieces, min_size=2, max_size=4), st.lists(st.lists(_numbers, min_size=3, max_size=3), min_size=1))
@example(["[", "]"], [[7, 0, 0]])
@example(["", ""], [[7, 0, 0], [-7, 0, 0]])
def test_texts_of_one_shape_come_back(pieces: list[str], rows: list[list[int]]) -> None:
    texts = ["".join(f"{piece}{number}" for piece, number in zip(pieces[1:], row)) + pieces[0] for row in rows]
    assert_back((texts * ROWS)[:ROWS])


def test_a_minus_at_the_end_of_a_text_is_none_of_the_number_that_the_next_text_begins_with() -> None:
    assert assert_back([f"{number}-" for number in range(ROWS)])


@given(st.lists(st.one_of(st.none(), st.text(max_size=6), st.integers().map(str), _pieces), min_size=1, max_size=30))
def test_any_texts_come_back(texts: list[str | None]) -> None:
    shaped: list[str | None] = [f'{{"n":{number}}}' for number in range(ROWS)]
    assert assert_back(shaped + texts)
    assert_back((texts * ROWS)[:ROWS])


@pytest.mark.parametrize(
    "text", ["{'n':07}", "{'n':-0}", "{'n':" + "9" * 30 + "}", "{'m':1}", "{'n':1,2}", "", None, "x"]
)
def test_what_has_another_shape_stays_as_it_is(text: str | None) -> None:
    texts: list[str | None] = [f"{{'n':{number - 300}}}" for number in range(ROWS)]
    array = pa.array([*texts, text, *texts])
    found = shred(array, template_of(array))
    assert found is not None
    assert joined(found, template_of(array)).to_pylist() == [*texts, text, *texts]
    assert found.others.to_pylist()[ROWS] == text
    assert found.numbers[0].null_count == 1


@pytest.mark.parametrize(
    "texts",
    [
        [f"[{number}]" for number in range(LEAST_ROWS - 1)],
        [f"[{number}]" if number % 4 else f'["{number}a"]' for number in range(ROWS)],
        ["[]"] * ROWS,
        [orjson.dumps([number] * (MOST_NUMBERS + 1)).decode() for number in range(ROWS)],
        [f"[{'9' * 19}]"] * ROWS,
        [None] * ROWS,
    ],
    ids=["few", "several shapes", "no numbers", "many numbers", "long numbers", "nothing"],
)
def test_where_columns_would_not_help_there_are_none(texts: list[str | None]) -> None:
    assert not assert_back(texts)


def test_slices_give_what_the_whole_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [None if number % 7 == 2 else f"[{number},-1]" if number % 30 else "other" for number in range(5_000)]
    array = pa.array([None] * 900 + texts)
    whole = shred(array, ("[", ",", "]"))
    monkeypatch.setattr(shredding, "SLICE_BYTES", 1_000)
    found = shred(array, ("[", ",", "]"))
    assert whole is not None
    assert found is not None
    assert found.others.num_chunks > 50
    assert found.others.to_pylist() == whole.others.to_pylist()
    assert [one.to_pylist() for one in found.numbers] == [one.to_pylist() for one in whole.numbers]
    assert joined(found, ("[", ",", "]")).to_pylist() == [None] * 900 + texts


def totals(rows: int) -> Run:
    """Return the run of a group-by, with some slots deleted and an object of another shape."""
    items = [(1, key, None if key % 50 == 3 else f'{{"rows":{key % 9},"sum":{key * key}}}', key) for key in range(rows)]
    return Run(
        CheckpointKind.DIFFERENTIAL,
        index=[(1, "totals", "Dictionary", "json")],
        metadata=[(1, "length", str(rows)), (2, "length", "1")],
        items=[*items, (2, 0, '"text"', None)],
    )


def test_a_run_of_one_shape_is_smaller_and_comes_back(location: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    run = totals(5_000)
    accepted = write_run(location, run, "totals", 0, 1)
    assert read_run(location, accepted) == run
    pages = list(read_pages(location, accepted))
    assert [row for place, rows in pages for row in rows if place == 2] == run.items
    monkeypatch.setattr(runfile, "template_of", lambda texts: ())
    assert accepted.file_bytes < 0.8 * len(encode_run(run))


def test_numbers_that_come_again_take_no_more_room_than_the_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    chance = Random(1)
    ids = [chance.randint(10**17, 10**18) for _ in range(50)]
    pairs = [f'{{"user":{chance.choice(ids)},"other":{chance.choice(ids)}}}' for _ in range(20_000)]
    run = Run(CheckpointKind.DIFFERENTIAL, items=[(1, slot, text, None) for slot, text in enumerate(pairs)])
    numbers = len(encode_run(run))
    monkeypatch.setattr(runfile, "template_of", lambda texts: ())
    assert numbers < len(encode_run(run))


def test_images_have_columns_of_numbers_too(location: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    run = totals(20_000)
    rows = [row for row in run.items if row[2] is not None]
    pages = [(0, run.index), (1, run.metadata), (2, rows[:9_000]), (2, rows[9_000:-1]), (2, rows[-1:])]
    accepted = write_pages(location, pages, "totals", 0, 1)
    assert read_run(location, accepted) == Run(CheckpointKind.FULL, run.index, run.metadata, rows)
    assert [row for place, page in read_pages(location, accepted) for row in page if place == 2] == rows
    monkeypatch.setattr(runfile, "template_of", lambda texts: ())
    assert accepted.file_bytes < 0.8 * write_pages(location, pages, "totals", 0, 1).file_bytes


HOSTILE = {
    "no template": {"format": "2"},
    "no list": {"format": "2", "template": "5"},
    "a text": {"format": "2", "template": '"[]"'},
    "no texts": {"format": "2", "template": "[1, 2]"},
    "one piece": {"format": "2", "template": '["a"]'},
    "many pieces": {"format": "2", "template": str(["a"] * 40).replace("'", '"')},
    "half a character": {"format": "2", "template": '["\\ud800", "b"]'},
    "deep": {"format": "2", "template": "[" * 200_000},
    "an older format": {"format": "1", "template": '["[", "]"]'},
    "no format": {"format": "0"},
    "a negative format": {"format": "-1"},
}


@pytest.mark.parametrize("said", HOSTILE.values(), ids=HOSTILE)
def test_a_template_that_cannot_be_is_named(location: Location, said: dict[str, str]) -> None:
    assert_refused(location, pa.table({"value_number_0": [1, 2]}), said)


@pytest.mark.parametrize("column", [[1.5, 2.0], [True, False], ["1", "2"], [b"1", b"2"]], ids=str)
@pytest.mark.parametrize("name", ["value_number_0", "value_text"])
def test_columns_of_another_type_are_named(location: Location, name: str, column: list[object]) -> None:
    if (name, column) != ("value_text", ["1", "2"]):
        columns = {"value_number_0": [1, 2], name: column}
        assert_refused(location, pa.table(columns), {"format": "2", "template": '["[", "]"]'})


def assert_refused(location: Location, columns: pa.Table, said: dict[str, str]) -> None:
    """Write a run file with some columns and metadata, and see that both ways of reading refuse it in words."""
    table, sink = columns.append_column("table", pa.array(["item", "item"])), io.BytesIO()
    table = table.append_column("object", pa.array([1, 1])).append_column("slot_integer", pa.array([1, 2]))
    with pq.ParquetWriter(sink, table.schema) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({"kind": "full", **said})
    with pytest.raises(CorruptStoreError, match="is no run file"):
        decode_run(sink.getvalue())
    accepted = replace(write_run(location, totals(3), "totals", 0, 1), checksum=checksum(sink.getvalue()))
    location.write(accepted.file, sink.getvalue())
    with pytest.raises(CorruptStoreError, match="is no run file"):
        list(read_pages(location, accepted))


def test_any_parquet_tool_reads_the_numbers() -> None:
    table = pq.read_table(io.BytesIO(encode_run(totals(1_000))))
    rows = [row for row in table.to_pylist() if row["table"] == "item" and row["object"] == 1]
    assert [row["value_number_1"] for row in rows[:5]] == [0, 1, 4, None, 16]
    assert decode_run(encode_run(totals(1_000))) == totals(1_000)
