"""Runs that go by page by page: the same files, digests and states as of runs in memory, whatever their size."""

from __future__ import annotations

import io
import random
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from checkpoint import CheckpointError, CheckpointKind, CorruptStoreError
from checkpoint.chain import (
    AcceptedRun,
    Chain,
    Location,
    decode_run,
    folding,
    location_at,
    open_cache,
    read_run,
    runfile,
    write_image,
    write_run,
)
from checkpoint.chain.runfile import checksum, read_pages, write_pages
from checkpoint.run import Page, PageMeasure, Run
from objectspace import PersistedObjectSpace
from tests.checkpoint.store_helpers import image_of, quick_store, random_run

from .chain_helpers import OPERATOR, Publisher

EMPTY = Run(CheckpointKind.FULL)
VALUES = st.recursive(
    st.none() | st.integers(-9, 9) | st.text(max_size=3) | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=2),
    max_leaves=3,
)
OBJECTS = st.lists(st.dictionaries(st.integers(0, 9) | st.text("ab", max_size=2), VALUES, max_size=9), max_size=4)


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(objects=OBJECTS, page_rows=st.integers(1, 7))
def test_pages_make_the_file_and_the_store_that_the_run_makes(
    location: Location, objects: list[dict[Any, Any]], page_rows: int
) -> None:
    with quick_store(":memory:") as store, quick_store(":memory:") as other, quick_store(":memory:") as third:
        space = PersistedObjectSpace(store)
        for number, content in enumerate(objects):
            space.create_dictionary(f"d{number}").update(content)
            space.create_dictionary(f"lists {number}", of=list)["x"] = list(content)
            space.checkpoint()
        image = store.reader().image()
        paged = write_pages(location, store.reader().image_pages(page_rows), "op", 0, 1)
        whole = write_run(location, image, "op", 0, 1)
        assert (paged.digest, paged.slots, paged.bytes) == (whole.digest, whole.slots, whole.bytes)
        assert read_run(location, paged) == read_run(location, whole) == image
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(runfile, "_PAGE_ROWS", page_rows)
            receipt = other.apply_pages(CheckpointKind.FULL, read_pages(location, whole), 1)
        wanted = third.apply(image, 1)
        assert (receipt.slots, receipt.bytes, receipt.kind) == (wanted.slots, wanted.bytes, wanted.kind)
        assert image_of(other.reader()) == image_of(third.reader()) == image_of(store.reader())
        assert other.checkpoints()[0].digest == third.checkpoints()[0].digest == whole.digest
        assert other.verify() == 1
        after = PersistedObjectSpace(other)
        after.create_value("new id", 1)
        assert after.get("new id")._id >= max((row[0] for row in image.items), default=0)


def test_a_shard_without_a_row_makes_a_file_that_every_pyarrow_reads(location: Location) -> None:
    paged = write_pages(location, iter(()), "op", 0, 1)
    data = location.read(paged.file) or b""
    assert pq.ParquetFile(io.BytesIO(data)).num_row_groups == 1
    assert (paged.digest, decode_run(data), [*read_pages(location, paged)]) == (EMPTY.digest(), EMPTY, [])


def test_a_file_to_which_no_table_was_written_is_read(location: Location) -> None:
    data, text = io.BytesIO(), pa.schema({"table": pa.string()})
    with pq.ParquetWriter(data, text) as writer:
        writer.add_key_value_metadata({"format": "1", "kind": "full"})
    accepted = write_run(location, EMPTY, "op", 0, 1)
    location.write("run/bare.parquet", data.getvalue())
    bare = replace(accepted, file="run/bare.parquet", checksum=checksum(data.getvalue()))
    assert (read_run(location, bare), [*read_pages(location, bare)]) == (EMPTY, [])


