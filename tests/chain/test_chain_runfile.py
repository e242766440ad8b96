"""Run files: every row comes back as it was, and damage of any byte is found."""

from __future__ import annotations

import io
from dataclasses import replace

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpoint import CheckpointError, CheckpointKind, CorruptStoreError, Run
from checkpoint.chain import Location, decode_run, encode_run, read_run, runfile, write_run
from tests.tally import TALLY

RUN = Run(
    CheckpointKind.FULL,
    index=[(1, "räder", "Dictionary", "json"), (2, "gone", None, None)],
    metadata=[(1, "length", "3"), (1, "head", None)],
    items=[
        (1, -5, "42", None),
        (1, 2.5, "", 7),
        (1, "key", None, 8),
        (1, b"\x00\xff", b"\x01", 9),
        (1, b"", b"", None),
        (3, 2**63 - 1, "[1]", 2**62),
    ],
)

_integers = st.integers(-(2**63), 2**63 - 1)
_text = st.text(st.characters(codec="utf-8"), max_size=8)
_slots = st.one_of(_integers, st.floats(allow_nan=False), _text, st.binary(max_size=8))
_values = st.one_of(st.none(), _text, st.binary(max_size=8))
_runs = st.builds(
    Run,
    st.sampled_from(CheckpointKind),
    st.lists(st.tuples(_integers, _text, st.none() | _text, st.none() | _text), max_size=4),
    st.lists(st.tuples(_integers, _text, st.none() | _text), max_size=4),
    st.lists(st.tuples(_integers, _slots, _values, st.none() | _integers), max_size=8),
)


def _rows(run: Run) -> list[str]:
    return [repr(row) for table in run.tables for row in table]


def test_a_run_comes_back_as_it_was(location: Location) -> None:
    accepted = write_run(location, RUN, "counter", 3, 7)
    assert read_run(location, accepted) == RUN
    assert (accepted.slots, accepted.bytes, accepted.digest) == (RUN.slots, RUN.bytes, RUN.digest())
    assert accepted.file_bytes == len(location.read(accepted.file) or b"")


@given(_runs)
@settings(max_examples=60, deadline=None)
def test_any_run_comes_back_as_it_was(run: Run) -> None:
    back = decode_run(encode_run(run))
    assert back.kind is run.kind
    assert _rows(back) == _rows(run)


def test_two_writes_of_one_run_have_two_names(location: Location) -> None:
    assert write_run(location, RUN, "counter", 0, 1).file != write_run(location, RUN, "counter", 0, 1).file


def test_any_parquet_tool_reads_a_run_file() -> None:
    table = pq.read_table(io.BytesIO(encode_run(RUN))).to_pylist()
    assert [row["table"] for row in table] == ["index"] * 2 + ["metadata"] * 2 + ["item"] * 6
    assert {"object": 1, "slot_integer": -5, "value_text": "42"}.items() <= table[4].items()


def test_damage_of_any_byte_is_found(location: Location) -> None:
    accepted = write_run(location, RUN, "counter", 0, 1)
    data = location.read(accepted.file) or b""
    for place in range(len(data)):
        damaged = data[:place] + bytes([data[place] ^ 0x10]) + data[place + 1 :]
        location.write(accepted.file, damaged)
        with pytest.raises(CorruptStoreError, match=accepted.file):
            read_run(location, accepted)
        TALLY["bytes flipped"] += 1


@pytest.mark.parametrize("length", [0, 1, 100, -1])
def test_a_file_cut_short_is_found(location: Location, length: int) -> None:
    accepted = write_run(location, RUN, "counter", 0, 1)
    location.write(accepted.file, (location.read(accepted.file) or b"")[:length])
    with pytest.raises(CorruptStoreError, match="is damaged: expected checksum"):
        read_run(location, accepted)


def test_a_missing_file_is_named(location: Location) -> None:
    accepted = replace(write_run(location, RUN, "counter", 2, 5), file="run/other.parquet")
    with pytest.raises(CorruptStoreError, match=r"run/other\.parquet .*epoch 5, counter/2.* is missing"):
        read_run(location, accepted)


def test_a_file_of_another_kind_is_no_run_file() -> None:
    with pytest.raises(CorruptStoreError, match="is no run file"):
        decode_run(b"something else")
    sink = io.BytesIO()
    pq.write_table(pq.read_table(io.BytesIO(encode_run(RUN))).replace_schema_metadata(None), sink)
    with pytest.raises(CorruptStoreError, match="is no run file"):
        decode_run(sink.getvalue())


def test_a_run_of_another_kind_than_was_accepted_is_refused(location: Location) -> None:
    accepted = write_run(location, RUN, "counter", 0, 1)
    other = replace(accepted, kind=CheckpointKind.DIFFERENTIAL)
    with pytest.raises(CorruptStoreError, match="holds a full run, and its manifest names a differential one"):
        read_run(location, other)
    with pytest.raises(CorruptStoreError, match="holds a full run"):
        list(runfile.read_pages(location, other))


def test_a_newer_format_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(CheckpointKind.DIFFERENTIAL, items=[(1, slot, f"[{slot}]", None) for slot in range(1_000)])
    monkeypatch.setattr(runfile, "FORMAT_VERSION", 3)
    data = encode_run(run)
    monkeypatch.undo()
    with pytest.raises(CheckpointError, match=r"format 3: expected at most 2: upgrade"):
        decode_run(data)


def test_a_file_without_its_numbers_is_no_run_file() -> None:
    run = Run(CheckpointKind.DIFFERENTIAL, items=[(1, slot, f"[{slot}]", None) for slot in range(1_000)])
    table, sink = pq.read_table(io.BytesIO(encode_run(run))), io.BytesIO()
    with pq.ParquetWriter(sink, table.drop_columns(["value_number_0"]).schema) as writer:
        writer.write_table(table.drop_columns(["value_number_0"]))
        writer.add_key_value_metadata({"format": "2", "kind": "full", "template": '["[", "]"]'})
    with pytest.raises(CorruptStoreError, match="is no run file"):
        decode_run(sink.getvalue())
