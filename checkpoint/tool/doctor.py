"""``doctor``: what is worth knowing about a store or a space, and about this machine."""

from __future__ import annotations

import os
import platform
import sqlite3
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from checkpoint.lock import owner_of
from checkpoint.recognised import BESIDE
from checkpoint.store import CheckpointStore
from checkpoint.tool import key_values, printing
from checkpoint.tool.command import TROUBLE, cli, json_option, takes_source
from checkpoint.tool.content import State
from checkpoint.tool.source import Source, query
from checkpoint.write_ahead_log import LOG_BYTES

if TYPE_CHECKING:
    from checkpoint.chain import Location

FIXED = (3, 51, 3)
"""The first SQLite in which two connections that write and checkpoint at once cannot damage a log."""

_MANY_RUNS = 192
"""A store leaves up to 128 large runs that replace nothing as they are, and some dozens of others."""

_FRAME_BYTES = 24
"""What a log holds of each page besides the page itself."""

_LONG_LINEAGE, _OLD_SECONDS = 1024, 86_400

Facts = dict[str, Any]


@cli.command()
@takes_source
@json_option
def doctor(source: Source, is_json: bool) -> None:
    """Say what is worth knowing about a store and this machine: versions, settings, locks, leftovers, advice.

    The exit status is 2 if there is advice.

    \b
    Examples:
      checkpoint doctor state.db
      checkpoint doctor s3://bucket/state --json
    """
    advice: list[str] = []
    facts = _versions()
    facts |= _space(source, advice) if source.is_location else _store(source, advice)
    facts["advice"] = advice
    if is_json:
        click.echo(printing.as_json(facts))
    else:
        for key, value in facts.items():
            for line in value if isinstance(value, list) else [value]:
                click.echo(f"{key}: {printing.plain(line) if isinstance(line, str) else format(line, ',')}")
    sys.exit(TROUBLE if advice else 0)


def _versions() -> Facts:
    from importlib.metadata import PackageNotFoundError, version

    facts: Facts = {}
    for package in ("objectspace", "pyarrow", "fsspec"):
        try:
            facts[package] = version(package)
        except PackageNotFoundError:
            facts[package] = "not installed"
    facts["python"], facts["system"] = platform.python_version(), platform.platform(terse=True)
    facts["sqlite"] = sqlite3.sqlite_version
    if sqlite3.sqlite_version_info < FIXED:
        facts["sqlite note"] = (
            "before 3.51.3 two connections that write and checkpoint at once can damage a file: a store has only one"
        )
    return facts


def _store(source: Source, advice: list[str]) -> Facts:
    path = Path(source.path)
    with source.open() as store:
        records, reader = store.checkpoints(), store.reader()
        retention = store.retention
        facts: Facts = {
            "checkpoints": len(records),
            "readable": sum(record.run_slots is not None for record in records),
            "live runs": len(reader.runs),
            "objects": len(reader.index()),
            "history": retention.history,
            "keep for": str(retention.keep_for or "no age"),
            "records": retention.records,
            **_pragmas(store),
            "journal": _journal(path),
        }
        advice += map(_astray, State(reader).unlisted)
    log = path.with_name(path.name + "-wal")
    facts["bytes"] = os.path.getsize(path)
    facts["log bytes"] = log.stat().st_size if log.exists() else 0
    facts["writer"] = _writer(path)
    facts["leftovers"] = _leftovers(path, advice)
    _advise(source.path, facts, advice)
    return facts


def _pragmas(store: CheckpointStore) -> Facts:
    names = {"format": "user_version", "page bytes": "page_size", "pages": "page_count"}
    facts: Facts = {title: next(query(store, f"PRAGMA {name}"))[0] for title, name in names.items()}
    facts["unused pages"] = next(query(store, "PRAGMA freelist_count"))[0]
    return facts


def _astray(part: str) -> str:
    """Say that nobody reads an object: changes of a fork leave such a one if its table was created again here."""
    return (
        f"{part} holds keys of another table than today's {key_values.whole(part)}, which does not read them: look at"
        f" them with `checkpoint show`, then delete() it and {part}/version from the space"
    )


def _journal(path: Path) -> str:
    """Return the journal mode of a file; SQLite reports another one for a file that it cannot write.

    A file with a log may be open in this process, whose locks would end if it were opened and closed here.
    """
    path = path.resolve()
    if path.with_name(path.name + "-wal").exists():
        return "wal"
    with path.open("rb") as file:
        return "wal" if file.read(20)[18:] == b"\2\2" else "rollback"


