"""Which rows a micro-batch has: where it begins and ends in its sources, as Spark notes before the batch runs.

A number alone does not tell: if an older copy of Spark's checkpoint is put back, or its last files are lost in a power
failure, a number comes again with other rows.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Any

import fsspec
import orjson
from pyspark.sql import SparkSession

from checkpoint import CheckpointError
from checkpoint.address import local_path
from checkpoint.chain import SourcePosition, location_at

_HEAD_LINES = 2
"""The version of the log, and what else Spark notes of the micro-batch: when it was planned, and its settings."""

_FILE_SCHEME = re.compile("^file:(//)?")

_LOG_OFFSET = re.compile(r'(?:(\w+):)?\{.*"logOffset":(\d+)')
"""A source of files counts the entries of a log of its own, which says what files these are.

If sources have names, what Spark notes of one begins with its name, and its log is in the folder of this name.
"""


Files = Callable[[str], str | None]
"""Gives the text of a file in the folder where Spark keeps how far a query has read, ``None`` if there is none."""


def offsets_of(files: Files, batch: int) -> str:
    """Return what tells the rows of a micro-batch from those of any other; nothing if Spark has noted nothing.

    Args:
        files: the files where Spark keeps how far a query has read.
        batch: the number of the micro-batch.

    Raises:
        CheckpointError: Spark has noted how many entries of a log of files it has read, and the log lacks the last one.
    """
    noted = _noted(files, batch)
    lost = [name for name, text in noted.items() if text is None]
    if lost:  # A number alone comes again with other files.
        raise CheckpointError(
            f"Spark's checkpoint has no {lost[0]}, which says what files micro-batch {batch} has read, and which is the"
            f" newest entry that its offsets/{batch} counts: put the file back from a copy, or start a new query from"
            " the input that the space has not seen"
        )
    return _digest(noted)


def offsets_before(files: Files, batch: int) -> str:
    """Return the same for the micro-batch before; nothing if Spark has purged any of it.

    Args:
        files: the files where Spark keeps how far a query has read.
        batch: the number of the micro-batch after it.
    """
    noted = _noted(files, batch - 1)
    return "" if None in noted.values() else _digest(noted)


def query_of(files: Files, checkpoint: str) -> str | None:
    """Return the id of the query whose folder it is; ``None`` if Spark has noted none.

    Args:
        files: the files where Spark keeps how far a query has read.
        checkpoint: the folder, as it was given to the query.

    Raises:
        CheckpointError: what Spark has noted is damaged.
    """
    try:
        if (noted := files("metadata")) is None:
            return None
        found = orjson.loads(noted)["id"]
    except (ValueError, TypeError, KeyError):
        found = None
    if isinstance(found, str):
        return found
    raise CheckpointError(
        f'{checkpoint}/metadata is damaged, in which Spark keeps the id of the query: expected {{"id": "..."}}: put'
        " the file back from a copy, or rewrite it with the id that `checkpoint log LOCATION --json` has for the"
        " epochs of this query"
    )


def newest_commit(spark: SparkSession, checkpoint: str) -> SourcePosition | None:
    """Return the newest micro-batch that Spark has noted as done; ``None`` if there is none.

    Args:
        spark: the session.
        checkpoint: the folder where Spark keeps how far a query has read, as it was given to the query.

    Raises:
        CheckpointError: what Spark has noted of the query is damaged.
    """
    query = query_of(files_of(spark, checkpoint), checkpoint)
    batches = [int(name) for name in _names(spark, checkpoint, "commits") if name.isdecimal()]
    return SourcePosition(query, max(batches)) if query and batches else None


def files_of(spark: SparkSession, checkpoint: str) -> Files:
    """Return how Spark itself reads a folder: it decides, once, where the name leads.

    Args:
        spark: the session.
        checkpoint: the folder, as it was given to the query.
    """
    place, system = _place(spark, checkpoint)
    found = system.makeQualified(place).toUri()
    if found.getScheme() == "file":
        return partial(_read_local, Path(found.getPath()))
    return partial(_read, spark, checkpoint, system)


def files_without_spark(checkpoint: str, space: str, storage: Mapping[str, Any]) -> Files:
    """Return how a process without Spark reads a folder; if it cannot, the folder is taken to be empty.

    A folder of another file system than that of the space is not tried: only Spark has been told how to reach it.

    Args:
        checkpoint: the folder, as it was given to the query; empty if that is not known.
        space: the location of the space.
        storage: what fsspec passes to the file system of the space.
    """
    path = _FILE_SCHEME.sub("", checkpoint)  # Spark takes a path as it is spelt: %20 is not a blank to it
    is_known = _file_system(path) in (_file_system("."), _file_system(space))

    def _found(name: str) -> str | None:
        with suppress(CheckpointError):
            data = location_at(path, storage).read(name) if path and is_known else None
            return None if data is None else data.decode()
        return None

    return _found


def _file_system(url: str) -> type | None:
    """Return what fsspec opens a URL with; ``None`` if that is not installed, or it is a URL only to Hadoop."""
    with suppress(ImportError, ValueError, CheckpointError):
        return fsspec.get_filesystem_class("file" if local_path(url) is not None else url.partition("://")[0])  # type: ignore[no-any-return]
    return None


def _noted(files: Files, batch: int) -> dict[str, str | None]:
    """Return what Spark has noted of the rows of a micro-batch: where it ends, and the files that this stands for.

    It is empty if Spark has noted nothing, and has ``None`` for a file that is gone.
    """
    name = f"offsets/{batch}"
    noted = files(name)
    if noted is None:
        return {}
    sources = noted.splitlines()[_HEAD_LINES:]
    return {name: "\n".join(sources), **_logs(files, sources)}


def _logs(files: Files, sources: Sequence[str]) -> dict[str, str | None]:
    """Return the entries of logs that offsets count, by their names, with ``None`` for one that is gone.

    Spark keeps one log for a source, numbered in the order in which sources are first used, but notes an offset for
    each use of it, and nothing says which of them are uses of one source. They have equal offsets. So the numbering is
    the first one under which every entry is there, and a use of an offset that came before may be one more of that.
    """
    read = cache(lambda entry: files(entry) or files(f"{entry}.compact"))
    as_many = tuple(range(len(sources)))
    numbers = next(_numberings(sources, lambda entry: read(entry) is not None), as_many)
    return {entry: read(entry) for entry in map(_log_entry, sources, numbers) if entry is not None}


def _numberings(
    sources: Sequence[str], is_there: Callable[[str], bool], numbers: tuple[int, ...] = ()
) -> Iterator[tuple[int, ...]]:
    """Yield which logs the offsets may count: each the next one, or that of an equal offset before it."""
    place = len(numbers)
    if place == len(sources):
        yield numbers
        return
    offset, before = sources[place], sources[:place]
    for number in (max(numbers, default=-1) + 1, *([numbers[before.index(offset)]] if offset in before else [])):
        entry = _log_entry(offset, number)
        if entry is None or is_there(entry):
            yield from _numberings(sources, is_there, (*numbers, number))


def _digest(noted: Mapping[str, str | None]) -> str:
    texts = "".join(text or "" for text in noted.values())
    return hashlib.blake2b(texts.encode(), digest_size=16).hexdigest() if noted else ""


def _log_entry(offset: str, number: int) -> str | None:
    """Return the entry that an offset counts if it is one of a log, which has a number where sources have no names."""
    found = _LOG_OFFSET.match(offset)
    return None if found is None else f"sources/{found[1] or number}/{found[2]}"


def _read_local(folder: Path, name: str) -> str | None:
    """Return the text of a file of Spark's on this machine, ``None`` if there is none."""
    path = folder / name
    return path.read_text("utf-8") if path.is_file() else None


def _read(spark: SparkSession, checkpoint: str, system: Any, name: str) -> str | None:
    """Return the text of a file of Spark's in another file system, ``None`` if there is none."""
    jvm: Any = spark.sparkContext._jvm
    place = jvm.org.apache.hadoop.fs.Path(checkpoint, name)
    if not system.exists(place):
        return None
    stream = system.open(place)
    try:
        return str(jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
    finally:
        stream.close()


def _names(spark: SparkSession, checkpoint: str, folder: str) -> list[str]:
    """Return the names of the files in a folder of Spark's; an absent one is empty."""
    place, system = _place(spark, checkpoint, folder)
    return [one.getPath().getName() for one in system.listStatus(place)] if system.exists(place) else []


def _place(spark: SparkSession, *names: str) -> tuple[Any, Any]:
    """Return a path of Spark's, and its file system."""
    # Spark decides where a name leads: to its default file system, from its own working folder, and as it is spelt.
    jvm: Any = spark.sparkContext._jvm
    place = jvm.org.apache.hadoop.fs.Path(*names)
    return place, place.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())
