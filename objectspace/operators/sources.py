"""The names of the sources of a pipeline, and the schemas of their rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from objectspace.relational import Column, SchemaError, TableSchema
from objectspace.relational.schema import KeyPart

KEY_VALUE_TABLES = "kvt"
"""With a slash, the prefix of the names of all objects of key-value tables: no operator may have this name."""

ROW_ID = "_row"
"""The hidden key of a source that was declared without one."""


def names_of(given: Iterable[str | Iterable[str]]) -> tuple[str, ...]:
    """Return the names of columns that are given one by one, or together in a list or tuple.

    >>> names_of(["a", ["b", "c"]])
    ('a', 'b', 'c')
    """
    names: list[Any] = []
    for one in given:
        names += one if isinstance(one, list | tuple) else [one]
    if strange := [name for name in names if not isinstance(name, str)]:
        raise SchemaError(f"a column is given by its name: found {strange[0]!r:.200}")
    return tuple(names)


def check_name(name: str) -> None:
    """Refuse a name that no operator can have.

    Raises:
        SchemaError: it is empty, contains ``/``, which separates an operator from its tables, or begins with ``$``; or
            it is the name below which key-value tables lie.
    """
    if not isinstance(name, str) or not name or "/" in name or name.startswith("$"):
        raise SchemaError(f"the name of an operator is text without '/' that does not begin with '$': found {name!r}")
    if name == KEY_VALUE_TABLES:
        raise SchemaError(
            f"{name!r} is no name of an operator: the key-value tables of a space lie under it, and would go with the"
            " operator: choose another one; if an earlier version has stored this one, open the pipeline with"
            " drop_changed=True, so that what it kept goes and the key-value tables stay"
        )


def key_parts(given: Iterable[KeyPart] | str) -> list[KeyPart]:
    """Return the parts of a key that a user gives: a string is one of them.

    Raises:
        SchemaError: these are no names.
    """
    if isinstance(given, str):
        return [given]
    if not isinstance(given, Iterable):
        raise SchemaError(f"a key is names of columns: found {given!r:.80}: leave it out if there is none")
    return list(given)


def source_schema(given: Any, key: Sequence[KeyPart] = ()) -> TableSchema:
    """Return the schema of a source from what a user gives for it.

    >>> print(source_schema({"id": "int64", "note": "string?"}, ["id"]))
    id int64 not null, note string, primary key (id asc nulls first)
    """
    key = key_parts(key)
    if isinstance(given, TableSchema):
        return TableSchema(given.columns, key) if key else given
    if isinstance(given, str):
        raise SchemaError(
            f"a schema is a mapping of names to types, such as {{'id': 'int64'}}: found the text {given!r:.80}"
        )
    if isinstance(given, Mapping):
        return TableSchema([_column(name, kind) for name, kind in given.items()], key)
    if isinstance(given, Sequence):
        return TableSchema(given, key)
    return _foreign_schema(given, key)


def _column(name: str, kind: Any) -> Column:
    """Return a column with the type that a user gives: text, or a type of the library or of Arrow that has one."""
    if isinstance(kind, type):
        raise SchemaError(f"column {name!r}: a type is text such as 'int64': found {kind!r}")
    text = str(kind)
    return Column(name, text.rstrip("?"), text.endswith("?"))


def _foreign_schema(given: Any, key: Sequence[KeyPart]) -> TableSchema:
    module = type(given).__module__.partition(".")[0]
    if module == "pandas":
        from objectspace.relational.arrow import from_frame

        given = from_frame(given).schema
    elif module in ("pyarrow", "pyspark") and hasattr(given, "schema"):
        given = given.schema
    if hasattr(given, "jsonValue"):
        found = TableSchema.from_spark(given)
    elif type(given).__module__.startswith("pyarrow"):
        found = TableSchema.from_arrow(given)
    else:
        raise SchemaError(f"a source takes a schema, columns, or a data frame: found a {type(given).__name__}")
    return TableSchema(found.columns, key)
