"""Texts in columns of numbers come back character by character, whatever they are."""

from __future__ import annotations

import io

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from checkpoint import CheckpointKind, Run
from checkpoint.chain import Location, decode_run, encode_run, read_run, runfile, write_run
from checkpoint.chain.runfile import read_pages
from checkpoint.chain.shredding import LEAST_ROWS, MOST_NUMBERS, joined, shred

ROWS = LEAST_ROWS + 100

_pieces = st.text(st.sampled_from('{}[],:"-.é0 ax'), max_size=4)
_numbers = st.one_of(st.integers(-(2**70), 2**70), st.integers(-20, 20), st.just(10**18 - 1), st.just(-(10**18)))


def assert_back(texts: list[str | None]) -> bool:
    """Shred texts and join them again; tell whether they were of one shape."""
    array = pa.array(texts, pa.string())
    found = shred(array)
    if found is None:
        return False
    assert joined(found).to_pylist() == texts
    assert all((number.is_valid == other.is_valid) is False for number, other in zip(found.numbers[0], found.others)
               if number.is_valid)  # fmt: skip
    return True


@given(st.lists(_pieces, min_size=2, max_size=4), st.lists(st.lists(_numbers, min_size=3, max_size=3), min_size=1))
@example(["[", "]"], [[7, 0, 0]])
@example(["", ""], [[7, 0, 0], [-7, 0, 0]])
def test_texts_of_one_shape_come_back(pieces: list[str], rows: list[list[int]]) -> None:
    texts = ["".join(f"{piece}{number}" for piece, number in zip(pieces[1:], row)) + pieces[0] for row in rows]
    assert_back((texts * ROWS)[:ROWS])


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
    found = shred(pa.array([*texts, text, *texts]))
    assert found is not None
    assert joined(found).to_pylist() == [*texts, text, *texts]
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
    assert shred(pa.array(texts, pa.string())) is None


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
    monkeypatch.setattr(runfile, "shred", lambda texts: None)
    assert accepted.file_bytes < 0.8 * len(encode_run(run))


def test_any_parquet_tool_reads_the_numbers() -> None:
    table = pq.read_table(io.BytesIO(encode_run(totals(1_000))))
    rows = [row for row in table.to_pylist() if row["table"] == "item" and row["object"] == 1]
    assert [row["value_number_1"] for row in rows[:5]] == [0, 1, 4, None, 16]
    assert decode_run(encode_run(totals(1_000))) == totals(1_000)