def test_a_page_that_cannot_be_had_leaves_the_store_as_it_was() -> None:
    def broken() -> Iterator[Page]:
        yield 0, [(1, "o1", "Sample", "{}")]
        yield 2, [(1, 1, "1", None)]
        raise CorruptStoreError("the file ends here")

    with quick_store(":memory:") as store:
        with pytest.raises(CorruptStoreError, match="ends here"):
            store.apply_pages(CheckpointKind.FULL, broken(), 1)
        assert (store.next_number(), store.reader().index()) == (1, [])
        backwards: list[Page] = [(2, [(1, 1, "1", None)]), (0, [(1, "o1", "Sample", "{}")])]
        with pytest.raises(CheckpointError, match="give them in order"):
            store.apply_pages(CheckpointKind.FULL, backwards, 1)
        assert store.apply_pages(CheckpointKind.FULL, iter([(1, [])]), 1).slots == 0


def test_differential_runs_go_by_too(monkeypatch: pytest.MonkeyPatch, location: Location) -> None:
    monkeypatch.setattr(runfile, "_PAGE_ROWS", 2)
    rng = random.Random(3)
    with quick_store(":memory:") as store, quick_store(":memory:") as other:
        for number in range(1, 40):
            run = random_run(rng, number)
            written = write_run(location, run, "op", 0, number)
            store.apply(run, number)
            other.apply_pages(run.kind, read_pages(location, written), number)
            assert image_of(other.reader()) == image_of(store.reader())
        assert [one.digest for one in other.checkpoints()] == [one.digest for one in store.checkpoints()]


def test_a_cache_that_folds_pages_is_the_cache(
    publish: Publisher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folding, "PAGED_SLOTS", 2)
    chain = Chain.open_or_create(location_at(tmp_path / "space"), 1)
    for number in range(6):
        publish(chain, {f"k{n}": n + number for n in range(number)})
    plan = chain.operator_plan(OPERATOR, cache=str(tmp_path / "cache"))
    publish(chain, {"last": 1}, images=[write_image(plan, 0)])
    for folder in ("cache", "another"):
        plan = chain.operator_plan(OPERATOR, cache=str(tmp_path / folder))
        with open_cache(plan, 0) as store:
            found = {item.slot: item.value for item in store.reader().items(1)}
        assert {"k0": "5", "k4": "9", "last": "1"}.items() <= found.items()


def peak_of(work: Callable[[], object]) -> int:
    """Return the bytes that Python had at most while some work was done; those of Arrow and SQLite are not in it."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_the_memory_of_an_image_does_not_grow_with_the_shard(
    location: Location, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runfile, "_PAGE_ROWS", 1_000)
    peaks = [_peaks(location, tmp_path / str(slots), slots) for slots in (5_000, 40_000)]
    for few, many in zip(*peaks, strict=True):
        assert many < 2 * few + (1 << 20), peaks


def _peaks(location: Location, folder: Path, slots: int) -> tuple[int, int]:
    """Return what it takes to write the image of so many slots, and to fold it in."""
    folder.mkdir()
    with quick_store(folder / "from.db") as store, quick_store(folder / "to.db") as other:
        space = PersistedObjectSpace(store)
        space.create_dictionary("d").update({number: f"value {number}" for number in range(slots)})
        space.checkpoint()
        space.close()
        reader, made = store.reader(), list[AcceptedRun]()
        write = peak_of(lambda: made.append(write_pages(location, reader.image_pages(1_000), "op", 0, 1)))
        fold = peak_of(lambda: other.apply_pages(CheckpointKind.FULL, read_pages(location, made[0]), 1))
        assert image_of(other.reader()) == image_of(reader)
    return write, fold


def test_the_measure_of_pages_does_not_depend_on_where_they_end() -> None:
    rows: list[Any] = [(1, number, str(number), None) for number in range(10)]
    cuts = ([rows], [rows[:3], rows[3:]], [[row] for row in rows])
    found = []
    for pages in cuts:
        measure = PageMeasure()
        for page in pages:
            measure.take((2, page))
        found.append(measure.result())
    assert found[0] == found[1] == found[2]
