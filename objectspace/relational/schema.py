"""The shape of a table: columns with types, and a primary key with an order for each of its columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set, Sized
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count
from typing import TYPE_CHECKING, Any

from objectspace.extras import require
from objectspace.relational.bulk import keys_encoder
from objectspace.relational.equality import equality, likeness
from objectspace.relational.errors import RowError, SchemaError
from objectspace.relational.keys import KeyEncoder, Order
from objectspace.relational.renames import Renames
from objectspace.relational.types import INTEGERS, DataType, can_widen, parse_type
from objectspace.relational.values import BadValue, Check, checker, form_test, from_cell, to_cell

if TYPE_CHECKING:
    import pyarrow as pa

Row = tuple[Any, ...]
"""The values of a row, one for each column."""

KeyPart = str | tuple[str, str] | tuple[str, Order]
"""A key column: its name, alone or with an order: ``("v", "desc nulls last")`` or ``"v desc nulls last"``."""


@dataclass(frozen=True)
class Column:
    """One column of a table.

    Args:
        name: its name.
        type: its type, as text such as ``"int64"`` or ``"list<string>"``.
        nullable: whether it takes ``None``.
        default: the value that rows stored before the column was added have in it.
        id: a number that the column keeps when it is renamed; a stored table gives one to each of its columns, and a
            column without an id is found by name.
        former_names: its earlier names, the last one first: a table that has it under one of these names renames it.

    >>> Column("price", "numeric").type.kind
    'decimal'
    """

    name: str
    type: Any
    nullable: bool = False
    default: Any = field(default=None, hash=False)
    id: int = 0
    former_names: tuple[str, ...] = field(default=(), repr=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise SchemaError(f"the name of a column is text: found {self.name!r}")
        if not isinstance(self.former_names, tuple) or not all(isinstance(name, str) for name in self.former_names):
            raise SchemaError(f"the former names of column {self.name!r} are a tuple: found {self.former_names!r:.80}")
        object.__setattr__(self, "type", parse_type(self.type))
        if self.default is not None:
            try:
                object.__setattr__(self, "default", checker(self.type)(self.default))
            except BadValue as error:
                raise SchemaError(f"the default of column {self.name!r}: {error}") from None

    def __str__(self) -> str:
        return f"{self.name} {self.type}{'' if self.nullable else ' not null'}"

    def check(self) -> Check:
        """Return a function that gives a value of the column its one form, or raises :class:`BadValue`."""
        inner, nullable = checker(self.type), self.nullable

        def _check(value: Any) -> Any:
            if value is not None:
                return inner(value)
            if nullable:
                return None
            raise BadValue(
                f"it takes no NULL: pass a value, or declare the column with nullable=True (for a pipeline as"
                f" {f'{self.type}?'!r})"
            )

        return _check


class TableSchema:
    """The columns of a table and its primary key.

    Args:
        columns: the columns, in the order of the values of a row.
        primary_key: the key columns; columns may be repeated, and a table without key columns holds one row.
        watermark_column: the column that watermarks are about.
        distribution_key: the key columns whose hash is the vnode of a row; the table is then distributed.
        vnode_column: instead, the column that holds the vnode.
        last_id: the greatest id that a column of the table ever had, so no id is used twice.
        dropped_ids: the ids of columns that were dropped: a new column of the same name is a different column.

    ``ids`` are the ids of the columns: numbers by which stored rows name them. ``equal(one, other)`` tells whether two
    checked rows are equal in SQL, where NaN is NaN; ``alike(one, other)`` tells whether they are also spelled alike,
    which 1.0 and 1.00 are not.

    Raises:
        SchemaError: a column is named twice, or does not exist.

    >>> schema = TableSchema([Column("k", "int64"), Column("v", "string", nullable=True)], primary_key=["k desc"])
    >>> schema.check_row((1, None)), schema.key_of((1, None))
    ((1, None), (1,))
    >>> print(schema)
    k int64 not null, v string, primary key (k desc nulls last)
    """

    def __init__(
        self,
        columns: Iterable[Column],
        primary_key: Sequence[KeyPart] | str = (),
        *,
        watermark_column: str | None = None,
        distribution_key: Sequence[str] | str = (),
        vnode_column: str | None = None,
        last_id: int = 0,
        dropped_ids: Iterable[int] = (),
    ) -> None:
        given = tuple(columns)
        stranger = next((column for column in given if not isinstance(column, Column)), None)
        if stranger is not None:
            raise SchemaError(f"the columns of a schema are Column objects: found {stranger!r:.80}")
        self.columns = given
        self._renames = Renames()
        self.ids = _ids_of(given)
        self.last_id, self.dropped_ids = max([last_id, *self.ids]), frozenset(dropped_ids)
        self.names = tuple(column.name for column in self.columns)
        self._places = {name: place for place, name in enumerate(self.names)}
        if len(self._places) < len(self.names):
            raise SchemaError(f"a column is named twice: {', '.join(self.names)}")
        if primary_key is None:
            raise SchemaError("the primary key is None: name its columns, or give () for a table of one row")
        parts = [primary_key] if isinstance(primary_key, str) else primary_key
        self.primary_key = tuple(map(self._key_part, parts))
        self.key_places = tuple(self._places[name] for name, _ in self.primary_key)
        self.watermark_column, self.vnode_column = watermark_column, vnode_column
        self.distribution_key = (distribution_key,) if isinstance(distribution_key, str) else tuple(distribution_key)
        self._check_roles()
        self._checks = [column.check() for column in self.columns]
        self.is_in_form, self._are_in_form = form_test([(column.type, column.nullable) for column in self.columns])
        self._key_checks = [checker(self.columns[place].type) for place in self.key_places]
        forms = form_test([(self.columns[place].type, True) for place in self.key_places])
        self._is_key_in_form, self._are_keys_in_form = forms
        orders = [order for _, order in self.primary_key]
        self.key_encoder = KeyEncoder([self.columns[place].type for place in self.key_places], orders)
        self.key_of = _picker(self.key_places)
        self.equal = equality([column.type for column in self.columns])
        self.alike = likeness(self.equal)
        self._are_equal_keys = equality([self.columns[place].type for place in self.key_places])

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the schema as the arguments that it was made from."""
        roles = (self.watermark_column, self.distribution_key, self.vnode_column, self.last_id, self.dropped_ids)
        return (_remade, (self.columns, self.primary_key, *roles, self._renames))

    def place_of(self, name: str) -> int:
        """Return the position of a column in a row.

        Raises:
            SchemaError: there is no such column.
        """
        if name not in self._places:
            raise SchemaError(f"there is no column {name!r}: the columns are {', '.join(self.names)}")
        return self._places[name]

    def column(self, name: str) -> Column:
        """Return a column by its name.

        Raises:
            SchemaError: there is no such column.
        """
        return self.columns[self.place_of(name)]

    def same_key(self, one: Row, other: Row) -> bool:
        """Return whether two checked rows have the same primary key."""
        return self._are_equal_keys(self.key_of(one), self.key_of(other))

    def encode_keys(self, rows: Sequence[Row]) -> list[bytes]:
        """Return the encoded primary keys of checked rows: bytes that compare as the keys do.

        Time: O(rows), a third of that of as many single calls, and less if pyarrow is loaded.

        >>> schema = TableSchema([Column("k", "int16")], ["k desc"])
        >>> [key.hex(" ") for key in schema.encode_keys([(1,), (-1,)])]
        ['fe 7f fe', 'fe 80 00']
        """
        if not self.key_places:
            return [b""] * len(rows)
        return self.encode_columns([[row[place] for row in rows] for place in self.key_places])

    @cached_property
    def encode_columns(self) -> Callable[[Sequence[Sequence[Any]]], list[bytes]]:
        """Encodes the checked primary key values of many rows, given column by column, at least one column."""
        kinds = [self.columns[place].type for place in self.key_places]
        return keys_encoder(kinds, [order for _, order in self.primary_key])

    def check_row(self, row: Sequence[Any] | Mapping[str, Any]) -> Row:
        """Return a row with each value in its one form.

        Args:
            row: the values in the order of the columns, or by their names.

        Raises:
            RowError: the row does not fit; it says which column and value.
        """
        if self.is_in_form(row):
            return row  # type: ignore[return-value]
        if isinstance(row, Mapping):
            row = self._row_of(row)
        if isinstance(row, str | bytes | Set) or not isinstance(row, Sized) or len(row) != len(self._checks):
            raise RowError(f"a row has {len(self._checks)} values ({', '.join(self.names)}): found {row!r:.200}")
        try:
            return tuple([check(value) for check, value in zip(self._checks, row, strict=True)])
        except BadValue:
            raise self._row_error(row) from None

    def check_rows(self, rows: Sequence[Sequence[Any] | Mapping[str, Any]]) -> Sequence[Row]:
        """Return many rows with each value in its one form: see :meth:`check_row`.

        Raises:
            RowError: a row does not fit; it says which column and value.
        """
        return rows if self._are_in_form(rows) else list(map(self.check_row, rows))  # type: ignore[return-value]

    def check_key(self, values: Sequence[Any], *, whole: bool = True, skip: int = 0, what: str = "a key") -> Row:
        """Return key values in their one form.

        Args:
            values: the values of the leading key columns, or of all of them if ``whole``; any of them may be ``None``.
            whole: whether it must be the whole key.
            skip: how many key columns to skip before them.
            what: what the values are, for the message.

        Raises:
            RowError: there are too few or too many, or one does not fit.
        """
        if whole and not skip and self._is_key_in_form(values):
            return values  # type: ignore[return-value]
        checks = self._key_checks[skip:]
        if type(values) is not tuple and (isinstance(values, str | bytes) or not isinstance(values, Sequence)):
            raise RowError(f"{what} is a tuple of values ({self._key_names(skip)}): found {values!r:.200}")
        if len(values) > len(checks) or (whole and len(values) < len(checks)):
            raise RowError(f"{what} has {self._room(whole, skip)}: found {values!r:.200}")
        checked: list[Any] = []
        for check, value in zip(checks, values):
            try:
                checked.append(None if value is None else check(value))
            except BadValue as error:
                name, _ = self.primary_key[skip + len(checked)]
                raise RowError(f"key column {name!r} ({self.column(name).type}): {error}") from None
        return tuple(checked)

    def check_keys(self, keys: Sequence[Sequence[Any]]) -> Sequence[Row]:
        """Return whole keys with each value in its one form: see :meth:`check_key`.

        Raises:
            RowError: a key does not fit.
        """
        return keys if self._are_keys_in_form(keys) else list(map(self.check_key, keys))  # type: ignore[return-value]

    def with_column(self, column: Column) -> TableSchema:
        """Return the schema with one more column at the end.

        >>> schema = TableSchema([Column("k", "int64")], ["k"]).with_column(Column("v", "int64", default=0))
        >>> schema.names
        ('k', 'v')
        """
        return self._changed([*self.columns, column])

    def without_column(self, name: str) -> TableSchema:
        """Return the schema without a column, which must not be in the key."""
        dropped = self.column(name)
        if name in {key for key, _ in self.primary_key} | {*self.distribution_key, self.vnode_column}:
            raise SchemaError(f"column {name!r} is part of the key and cannot be dropped")
        return self._changed([column for column in self.columns if column is not dropped], dropped={dropped.id} - {0})

    def renamed(self, name: str, new_name: str) -> TableSchema:
        """Return the schema with another name for a column; stored rows keep their values."""
        old = self.column(name)
        changed = replace(old, name=new_name, former_names=(name, *old.former_names))
        return self._changed([changed if column.name == name else column for column in self.columns], {name: new_name})

    def widened(self, name: str, kind: str | DataType) -> TableSchema:
        """Return the schema with a wider type for a column, which must hold every stored value."""
        old, new = self.column(name), parse_type(kind)
        if not can_widen(old.type, new):
            raise SchemaError(f"column {name!r} cannot be widened from {old.type} to {new}: some values would not fit")
        return self._changed([replace(column, type=new) if column is old else column for column in self.columns])

    def with_ids(self) -> TableSchema:
        """Return the schema with an id for each of its columns."""
        return self._settled(self.ids, self.last_id)

    def with_ids_of(self, stored: TableSchema) -> TableSchema:
        """Return the schema with the column ids of a stored one, by name for columns that have no id of their own.

        Raises:
            SchemaError: the stored one has both the name of a column and one of its former names, or it does not tell
                which of its columns is which.
        """
        given = {column.id for column in self.columns} - {0}
        is_known = self._renames.steps and not given
        then = self._renames.names_in(stored.names, self.names) if is_known else None
        if then is not None:
            by_name = dict(zip(stored.names, stored.ids))
            found = [by_name[then[name]] if name in then else 0 for name in self.names]
        else:
            found = self._ids_by_names(stored, given)
        fresh = count(max([stored.last_id, *given, *self.dropped_ids]) + 1)
        return self._settled([own or next(fresh) for own in found], stored.last_id)

    def _ids_by_names(self, stored: TableSchema, given: Set[int]) -> list[int]:
        """Return the ids of the columns in a table that is in no state the schema was in; 0 for a new column."""
        there = {column.name: column.id for column in stored.columns if column.id not in given | self.dropped_ids}
        free = dict(there)
        kept = [column.id or free.pop(column.name, 0) if _is_itself(column) else 0 for column in self.columns]
        found = [own or _id_by_names(column, free) for own, column in zip(kept, self.columns)]
        taken = there.keys() - free.keys()
        for own, column in zip(found, self.columns):
            if not own and (former := next((name for name in column.former_names if name in taken), None)):
                raise SchemaError(
                    f"column {column.name!r} was called {former!r}, and the schema has another one of that name:"
                    " begin with the schema that the table has, table.schema"
                )
        return found

    def to_json(self) -> dict[str, Any]:
        """Return the schema as it is stored beside its table."""
        columns = []
        for own, column in zip(self.ids, self.columns):
            shape = {"id": own, "name": column.name, "type": str(column.type), "nullable": column.nullable}
            if column.default is not None:
                cell = to_cell(column.type)
                shape["default"] = cell(column.default) if cell else column.default
            columns.append(shape)
        return {
            "columns": columns,
            "primary_key": [[name, str(order)] for name, order in self.primary_key],
            "watermark_column": self.watermark_column,
            "distribution_key": list(self.distribution_key),
            "vnode_column": self.vnode_column,
            "last_id": self.last_id,
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> TableSchema:
        """Return the schema that :meth:`to_json` wrote."""
        columns = []
        for shape in stored["columns"]:
            kind = parse_type(shape["type"])
            cell, default = from_cell(kind), shape.get("default")
            value = default if default is None or cell is None else cell(default)
            columns.append(Column(shape["name"], kind, shape["nullable"], value, shape["id"]))
        return cls(
            columns,
            [(name, order) for name, order in stored["primary_key"]],
            watermark_column=stored["watermark_column"],
            distribution_key=stored["distribution_key"],
            vnode_column=stored["vnode_column"],
            last_id=stored["last_id"],
        )

    def to_arrow(self) -> pa.Schema:
        """Return the schema as an Arrow schema. Requires pyarrow."""
        require("pyarrow", "arrow")
        from objectspace.relational import arrow

        return arrow.to_schema(self)

    @classmethod
    def from_arrow(cls, schema: pa.Schema, primary_key: Sequence[KeyPart] = (), **roles: Any) -> TableSchema:
        """Return a schema with the columns of an Arrow schema. Requires pyarrow.

        Args:
            schema: the Arrow schema.
            primary_key: the key columns.
            roles: further arguments of :class:`TableSchema`.

        Raises:
            SchemaError: it is no Arrow schema, or one of its types has no match.
        """
        require("pyarrow", "arrow")
        from objectspace.relational import arrow

        return cls(arrow.columns_of(schema), primary_key, **roles)

    def to_spark(self) -> dict[str, Any]:
        """Return the JSON value of the Spark schema, to pass to ``StructType.fromJson``.

        >>> TableSchema([Column("k", "int32")]).to_spark()["fields"][0]["type"]
        'integer'
        """
        from objectspace.relational import spark_types

        return spark_types.to_struct(self.columns)

    @classmethod
    def from_spark(cls, struct: Any, primary_key: Sequence[KeyPart] = (), **roles: Any) -> TableSchema:
        """Return a schema with the columns of a Spark ``StructType``, or of its JSON value.

        Args:
            struct: the ``StructType``.
            primary_key: the key columns.
            roles: further arguments of :class:`TableSchema`.

        Raises:
            SchemaError: a Spark type has no match, or it is no ``StructType``.
        """
        from objectspace.relational import spark_types

        try:
            columns = spark_types.columns_of(struct if isinstance(struct, Mapping) else struct.jsonValue())
        except (AttributeError, KeyError, TypeError) as error:
            raise SchemaError(f"expected a StructType of Spark, or its JSON value: found {struct!r:.200}") from error
        except RecursionError:
            raise SchemaError("arrays and structs are nested too deep in the schema of Spark") from None
        return cls(columns, primary_key, **roles)

    def __eq__(self, other: object) -> bool:
        """Compare names, types, keys and roles; ids may differ."""
        return isinstance(other, TableSchema) and self._shape() == other._shape()

    def __hash__(self) -> int:
        return hash(str(self))

    def __str__(self) -> str:
        return ", ".join([*map(str, self.columns), *self.roles()])

    def roles(self) -> list[str]:
        """Return what its columns are for, in words: the key, the watermark, and what it is distributed by."""
        parts = [f"primary key ({', '.join(f'{name} {order}' for name, order in self.primary_key)})"]
        parts += [f"watermark ({self.watermark_column})"] if self.watermark_column is not None else []
        parts += [f"distributed by ({', '.join(self.distribution_key)})"] if self.distribution_key else []
        parts += [f"vnode in ({self.vnode_column})"] if self.vnode_column is not None else []
        return parts

    def __repr__(self) -> str:
        return f"TableSchema({self})"

    def _shape(self) -> tuple[Any, ...]:
        columns = tuple((column.name, column.type, column.nullable) for column in self.columns)
        return columns, self.primary_key, self.watermark_column, self.distribution_key, self.vnode_column

    def _settled(self, ids: Sequence[int], last_id: int) -> TableSchema:
        """Return the schema with these ids and without its history; the rest follows from names and types."""
        columns = [replace(column, id=own, former_names=()) for own, column in zip(ids, self.columns, strict=True)]
        made = object.__new__(TableSchema)
        vars(made).update(vars(self), columns=tuple(columns), ids=tuple(ids), dropped_ids=frozenset())
        made._renames = Renames()
        made.last_id = max([last_id, *ids])
        return made

    def _changed(
        self, columns: list[Column], names: Mapping[str, str] | None = None, dropped: Set[int] = frozenset()
    ) -> TableSchema:
        def _known(name: str) -> str:
            return (names or {}).get(name, name)

        watermark = None if self.watermark_column is None else _known(self.watermark_column)
        made = TableSchema(
            columns,
            [(_known(name), order) for name, order in self.primary_key],
            watermark_column=watermark if watermark in {column.name for column in columns} else None,
            distribution_key=[_known(name) for name in self.distribution_key],
            vnode_column=None if self.vnode_column is None else _known(self.vnode_column),
            last_id=self.last_id,
            dropped_ids=self.dropped_ids | dropped,
        )
        if self._renames.steps or not any(column.former_names for column in self.columns):
            renamed = {new: old for old, new in (names or {}).items()}
            made._renames = self._renames.then(self.names, renamed, is_drop=len(columns) < len(self.columns))
        return made

    def _key_part(self, part: KeyPart) -> tuple[str, Order]:
        if isinstance(part, str):
            longest = sorted(self.names, key=len, reverse=True)
            name = part if part in self._places else next((n for n in longest if part.startswith(f"{n} ")), None)
            if name is None:
                name, _, order = part.partition(" ")
            else:
                order = part[len(name) :]
            part = (name, order.strip() or "asc")
        if not isinstance(part, tuple | list) or len(part) != 2 or not isinstance(part[0], str):
            raise SchemaError(f"a key column is a name, 'name desc', or a pair (name, order): found {part!r:.80}")
        self.place_of(part[0])
        return part[0], Order.parse(part[1])

    def _check_roles(self) -> None:
        for name in (self.watermark_column, self.vnode_column, *self.distribution_key):
            if name is not None:
                self.place_of(name)
        outside = {*self.distribution_key, self.vnode_column} - {None} - {name for name, _ in self.primary_key}
        if outside:
            raise SchemaError(
                f"{', '.join(map(repr, sorted(map(str, outside))))} must be in the primary key: it routes rows"
            )
        if self.vnode_column is not None and self.column(self.vnode_column).type.kind not in INTEGERS:
            raise SchemaError(f"the vnode column {self.vnode_column!r} must hold whole numbers")
        if self.vnode_column is not None and self.distribution_key:
            raise SchemaError("a table has a distribution key or a vnode column, not both")
        if self.watermark_column is not None and self.column(self.watermark_column).type.is_nested:
            raise SchemaError(f"the watermark column {self.watermark_column!r} must not be nested")

    def _row_of(self, values: Mapping[str, Any]) -> list[Any]:
        unknown = [name for name in values if name not in self._places]
        if unknown:
            raise RowError(f"there is no column {unknown[0]!r}: the columns are {', '.join(self.names)}")
        return [values.get(column.name, column.default) for column in self.columns]

    def _row_error(self, row: Sequence[Any]) -> RowError:
        """Say which column of a row does not fit."""
        for column, check, value in zip(self.columns, self._checks, row, strict=True):
            try:
                check(value)
            except BadValue as error:
                return RowError(f"column {column.name!r} ({column.type}): {error}; the row is {row!r:.200}")
        raise AssertionError(f"the row fits: {row!r}")

    def _room(self, whole: bool, skip: int) -> str:
        """Return how many values a key has, or one of its parts that begins after some columns."""
        count, names = len(self.primary_key) - skip, self._key_names(skip)
        if not count:
            return (
                f"no values after a prefix of the whole key ({self._key_names()})" if skip else "no values, nor columns"
            )
        after = ", which the prefix leaves of the key" if skip else ""
        return f"{'' if whole else 'at most '}{count} value{'s' if count > 1 else ''} ({names}){after}"

    def _key_names(self, skip: int = 0) -> str:
        return ", ".join(name for name, _ in self.primary_key[skip:])


def _ids_of(columns: tuple[Column, ...]) -> tuple[int, ...]:
    """Return the ids of columns; columns that have none are numbered."""
    taken = {column.id for column in columns} - {0}
    if len(taken) < sum(1 for column in columns if column.id):
        raise SchemaError("two columns have the same id")
    fresh = iter(number for number in range(1, len(columns) + len(taken) + 1) if number not in taken)
    return tuple(column.id or next(fresh) for column in columns)


def _is_itself(column: Column) -> bool:
    """Return whether a column is looked for only under its own name."""
    return bool(column.id) or not column.former_names


def _id_by_names(column: Column, free: dict[str, int]) -> int:
    """Take the id of a stored column that has one of the names of a column, or 0 if there is none."""
    there = [name for name in (column.name, *column.former_names) if name in free]
    if len(there) > 1:
        raise SchemaError(
            f"column {column.name!r} was called {there[1]!r}, and the table has columns of both names: begin with the"
            " schema that the table has, table.schema"
        )
    return free.pop(there[0]) if there else 0


def _picker(places: tuple[int, ...]) -> Callable[[Sequence[Any]], Row]:
    """Return a function that picks the values at some places of a row."""
    if len(places) == 1:
        (only,) = places
        return lambda row: (row[only],)
    return lambda row: tuple([row[place] for place in places])


def _remade(
    columns: Sequence[Column],
    key: Sequence[KeyPart],
    watermark: str | None,
    distribution: Sequence[str],
    vnode: str | None,
    last_id: int,
    dropped_ids: Iterable[int],
    renames: Renames,
) -> TableSchema:
    made = TableSchema(
        columns,
        key,
        watermark_column=watermark,
        distribution_key=distribution,
        vnode_column=vnode,
        last_id=last_id,
        dropped_ids=dropped_ids,
    )
    made._renames = renames
    return made
