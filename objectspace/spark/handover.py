"""The hand-over from one action to the next: changes in private files, of which only those that are named count.

A task writes what leaves its fragment into files ``handover/<epoch>-<uuid>.arrow`` of the location, one for each exit
and shard, and names them in its message. The next action reads those that the driver has accepted, so an operator never
sees the output of an attempt that was replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from decimal import Decimal
from typing import Any, Self
from uuid import uuid4

import orjson
import pyarrow as pa

from checkpoint import CorruptStoreError
from checkpoint.chain import Location, ShardSaved
from checkpoint.chain.collect import HANDOVER
from checkpoint.chain.runfile import checksum
from objectspace import codec
from objectspace.operators import Materialize, Operator
from objectspace.operators.canonical import dictionary_keys
from objectspace.operators.chunks import HALF_OF, HALVES, unbroken
from objectspace.operators.division.vnodes import Router, owner_of, vnode_router
from objectspace.operators.net import net_changes
from objectspace.relational import Chunk, Column, DataType, TableSchema, compacted
from objectspace.relational.arrow import array_of, arrow_type, columns_of, field_of
from objectspace.relational.chunk import OP_COLUMN, Op
from objectspace.relational.vnodes import VNODES
from objectspace.spark.stages import Exit

FOLDER = HANDOVER

ExitWatermark = tuple[int, str, Any]
"""A watermark at an exit: the number of the exit, the column, and the least value that can still come in it."""


@dataclass(frozen=True)
class Parcel:
    """A file of changes in transit.

    Args:
        exit: the number of the exit that they left through.
        shard: the shard that they go to; for a result, the one that they come from.
        file: the name of the file in the location.
        rows: how many changes there are.
        bytes: the size of the file.
        checksum: the checksum of its bytes.
    """

    exit: int
    shard: int
    file: str
    rows: int
    bytes: int
    checksum: str

    @property
    def epoch(self) -> int:
        """The epoch that made the changes."""
        return int(self.file.removeprefix(f"{FOLDER}/")[:12])


@dataclass(frozen=True)
class Report:
    """What a task reports of its shard: the one row that it yields.

    Args:
        saved: the state of each operator that keeps any.
        parcels: what it handed over.
        watermarks: what no later row at its exits is below.
        figures: rows and milliseconds, by the name of the operator.
    """

    saved: tuple[ShardSaved, ...] = ()
    parcels: tuple[Parcel, ...] = ()
    watermarks: tuple[ExitWatermark, ...] = ()
    figures: dict[str, dict[str, float]] = field(default_factory=dict)

    def to_json(self) -> str:
        """Return the report as text."""
        values = {
            "saved": [one.to_json() for one in self.saved],
            "parcels": [asdict(parcel) for parcel in self.parcels],
            "watermarks": [(number, column, codec.encode(value)) for number, column, value in self.watermarks],
            "figures": self.figures,
        }
        return orjson.dumps(values).decode()

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the report in a text that ``to_json`` made."""
        values: dict[str, Any] = orjson.loads(text)
        return cls(
            tuple(map(ShardSaved.from_json, values["saved"])),
            tuple(Parcel(**parcel) for parcel in values["parcels"]),
            tuple((number, column, codec.decode(value)) for number, column, value in values["watermarks"]),
            values["figures"],
        )


class Outbox:
    """What leaves the fragment of a task, by exit and shard.

    Args:
        exits: the exits.
        shard: the shard that the task works for.
    """

    def __init__(self, exits: Iterable[Exit], shard: int = 0) -> None:
        self._exits = {one.number: one for one in exits}
        self._routes = {number: router(one) for number, one in self._exits.items()}
        self._shard = shard
        self._kept: dict[tuple[int, int], list[Chunk]] = {}
        self.rows = 0

    def add(self, number: int, chunk: Chunk) -> None:
        """Put changes in."""
        self.rows += len(chunk)
        one, route = self._exits[number], self._routes[number]
        if one.keys is None:
            self._put(number, self._shard, chunk)
        elif route is None:
            self._put(number, 0, chunk)
        else:
            for shard, part in _divided(chunk, route).items():
                self._put(number, shard, part)

    def taken(self) -> list[tuple[int, int, Chunk]]:
        """Return the triples (exit, shard, changes) that were put in since the last call."""
        found = [(number, shard, together(chunks)) for (number, shard), chunks in sorted(self._kept.items())]
        self._kept, self.rows = {}, 0
        net = [(number, shard, self._net(number, chunk)) for number, shard, chunk in found]
        return [entry for entry in net if len(entry[2])]

    def _net(self, number: int, chunk: Chunk) -> Chunk:
        """Return the changes of a result as one net change per key; those of an operator as they are."""
        return chunk if self._exits[number].keys is not None else compacted([settled(chunk)], strict=False)

    def _put(self, number: int, shard: int, chunk: Chunk) -> None:
        if len(chunk):
            self._kept.setdefault((number, shard), []).append(chunk)