def _most_log_bytes(file_bytes: int, page_bytes: int) -> int:
    """Return how long a log may become that no snapshot holds back.

    A store copies it when it is longer than LOG_BYTES; by then one more commit may have changed every page of the file.
    A read at that moment puts the copy off until as much has come again. The log keeps a length of LOG_BYTES when it
    starts over, so it may well be longer than a small file.
    """
    return 2 * LOG_BYTES + file_bytes // page_bytes * (page_bytes + _FRAME_BYTES)


def _advise(path: str, facts: Facts, advice: list[str]) -> None:
    if facts["log bytes"] > _most_log_bytes(facts["bytes"], facts["page bytes"]):
        advice.append(
            "the write-ahead log keeps growing, as it cannot be copied into the file: a reader holds an old snapshot;"
            " refresh or close it"
        )
    if facts["live runs"] > _MANY_RUNS:
        advice.append(f"{facts['live runs']} live runs make reads slow: run `checkpoint compact {path}`")
    if facts["pages"] > 1000 and facts["unused pages"] > facts["pages"] / 2:
        advice.append(f"more than half of the file is unused: run `checkpoint compact {path}`")
    if facts["journal"] != "wal":
        advice.append(
            f"the journal mode is {facts['journal']}: something else has opened the file; let a store write it"
        )
    if not os.access(path, os.W_OK):
        advice.append(f"{path} cannot be written by this user")


def _writer(path: Path) -> str:
    """Say who writes to a store, without taking the lock: that would keep others from writing for a moment."""
    owner = owner_of(path)
    return "none" if owner is None else f"{path} is being written by {owner}"


def _leftovers(path: Path, advice: list[str]) -> list[str]:
    """Return the temporary files that interrupted copies have left beside a store."""
    found = [
        str(one)
        for end in ("", *BESIDE)
        for one in path.parent.glob(f".*.tmp{end}")
        if one.is_file() and time.time() - one.stat().st_mtime > _OLD_SECONDS
    ]
    if found:
        advice.append(f"{printing.count(len(found), 'temporary file')} older than a day beside the store: remove them")
    return found


def _is_gone(location: Location, name: str) -> bool:
    """Return whether a file that was not listed is not there: one of a newer epoch has come since."""
    return location.modified(name) is None


def _space(source: Source, advice: list[str]) -> Facts:
    from checkpoint.chain.collect import RUNS, leftovers_at, old_among, published_at
    from checkpoint.chain.division import with_parts

    chain = source.chain
    shards = source.shards()
    manifests = list(chain.manifests())
    lengths = [len(chain.lineage(operator, shard)) for operator, shard in shards] if chain.epoch else []
    files = chain.location.names(RUNS)
    runs = [run for manifest in manifests for run in manifest.files]
    runs += [
        run
        for manifest in manifests[:1]  # what came before it is part of what it reads
        for operator in manifest.lineage
        for shard in range(manifest.shards)
        for run in chain.lineage(operator, shard, manifest.epoch)
    ]
    named = {run.file for run in with_parts(chain.location, runs)}
    missing = sorted(name for name in named - {f"{RUNS}/{name}" for name in files} if _is_gone(chain.location, name))
    leftovers = leftovers_at(chain.location)
    facts: Facts = {
        "incarnation": chain.incarnation,
        "format": chain.space.format,
        "shards": chain.shards,
        "operators": sorted({operator for operator, _ in shards}),
        "epochs": f"{chain.first_epoch} to {chain.epoch}",
        "longest lineage": max(lengths, default=0),
        "run files": len(files),
        "run files that no readable epoch names": len({f"{RUNS}/{name}" for name in files} - named),
        "leftovers": leftovers,
    }
    if lost := chain.unlisted():
        advice.append(str(lost))
    if missing:
        source.require_kept()
        what = printing.count(len(missing), "run file")
        advice.append(
            f"{what} missing that readable epochs need, as {missing[0]}: run `checkpoint verify {source.path}`"
        )
    if facts["longest lineage"] > _LONG_LINEAGE:
        advice.append("a lineage is long, so a fresh machine reads many files: let the pipeline write full runs")
    # A younger one may belong to a write under way, and stays where garbage is collected.
    if leftovers and old_among(chain.location, leftovers, _OLD_SECONDS, published_at(chain.location, chain.epoch)):
        advice.append(f"there are temporary files of writes that were cut off: run `checkpoint gc {source.path}`")
    return facts
