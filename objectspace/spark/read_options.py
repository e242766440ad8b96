"""The options of a read through Spark, as texts, and what they say."""

from __future__ import annotations

from collections.abc import Mapping

from objectspace.errors import ObjectSpaceError
from objectspace.spark.storage import require_known

_KINDS = ("table", "object", "kvt")

_OPTIONS = (*_KINDS, "path", "operator", "columns", "epoch", "pushdown", "changes", "maxEpochsPerTrigger")
"""The options of a read, apart from those for the file system."""

_OF_TABLES = ("columns", "pushdown", "changes", "maxEpochsPerTrigger")

CALLED = {"table": "table", "object": "object", "kvt": "key-value table"}
"""What the kinds are called in messages."""

_MEANINGLESS = {
    "the table": ("maxEpochsPerTrigger",),
    "the changes of the table": ("epoch", "pushdown"),
    "the object": _OF_TABLES,
    "the key-value table": _OF_TABLES,
}
"""For each kind of read, the options that have no meaning for it."""

_OF_CATALOG = (
    "Spark hands over no option when it is read: use CREATE TEMPORARY VIEW name USING objectspace"
    " OPTIONS (path '...', table '...'), or spark.read"
)
"""Of a table of Spark's catalog: why it cannot be read, and what can."""

_SWITCHES = ("changes", "pushdown")
"""Options that are off by default: saying so has a meaning for every read."""


def is_set(options: Mapping[str, str], name: str) -> bool:
    """Return whether an option is ``true``.

    Raises:
        ObjectSpaceError: it is neither ``true`` nor ``false``.
    """
    given = options.get(name, "false")
    if given.lower() not in ("true", "false"):
        raise ObjectSpaceError(f"the option {name} is {given!r}: expected true or false")
    return given.lower() == "true"


def kind_of(options: Mapping[str, str]) -> str:
    """Return which option names what to read: ``table``, ``object`` or ``kvt``.

    Raises:
        ObjectSpaceError: an option is missing, unknown, or without meaning for what is read.
    """
    if "provider" in options and "location" in options:  # What Spark notes of such a table when it is created.
        raise ObjectSpaceError(f"a table of Spark's catalog cannot be one of this format: {_OF_CATALOG}")
    if "paths" in options:  # What Spark makes of a list.
        raise ObjectSpaceError(
            f"load() takes one location: found {options['paths']}: read each by itself, and put them together with"
            " union()"
        )
    require_known(options, _OPTIONS)
    if "path" not in options:
        unless = f"; if it is a table of Spark's catalog, {_OF_CATALOG}" if not options else ""
        raise ObjectSpaceError(f"load() lacks a location: give the one of a space, or the path of a store file{unless}")
    given = [kind for kind in _KINDS if kind in options]
    if not given:
        raise ObjectSpaceError("load(location) takes one of the options table, object and kvt: name what to read")
    if len(given) > 1:
        found = " and ".join(f"{kind}={options[kind]!r}" for kind in given)
        raise ObjectSpaceError(
            f"load(location) takes one of the options table, object and kvt: found {found}: give one; a reader keeps"
            " its options, so begin with a new spark.read or spark.readStream"
        )
    _require_meaning(options, given[0])
    return given[0]


def columns_of(options: Mapping[str, str]) -> tuple[str, ...] | None:
    """Return the columns that are named, ``None`` if none are.

    Raises:
        ObjectSpaceError: the option is empty.
    """
    columns = options.get("columns")
    if columns is not None and not columns.strip():
        raise ObjectSpaceError("the option columns is empty: expected names of columns, with commas between them")
    return tuple(name.strip() for name in columns.split(",")) if columns else None


def epoch_of(options: Mapping[str, str]) -> int | None:
    """Return the epoch that is named, ``None`` if none is.

    Raises:
        ObjectSpaceError: it is not a whole number from 0 on.
    """
    epoch = options.get("epoch")
    if epoch is not None and not epoch.isdecimal():
        raise ObjectSpaceError(f"the option epoch is {epoch!r}: expected a whole number from 0 on")
    return None if epoch is None else int(epoch)


def _require_meaning(options: Mapping[str, str], kind: str) -> None:
    """Refuse an option that would be silently ignored because it has no meaning for what is read."""
    read = f"the {CALLED[kind]}" if not (kind == "table" and is_set(options, "changes")) else "the changes of the table"
    for name in _MEANINGLESS[read]:
        is_default = name in _SWITCHES and options.get(name, "").lower() == "false"
        if name in options and not is_default:
            what = "leave it out" if read != "the table" else "pass changes=true with it, or leave it out"
            raise ObjectSpaceError(f"the option {name} has no meaning where {read} {options[kind]!r} is read: {what}")