def router(one: Exit) -> Router | None:
    """Return the function that says which shards rows go to; ``None`` if all go to the first."""
    if not one.keys or one.tasks == 1:
        return None
    vnodes = vnode_router(one.schema, [one.schema.place_of(name) for name in one.keys])
    shards = [owner_of(vnode, one.tasks) for vnode in range(VNODES)]
    return lambda rows: list(map(shards.__getitem__, vnodes(rows)))


def _divided(chunk: Chunk, route: Router) -> Mapping[int, Chunk]:
    """Return the parts of a chunk by the shards that they go to, each in order."""
    ops, rows = chunk.ops, chunk.values
    places: dict[int, list[int]] = {}
    for place, shard in enumerate(route(rows)):
        places.setdefault(shard, []).append(place)
    return {
        shard: Chunk(chunk.schema, [ops[place] for place in found], [rows[place] for place in found])
        for shard, found in sorted(places.items())
    }


def together(chunks: Sequence[Chunk]) -> Chunk:
    """Return chunks of one schema as one, in their order."""
    if len(chunks) == 1:
        return chunks[0]
    ops = [op for chunk in chunks for op in chunk.ops]
    return Chunk(chunks[0].schema, ops, [row for chunk in chunks for row in chunk.values])


def settled(chunk: Chunk) -> Chunk:
    """Return what changes from several tasks amount to together, in whatever order they came.

    For each key, deletes come before inserts, and several inserts of one key are in a fixed order. A delete and an
    insert that were halves of an update are so again: whatever resolves conflicts tells an update from a row that goes
    and one that comes.
    """
    if all(op == "+" for op in chunk.ops):
        changes = chunk.rows()
    else:
        changes = net_changes(chunk)
    new = dictionary_keys(chunk.schema, chunk.schema.key_places)([row for op, row in changes if op == "+"])
    if len(set(new)) < len(new):
        encode, key_of = chunk.schema.key_encoder.encode, chunk.schema.key_of
        changes.sort(key=lambda change: (encode(key_of(change[1])), change[0] == "+", repr(change[1])))
    found = Chunk(chunk.schema, [op for op, _ in changes], [row for _, row in changes])
    return found if HALVES.isdisjoint(chunk.ops) else _with_updates(found, chunk)


def settled_for(operator: Operator, chunk: Chunk) -> Chunk:
    """Return what changes from several tasks amount to together for an operator, which may have missed some."""
    net = settled(chunk)
    return together([net, operator.missed(chunk, net)]) if isinstance(operator, Materialize) else net


def _with_updates(found: Chunk, given: Chunk) -> Chunk:
    """Return net changes in which an update replaces a delete and an insert of each key that was only updated."""
    keys_of = dictionary_keys(found.schema, found.schema.key_places)
    keys: dict[Op, set[Any]] = {"U-": set(), "U+": set(), "-": set(), "+": set()}
    for key, op in zip(keys_of(given.values), given.ops):
        keys[op].add(key)
    updated = (keys["U-"] & keys["U+"]) - keys["-"]
    ops: list[Op] = [HALF_OF[op] if key in updated else op for key, op in zip(keys_of(found.values), found.ops)]
    return unbroken(Chunk(found.schema, ops, found.values))


