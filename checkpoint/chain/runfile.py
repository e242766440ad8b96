"""Run files: the rows of one checkpoint as one Parquet file, written once under a name that nobody else uses.

The three tables share one file: the column ``table`` tells the rows apart, and a slot or value is in the column of its
type, so that any Parquet tool can read them. A column without any value is left out. If many texts have one shape, say
``{"rows":3,"sum":120}``, their numbers are in columns of their own. Two hashes protect a file: the checksum over its
bytes is compared before anything is decoded, and the digest over its rows is what a lineage names.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from checkpoint.chain.location import Location
from checkpoint.chain.manifest import AcceptedRun
from checkpoint.chain.shredding import MOST_NUMBERS, Shredded, Template, joined, shred, template_of
from checkpoint.errors import RESTORE, CheckpointError, CorruptStoreError
from checkpoint.run import CheckpointKind, IndexRow, ItemRow, Measure, MetadataRow, Page, PageMeasure, Run

FORMAT_VERSION = 2
"""The newest format of run files that is read; only files with columns of numbers have it, all others have 1."""

_INDEX, _METADATA, _ITEM = "index", "metadata", "item"
_SLOTS = ["slot_integer", "slot_real", "slot_text", "slot_bytes"]
_TEXT = "value_text"
_VALUES = [_TEXT, "value_bytes"]
_COLUMNS = [
    ("table", pa.string()),
    ("object", pa.int64()),
    ("name", pa.string()),
    ("kind", pa.string()),
    ("codec", pa.string()),
    ("key", pa.string()),
    ("slot_integer", pa.int64()),
    ("slot_real", pa.float64()),
    ("slot_text", pa.string()),
    ("slot_bytes", pa.binary()),
    ("value_text", pa.string()),
    ("value_bytes", pa.binary()),
    ("rank", pa.int64()),
]
# For a run of 4 rows the description of the columns is most of the file: without statistics, an Arrow schema and the
# columns that have no value it takes 0.9 kB, not 2.9. A file is read whole, so none of these would be of use.
_LEAN = {"compression": "zstd", "write_statistics": False, "store_schema": False}
_FEW_VALUES = ["table", "kind", "codec", "key"]
# Rows are sorted, so numbers are close to the one before, and texts have much the same length.
_DELTA, _LENGTHS = "DELTA_BINARY_PACKED", "DELTA_LENGTH_BYTE_ARRAY"
_ENCODINGS = {
    "object": _DELTA,
    "slot_integer": _DELTA,
    "rank": _DELTA,
    "slot_text": _LENGTHS,
    "value_text": _LENGTHS,
}

_UNREADABLE = (pa.ArrowException, OSError, KeyError, ValueError, TypeError, OverflowError, RecursionError)
"""What reading raises if the bytes are not a run file, or not as it was written."""

_PAGE_ROWS = 65_536
"""How many rows are read at once from a run that is streamed page by page."""


def write_run(location: Location, run: Run, operator: str, shard: int, epoch: int) -> AcceptedRun:
    """Write a run to a new private file, and return what a manifest says of it if it is accepted.

    Args:
        location: where the chain lies.
        run: the rows of the checkpoint.
        operator: the name of the operator whose state this is.
        shard: the number of its shard.
        epoch: the epoch that the run leads to.

    Raises:
        CheckpointError: the location cannot be written.

    Time: O(rows). Dirties: one new file, which nothing names yet.
    """
    return _written(location, encode_run(run), run.kind, run.measure(), (operator, shard, epoch))


def write_pages(location: Location, pages: Iterable[Page], operator: str, shard: int, epoch: int) -> AcceptedRun:
    """Write a full run that need not fit into memory, as :func:`write_run` does.

    Args:
        location: where the chain lies.
        pages: the rows in order, as ``Reader.image_pages`` yields them.
        operator: the name of the operator whose state this is.
        shard: the number of its shard.
        epoch: the epoch that the run leads to.

    Raises:
        CheckpointError: the location cannot be written.

    Time: O(rows); memory for a page and the bytes of the file. Dirties: one new file, which nothing names yet.
    """
    measure, sink, pages = PageMeasure(), pa.BufferOutputStream(), iter(pages)
    # The first page of items shows what shape the texts have.
    first = [*_until_items(pages)]
    if not first:  # A file to which no table is written cannot be read back by pyarrow before 20.
        return write_run(location, Run(CheckpointKind.FULL), operator, shard, epoch)
    examples = [rows for place, rows in first if place == len(_TABLES) - 1]
    example, template = _shredded(_item_table(examples[0])) if examples else (None, ())
    schema = pa.schema([*_COLUMNS, *((name, pa.int64()) for name in _numbers(template))])
    with _writer(sink, schema, CheckpointKind.FULL, template, example) as writer:
        for place, rows in chain(first, pages):
            writer.write_table(_in_columns(_TABLES[place](rows), template).select(schema.names))
            measure.take((place, rows))
    return _written(
        location, sink.getvalue().to_pybytes(), CheckpointKind.FULL, measure.result(), (operator, shard, epoch)
    )


def read_run(location: Location, accepted: AcceptedRun) -> Run:
    """Return the rows of an accepted run file.

    Args:
        location: where the chain lies.
        accepted: what the manifest says of the file.

    Raises:
        CorruptStoreError: the file is missing, or not byte for byte what was accepted.
        CheckpointError: the location cannot be read, or the file has a newer format.
    """
    data, place = checked(location, accepted)
    run = decode_run(data, place)
    _require_kind(run.kind, accepted, place)
    return run


def read_pages(location: Location, accepted: AcceptedRun) -> Iterator[Page]:
    """Yield the rows of an accepted run file page by page, as :func:`read_run` returns them.

    Raises:
        CorruptStoreError: the file is missing, or not byte for byte what was accepted.
        CheckpointError: the location cannot be read, or the file has a newer format.
    """
    data, place = checked(location, accepted)
    file, kind, template = _opened(data, place)
    try:
        for batch in file.iter_batches(_PAGE_ROWS, use_threads=False) if file.num_row_groups else ():
            run = run_of(kind, _whole(pa.Table.from_batches([batch]), template))
            yield from ((number, rows) for number, rows in enumerate(run.tables) if rows)
    except _UNREADABLE as error:
        raise CorruptStoreError(f"{place} is no run file: {error}") from error
    _require_kind(kind, accepted, place)


def _require_kind(kind: CheckpointKind, accepted: AcceptedRun, place: str) -> None:
    # The digest covers the rows; what they mean depends on the kind.
    if kind is not accepted.kind:
        raise CorruptStoreError(f"{place} holds a {kind} run, and its manifest names a {accepted.kind} one")


def checked(location: Location, accepted: AcceptedRun) -> tuple[bytes, str]:
    """Return the bytes of a file, verified to be what was accepted, and its name in error messages.

    Raises:
        CorruptStoreError: the file is missing, or not byte for byte what was accepted.
    """
    data, place = location.read(accepted.file), _place(location, accepted)
    if data is None:
        raise missing(location, accepted)
    found = checksum(data)
    if found != accepted.checksum:
        raise CorruptStoreError(
            f"{place} is damaged: expected checksum {accepted.checksum}, found {found} over {len(data)} bytes:"
            f" {_advice(accepted)}"
        )
    return data, place


def missing(location: Location, accepted: AcceptedRun, consequence: str = "") -> CorruptStoreError:
    """Return the error for a file that is gone.

    Args:
        location: where it was.
        accepted: what the manifest says of it.
        consequence: what follows from that, to end the sentence.
    """
    return CorruptStoreError(f"{_place(location, accepted)} is missing{consequence}: {_advice(accepted)}")


def _place(location: Location, accepted: AcceptedRun) -> str:
    return f"run file {accepted.file} of {location.url} (epoch {accepted.epoch}, {accepted.operator}/{accepted.shard})"


def _advice(accepted: AcceptedRun) -> str:
    instead = (
        ": in its place the copy has the runs that it was made of, if these are there" if accepted.replaces else ""
    )
    return f"{RESTORE}, or fork the space{instead or ' before that epoch'}"


def checksum(data: bytes) -> str:
    """Return 16 bytes of BLAKE2b over the bytes of a file, as hexadecimal digits.

    >>> checksum(b"")
    'cae66941d9efbd404e4d88758ea67670'
    """
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def encode_run(run: Run) -> bytes:
    """Return the bytes of a run file.

    Time: O(rows).
    """
    sink = pa.BufferOutputStream()
    table, template = _shredded(table_of(run))
    with _writer(sink, table.schema, run.kind, template, table) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def _until_items(pages: Iterator[Page]) -> Iterator[Page]:
    """Yield pages up to and including the first one of items."""
    for page in pages:
        yield page
        if page[0] == len(_TABLES) - 1:
            return


def _shredded(table: pa.Table) -> tuple[pa.Table, Template]:
    """Return a table with its texts as columns of numbers, and their template, which is empty if they are not."""
    template = template_of(table[_TEXT]) if _TEXT in table.column_names else ()
    found = shred(table[_TEXT], template) if template else None
    if found is None:
        return table, ()
    return _with_numbers(table, found), template


def _in_columns(table: pa.Table, template: Template) -> pa.Table:
    """Return a page with the columns of a template, even if none of its texts has its shape."""
    if not template:
        return table
    nothing = Shredded([pa.nulls(len(table), pa.int64())] * (len(template) - 1), table[_TEXT])
    found = shred(table[_TEXT], template) or nothing
    return _with_numbers(table, found, keeps_text=True)


def _with_numbers(table: pa.Table, found: Shredded, *, keeps_text: bool = False) -> pa.Table:
    columns = {name: table[name] for name in table.column_names if name != _TEXT}
    if keeps_text or found.others.null_count < len(table):
        columns[_TEXT] = found.others
    return pa.table(columns | {_number(place): column for place, column in enumerate(found.numbers)})


def _whole(table: pa.Table, template: Template) -> pa.Table:
    """Return the table that :func:`_with_numbers` was given.

    Raises:
        KeyError, ValueError: its columns are not those of the template.
    """
    if not template:
        return table
    names = _numbers(template)
    others = table[_TEXT] if _TEXT in table.column_names else pa.nulls(len(table), pa.string())
    if others.type != pa.string() or any(table[name].type != pa.int64() for name in names):
        raise ValueError(f"expected whole numbers in {', '.join(names)} and text in {_TEXT}")
    texts = joined(Shredded([table[name] for name in names], others), template)
    rest = {name: table[name] for name in table.column_names if name not in (_TEXT, *names)}
    return pa.table({**rest, _TEXT: texts})


def _numbers(template: Template) -> list[str]:
    return [_number(place) for place in range(len(template) - 1)]


def _number(place: int) -> str:
    return f"value_number_{place}"


@contextmanager
def _writer(
    sink: pa.BufferOutputStream,
    schema: pa.Schema,
    kind: CheckpointKind,
    template: Template = (),
    example: pa.Table | None = None,
) -> Iterator[pq.ParquetWriter]:
    """Open a file for the rows of a run.

    Args:
        sink: receives its bytes.
        schema: its columns.
        kind: what the run holds.
        template: the pieces between the columns of numbers.
        example: rows that show which numbers repeat often.
    """
    few = [name for name in _numbers(template) if example is not None and _are_few(example[name])]
    known = _ENCODINGS | {name: _DELTA for name in _numbers(template) if name not in few}
    encodings = {name: encoding for name, encoding in known.items() if name in schema.names}
    said = {"format": str(FORMAT_VERSION), "template": json.dumps(template)} if template else {"format": "1"}
    options = {"use_dictionary": [*_FEW_VALUES, *few], "column_encoding": encodings, **_LEAN}
    with pq.ParquetWriter(sink, schema, **options) as writer:
        yield writer
        writer.add_key_value_metadata({**said, "kind": kind.value})


def _are_few(numbers: pa.ChunkedArray) -> bool:
    """Return whether a dictionary of the numbers is small beside them: one by one they would hide that they repeat."""
    return bool(4 * pc.count_distinct(numbers).as_py() < len(numbers))


def _written(
    location: Location, data: bytes, kind: CheckpointKind, measure: Measure, place: tuple[str, int, int]
) -> AcceptedRun:
    """Write the bytes of a run file, and return what a manifest says of it."""
    operator, shard, epoch = place
    name = f"run/{uuid4().hex}.parquet"
    location.write(name, data)
    return AcceptedRun(
        operator=operator,
        shard=shard,
        epoch=epoch,
        file=name,
        kind=kind,
        digest=measure.digest,
        checksum=checksum(data),
        slots=measure.slots,
        bytes=measure.bytes,
        file_bytes=len(data),
    )


def table_of(run: Run) -> pa.Table:
    """Return the rows of a run in order, in the columns of a run file; a column without any value is left out."""
    run.sort()
    table = pa.concat_tables([_index_table(run.index), _metadata_table(run.metadata), _item_table(run.items)])
    return table.select([name for name in table.column_names if table[name].null_count < len(table)])


def decode_run(data: bytes, place: str = "run file") -> Run:
    """Return the rows that ``encode_run`` has written.

    Args:
        data: the bytes of the file.
        place: the name of the file in error messages.

    Raises:
        CorruptStoreError: the bytes are not a run file.
        CheckpointError: the file has a newer format.

    Time: O(rows).
    """
    file, kind, template = _opened(data, place)
    try:
        table = file.read(use_threads=False) if file.num_row_groups else file.schema_arrow.empty_table()
        return run_of(kind, _whole(table, template))
    except _UNREADABLE as error:
        raise CorruptStoreError(f"{place} is no run file: {error}") from error


def kind_of(data: bytes, place: str) -> CheckpointKind:
    """Return what kind of run a run file holds.

    Raises: as ``decode_run``.
    """
    return _opened(data, place)[1]


def _opened(data: bytes, place: str) -> tuple[pq.ParquetFile, CheckpointKind, Template]:
    """Return the file in some bytes, the kind of its run, and the template of its texts, if they have one."""
    try:
        file = pq.ParquetFile(pa.BufferReader(data))
        said = {key.decode(): value.decode() for key, value in (file.metadata.metadata or {}).items()}
        version, kind = int(said["format"]), CheckpointKind(said["kind"])
        if version > FORMAT_VERSION:
            raise CheckpointError(
                f"{place} has format {version}: expected at most {FORMAT_VERSION}: upgrade this package to read it"
            )
        return file, kind, _checked_template(version, json.loads(said.get("template", "[]")))
    except _UNREADABLE as error:
        raise CorruptStoreError(f"{place} is no run file: {error}") from error


def _checked_template(version: int, pieces: object) -> Template:
    """Return the template that a file declares; a file of format 1 has none."""
    is_text = isinstance(pieces, list) and all(isinstance(piece, str) for piece in pieces)
    lengths = range(2, MOST_NUMBERS + 2) if version == FORMAT_VERSION else range(1)
    if version < 1 or not isinstance(pieces, list) or not is_text or len(pieces) not in lengths:
        raise ValueError(f"format {version} with the template {str(pieces)[:80]}")
    return tuple(pieces)


def run_of(kind: CheckpointKind, lean: pa.Table) -> Run:
    """Return the run that :func:`table_of` was given."""
    present = {name: lean[name] for name in lean.column_names}
    table = pa.table({name: present.get(name, pa.nulls(len(lean), type_)) for name, type_ in _COLUMNS})
    index, metadata, item = (table.filter(pc.equal(table["table"], which)) for which in (_INDEX, _METADATA, _ITEM))
    return Run(
        kind,
        _rows(index["object"], index["name"], index["kind"], index["codec"]),
        _rows(metadata["object"], metadata["key"], metadata["value_text"]),
        _rows(item["object"], _merged(item, _SLOTS), _merged(item, _VALUES), item["rank"]),
    )


def _index_table(rows: list[IndexRow]) -> pa.Table:
    objects, names, kinds, codecs = _columns(rows, 4)
    return _table(_INDEX, len(rows), object=objects, name=names, kind=kinds, codec=codecs)


def _metadata_table(rows: list[MetadataRow]) -> pa.Table:
    objects, keys, values = _columns(rows, 3)
    return _table(_METADATA, len(rows), object=objects, key=keys, value_text=values)


def _item_table(rows: list[ItemRow]) -> pa.Table:
    objects, slots, values, ranks = _columns(rows, 4)
    return _table(
        _ITEM,
        len(rows),
        object=objects,
        rank=ranks,
        **_by_type(slots, dict(zip((int, float, str, bytes), _SLOTS, strict=True))),
        **_by_type(values, dict(zip((str, bytes), _VALUES, strict=True))),
    )


_TABLES: tuple[Callable[[list[Any]], pa.Table], ...] = (_index_table, _metadata_table, _item_table)


def _columns(rows: list[Any], width: int) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in range(width)]


def _by_type(values: list[Any], columns: dict[type, str]) -> dict[str, list[Any]]:
    """Return the columns that hold values of several types: just one if all are of one type, as is nearly always so."""
    kinds = set(map(type, values)) - {type(None)}
    if len(kinds) == 1 and kinds <= columns.keys():
        return {columns[kinds.pop()]: values}
    return {name: [value if isinstance(value, kind) else None for value in values] for kind, name in columns.items()}


def _table(table: str, rows: int, **columns: list[Any]) -> pa.Table:
    columns["table"] = [table] * rows
    arrays = [pa.array(columns[name], type_) if name in columns else pa.nulls(rows, type_) for name, type_ in _COLUMNS]
    return pa.table(arrays, schema=pa.schema(_COLUMNS))


def _rows(*columns: pa.ChunkedArray | list[Any]) -> list[Any]:
    lists = [column if isinstance(column, list) else column.to_pylist() for column in columns]
    return list(zip(*lists, strict=True))


def _merged(table: pa.Table, names: list[str]) -> list[Any]:
    """Return one list of the values in some columns, at most one of which has a value in each row."""
    used = [table[name].to_pylist() for name in names if table[name].null_count < len(table)]
    if len(used) < 2:
        return used[0] if used else [None] * len(table)
    return [next((value for value in row if value is not None), None) for row in zip(*used, strict=True)]
