"""What leaves a pipeline: the changes of a result, handed to a function when their epoch is published.

They lie in files that the epoch names, so they are the same however often they are handed out: after a crash between
the publishing of an epoch and the end of its functions, these are called again, for the same epoch with the same
changes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from threading import current_thread, main_thread
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StringType, StructField, StructType

from checkpoint.chain import Location
from objectspace import PersistedObjectSpace
from objectspace.errors import ObjectSpaceError
from objectspace.operators import Node
from objectspace.relational import Chunk, SchemaError, TableSchema, compacted
from objectspace.relational.chunk import OP_COLUMN
from objectspace.spark.forms import conforming
from objectspace.spark.handover import FOLDER, Parcel, fits, read_parcel, settled, together
from objectspace.spark.inputs import taken_for_one
from objectspace.spark.printable import add_note
from objectspace.spark.stages import Exit

LOG = logging.getLogger("objectspace.spark")

HANDOVER = "$handover"
"""The dictionary that says where the changes of each result in the newest epoch lie."""

BUILT = "$built"
"""The dictionary that says how each of these results is built: the epoch, and the outline of what gives its changes."""

FrameFunction = Callable[[DataFrame, int], object]
ChunkFunction = Callable[[int, Chunk], object]


def note_parcels(space: PersistedObjectSpace, found: Mapping[str, Sequence[Parcel]], built: Mapping[str, str]) -> None:
    """Note where the changes of an epoch lie, and nothing of older ones.

    Args:
        space: what the driver keeps.
        found: where they lie, by the names of the results.
        built: the outline of each result.

    Dirties: two items for each result.
    """
    _replace(space, HANDOVER, {name: [asdict(parcel) for parcel in parcels] for name, parcels in found.items()})
    # Earlier versions note a hand-over without it: the epoch tells whether it belongs to the one that is noted.
    epochs = {name: parcels[0].epoch for name, parcels in found.items() if parcels and name in built}
    _replace(space, BUILT, {name: [epoch, built[name]] for name, epoch in epochs.items()})


def _replace(space: PersistedObjectSpace, dictionary: str, items: Mapping[str, Any]) -> None:
    noted = space.get_or_create_dictionary(dictionary)
    for name in [name for name in noted if name not in items]:
        del noted[name]
    noted.update(items)


def noted_parcels(space: PersistedObjectSpace) -> dict[str, list[Parcel]]:
    """Return where the changes of the newest epoch lie, by the names of the results."""
    noted = space.get_dictionary(HANDOVER).items() if HANDOVER in space else ()
    return {name: [Parcel(**parcel) for parcel in parcels] for name, parcels in noted}


def built_as(result: Node) -> str:
    """Return the outline of what gives the changes of a result, whatever function takes them."""
    return (result.inputs[0] if result.is_one_of(["Sink"]) else result).outline


def noted_built(space: PersistedObjectSpace, found: Mapping[str, Sequence[Parcel]]) -> dict[str, str]:
    """Return how results with noted changes are built; earlier versions did not note it, or noted it differently."""
    noted = dict(space.get_dictionary(BUILT).items()) if BUILT in space else {}
    # What is not of the epoch of the changes was left there before an earlier version made that epoch.
    epochs = {name: parcels[0].epoch for name, parcels in found.items() if parcels}
    return {name: noted[name][1] for name, epoch in epochs.items() if noted.get(name, "")[:1] == [epoch]}


def require_handed_out(spark: SparkSession, columns: Mapping[str, Sequence[str]]) -> None:
    """Make sure that Spark finds each column of the changes that functions take as a DataFrame.

    Args:
        spark: the session.
        columns: the columns that the user sees of each result with such functions.

    Raises:
        SchemaError: two of them, or one and ``op``, differ only by case, which Spark is set to ignore.
    """
    for name, seen in columns.items():
        told = (OP_COLUMN, *seen)
        if found := taken_for_one(spark, told):
            raise SchemaError(
                f"result {name!r}: for_each_epoch hands it out with the columns {', '.join(told)}, of which Spark"
                f" takes {found[0]!r} and {found[1]!r} for one: give a column of the result another name, with select()"
                " for example, or set spark.sql.caseSensitive to true"
            )


class Delivery:
    """Hands the changes of results to the functions that want them.

    Args:
        location: where the files lie.
        exits: the exit of each result.
        columns: the columns that the user sees of each.
        built: the outline of each.
        frames: for a result, its functions of (changes as a DataFrame, epoch).
        chunks: for a result, its function of (epoch, changes as a chunk).
    """

    def __init__(
        self,
        location: Location,
        exits: Mapping[str, Exit],
        columns: Mapping[str, tuple[str, ...]],
        built: Mapping[str, str],
        frames: Mapping[str, Sequence[FrameFunction]],
        chunks: Mapping[str, ChunkFunction],
    ) -> None:
        self._location, self._exits, self._columns, self.built = location, exits, columns, built
        self._frames, self._chunks = frames, chunks
        self.epoch = 0
        """The epoch that a function is being called for at the moment; 0 if none is."""

    def deliver(self, spark: SparkSession, found: Mapping[str, Sequence[Parcel]]) -> None:
        """Call the functions of the results that changed in an epoch.

        Args:
            spark: the session.
            found: where the changes lie; their epoch is published.

        Raises:
            CorruptStoreError: a file is missing or damaged.
            ObjectSpaceError: a function tried to end the process.
            Exception: what a function has raised, with a note that says which one it was.
        """
        for name, one in self._exits.items():
            parcels = found.get(name, ())
            if parcels and name in self._chunks:
                net = _net(self._location, parcels, one.schema)
                if len(net):
                    self._call(name, parcels[0].epoch, partial(self._chunks[name], parcels[0].epoch, net))
            for function in self._frames.get(name, ()) if parcels else ():
                frame = self.frame(spark, name, parcels)
                # What came from several partitions may cancel out.
                if one.keys is None or not frame.isEmpty():
                    self._call(name, parcels[0].epoch, partial(function, frame, parcels[0].epoch))

    def redeliver(self, spark: SparkSession, found: Mapping[str, Sequence[Parcel]], built: Mapping[str, str]) -> None:
        """Call the functions for an epoch if it is not known whether they were called; log what cannot be delivered.

        A copy of a space need not have the files: then the copy's functions begin with its next epoch. So do those of a
        result that has taken the name of another one: these changes are not its own.

        Args:
            spark: the session.
            found: where the changes lie; their epoch is published.
            built: how the results of that epoch were built, as far as that was noted.

        Raises:
            CorruptStoreError: a file is damaged.
        """
        there = {f"{FOLDER}/{name}" for name in self._location.names(FOLDER)}
        whole = {}
        for name in self._exits:
            parcels = found.get(name, ())
            gone = [parcel.file for parcel in parcels if parcel.file not in there]
            if gone:
                missing = f"{gone[0]} and {len(gone) - 1} more are not here, as when a space was copied without its"
                self._lament(name, parcels[0].epoch, f"{missing} hand-over files")
            elif parcels and self._is_of_another(name, parcels[0], built.get(name)):
                self._lament(name, parcels[0].epoch, "they are of a result of this name built in another way")
            else:
                whole[name] = parcels
        self.deliver(spark, whole)

    def _is_of_another(self, name: str, parcel: Parcel, built: str | None) -> bool:
        """Return whether changes are not those of a result; if nothing was noted of that, their columns tell."""
        if built is None:
            return not fits(self._location, parcel, self._exits[name].schema)
        return built != self.built[name]

    def _lament(self, name: str, epoch: int, why: str) -> None:
        LOG.warning(
            "%s: the changes of result %s in epoch %d may have been handed out before and cannot be again: %s: if its"
            " function has not taken them, bring what it keeps into line with the result",
            self._location.url,
            name,
            epoch,
            why,
        )

    def frame(self, spark: SparkSession, name: str, parcels: Sequence[Parcel]) -> DataFrame:
        """Return the changes of a result as a DataFrame: ``op`` before the columns that the user sees."""
        schema = self._exits[name].schema
        columns = [schema.column(column) for column in self._columns[name]]
        fields = StructType.fromJson(TableSchema(columns).to_spark()).fields
        is_net = self._exits[name].keys is None
        groups = [[one] for one in parcels] if is_net else _by_shard(parcels)
        told = StructType([StructField(OP_COLUMN, StringType(), False), *fields])
        read = _reader(self._location, groups, schema, told, f"result {name!r}", is_net=is_net)
        return spark.range(0, len(groups), 1, len(groups)).mapInArrow(read, told)

    def _call(self, name: str, epoch: int, function: Callable[[], object]) -> None:
        """Call the function of a result, and say which one it was if it raises."""
        self.epoch = epoch
        try:
            with no_exit(f"the function of result {name!r}"):
                function()
        except Exception as error:
            add_note(
                error,
                f"raised by the function of result {name!r} for epoch {epoch}, which is published: fix it and start the"
                " query again, which calls it for this epoch once more",
            )
            raise
        finally:
            self.epoch = 0


@contextmanager
def no_exit(what: str) -> Iterator[None]:
    """Turn an exit from a user's function into an error: Spark waits for ever for the thread that it ends.

    Raises:
        ObjectSpaceError: the function has raised what is no ``Exception``, such as ``SystemExit``.
    """
    try:
        yield
    except Exception:
        raise
    except BaseException as error:
        if current_thread() is main_thread() and not isinstance(error, SystemExit):
            raise  # Ctrl-C while the program itself hands the changes out.
        how = ", as sys.exit() does" if isinstance(error, SystemExit) else ", which is no Exception"
        raise ObjectSpaceError(
            f"{what} raised {error!r}{how}, and ends no query: expected it to return, or to raise another error, which"
            " ends the query"
        ) from error


def _by_shard(parcels: Sequence[Parcel]) -> list[list[Parcel]]:
    shards = sorted({parcel.shard for parcel in parcels})
    return [[parcel for parcel in parcels if parcel.shard == shard] for shard in shards]


def _net(location: Location, parcels: Sequence[Parcel], schema: TableSchema) -> Chunk:
    """Return the net change of each key in some files."""
    chunk = together([read_parcel(location, parcel, schema) for parcel in parcels])
    return compacted([settled(chunk)], strict=False)


def _reader(
    location: Location,
    groups: Sequence[Sequence[Parcel]],
    schema: TableSchema,
    told: StructType,
    what: str,
    *,
    is_net: bool,
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def _read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        conformed = conforming(told, what)
        for batch in batches:
            for number in batch.column("id").to_pylist():
                found = groups[number]
                chunk = read_parcel(location, found[0], schema) if is_net else _net(location, found, schema)
                yield conformed(chunk.to_arrow())

    return _read