def to_bytes(chunk: Chunk) -> bytes:
    """Return a chunk as an Arrow file; decimals are text in it, which holds all of them, trailing zeros included."""
    batch, sink = _sent(chunk), pa.BufferOutputStream()
    with pa.ipc.new_file(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


_SAME = frozenset(("bool", "int16", "int32", "int64", "float64", "decimal", "string", "binary", "date"))
"""Types whose values a file gives back in the one form that rows have; rows of other types are checked again."""


def from_bytes(data: bytes, schema: TableSchema) -> Chunk:
    """Return the chunk in a file made by ``to_bytes``; in those of earlier versions some decimals are not text."""
    with pa.ipc.open_file(pa.BufferReader(data)) as reader:
        table = reader.read_all()
    if any(column.type.kind not in _SAME for column in schema.columns):
        found = Chunk.from_arrow(table)
        ops, columns = found.ops, list(zip(*found.values, strict=True))
    else:
        ops, *columns = (column.to_pylist() for column in table.columns)
    return Chunk(schema, ops, list(zip(*_converted(columns, schema, Decimal), strict=True)))


def carried(chunk: Chunk) -> Chunk:
    """Return a chunk as its reader would get it from a file: before, values of some types can be in several forms."""
    if all(column.type.kind in _SAME for column in chunk.schema.columns):
        return chunk
    return from_bytes(to_bytes(chunk), chunk.schema)


def _sent(chunk: Chunk) -> pa.RecordBatch:
    """Return a chunk as a batch that has text instead of decimals."""
    columns = [Column(one.name, _sent_type(one.type), one.nullable) for one in chunk.schema.columns]
    values = _converted(list(zip(*chunk.values, strict=True)) or [()] * len(columns), chunk.schema, str)
    ops = pa.array(list(chunk.ops), pa.string())
    fields = [pa.field(OP_COLUMN, pa.string(), False), *map(field_of, columns)]
    return pa.RecordBatch.from_arrays([ops, *map(array_of, values, columns)], schema=pa.schema(fields))


def _sent_type(kind: DataType) -> DataType:
    """Return the type that values are handed over as."""
    if kind.kind == "decimal":
        return DataType("string")
    if kind.element is not None:
        return replace(kind, element=_sent_type(kind.element))
    return replace(kind, fields=tuple((name, _sent_type(field)) for name, field in kind.fields))


def _converted(columns: Iterable[Any], schema: TableSchema, convert: Callable[[Any], Any]) -> list[Any]:
    """Return columns of values with all decimals in them converted."""
    return [
        values if _sent_type(one.type) == one.type else list(map(_converter(one.type, convert), values))
        for values, one in zip(columns, schema.columns)
    ]


def _converter(kind: DataType, convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return what converts the decimals in a value of a type that holds some."""
    if kind.kind == "decimal":
        return lambda value: None if value is None else convert(value)
    if kind.element is not None:
        within = _converter(kind.element, convert)
        return lambda value: None if value is None else [within(one) for one in value]
    fields = {name: _converter(field, convert) for name, field in kind.fields if _sent_type(field) != field}
    return lambda value: None if value is None else value | {name: of(value[name]) for name, of in fields.items()}


def write_parcels(location: Location, epoch: int, outbox: Outbox) -> tuple[Parcel, ...]:
    """Write what is in an outbox into private files.

    Raises:
        CheckpointError: the location cannot be written.

    Dirties: a new file for each exit and shard.
    """
    return tuple(write_parcel(location, epoch, *entry) for entry in outbox.taken())


def write_parcel(location: Location, epoch: int, number: int, shard: int, chunk: Chunk) -> Parcel:
    """Write changes that leave through an exit, and go to a shard, into a private file.

    Raises:
        CheckpointError: the location cannot be written.
        FencedError: its folder is gone: no other one is made in its place.

    Dirties: a new file.
    """
    data = to_bytes(chunk)
    name = f"{FOLDER}/{epoch:012d}-{uuid4().hex}.arrow"
    location.require_there()
    location.write(name, data)
    return Parcel(number, shard, name, len(chunk), len(data), checksum(data))


def read_parcel(location: Location, parcel: Parcel, schema: TableSchema) -> Chunk:
    """Return the changes of a file.

    Raises:
        CorruptStoreError: the file is missing or damaged.
    """
    return from_bytes(_read(location, parcel), schema)


def _read(location: Location, parcel: Parcel) -> bytes:
    data = location.read(parcel.file)
    if data is None or checksum(data) != parcel.checksum:
        found = "missing" if data is None else "damaged"
        raise CorruptStoreError(
            f"{parcel.file} of {location.url} is {found}: expected {parcel.rows} rows in {parcel.bytes} bytes:"
            " start the query again to reprocess the micro-batch"
        )
    return data


def fits(location: Location, parcel: Parcel, schema: TableSchema) -> bool:
    """Return whether the changes of a file have the columns of a schema: their names and types, in this order.

    Raises:
        CorruptStoreError: the file is missing or damaged.
    """
    with pa.ipc.open_file(pa.BufferReader(_read(location, parcel))) as reader:
        found = [(one.name, _sent_type(one.type)) for one in columns_of(reader.schema) if one.name != OP_COLUMN]
    expected = columns_of(pa.schema([(one.name, arrow_type(_sent_type(one.type))) for one in schema.columns]))
    return found == [(one.name, one.type) for one in expected]


def remove_before(location: Location, epoch: int) -> int:
    """Remove the files of the epochs before one, and return how many there were. Dirties: these files."""
    old = [name for name in location.names(FOLDER) if name[:12].isdecimal() and int(name[:12]) < epoch]
    for name in old:
        location.delete(f"{FOLDER}/{name}")
    return len(old)
