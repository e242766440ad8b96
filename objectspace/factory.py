"""The methods of a space that create and get objects, three per kind."""

from __future__ import annotations

import operator
import re
import sys
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from objectspace import codec
from objectspace.errors import UnencodableValueError, WrongKindError, shown
from objectspace.objects import (
    KINDS,
    Array,
    Dictionary,
    LinkedList,
    List,
    ObjectDictionary,
    PersistedObject,
    Queue,
    RawSortedDictionary,
    Set,
    SortedDictionary,
    SortedSet,
    SparseArray,
    Stack,
    Tensor,
    Value,
)
from objectspace.objects.tensor import tensor_options

if TYPE_CHECKING:  # Type checkers know this library on their own: it need not be installed.
    from typing_extensions import TypeVar as _DefaultedTypeVar

    D = _DefaultedTypeVar("D", bound=Dictionary[Any, Any] | ObjectDictionary[Any, Any], default=Dictionary[Any, Any])
else:
    D = TypeVar("D", bound=Dictionary | ObjectDictionary)

P = TypeVar("P", bound=PersistedObject)

_ListKind = type[list[Any]] | Literal["list"]
_DictionaryKind = type[dict[Any, Any]] | Literal["dictionary"]
_SetKind = type[set[Any]] | Literal["set"]


class ObjectFactory(ABC):
    """``create_``, ``get_`` and ``get_or_create_`` for every kind of object.

    ``create_`` raises NameInUseError if the name is in use. ``get_`` raises ObjectNotFoundError if there is no such
    object and WrongKindError if it is of another kind. ``get_or_create_`` raises WrongKindError if the object is of
    another kind or shape. Creating an object dirties one index row, its metadata and its items; getting one dirties
    nothing. Both take O(1) time.
    """

    @abstractmethod
    def __contains__(self, name: object) -> bool: ...

    @abstractmethod
    def _create(self, cls: type[P], name: str, options: dict[str, Any]) -> P: ...

    @abstractmethod
    def _get(self, cls: type[P], name: str) -> P: ...

    def _get_or_create(self, cls: type[P], name: str, options: dict[str, Any]) -> P:
        return self._get(cls, name) if name in self else self._create(cls, name, options)

    def create_value(self, name: str, initial: Any = None) -> Value[Any]:
        """Create a value.

        Args:
            name: the name, not in use yet.
            initial: the first value.
        """
        return self._create(Value, name, {"initial": initial})

    def get_value(self, name: str) -> Value[Any]:
        """Return a value by its name."""
        return self._get(Value, name)

    def get_or_create_value(self, name: str, initial: Any = None) -> Value[Any]:
        """Return a value by its name, creating it if there is none."""
        return self._get_or_create(Value, name, {"initial": initial})

    def create_array(self, name: str, length: int, default: Any = None) -> Array[Any]:
        """Create an array of fixed length.

        Args:
            name: the name, not in use yet.
            length: the number of elements.
            default: what an element holds until it is assigned.
        """
        return self._create(Array, name, _array_options(name, length, default))

    def get_array(self, name: str) -> Array[Any]:
        """Return an array of fixed length by its name."""
        return self._get(Array, name)

    def get_or_create_array(self, name: str, length: int, default: Any = None) -> Array[Any]:
        """Return an array of fixed length by its name, creating it if there is none; an existing default stays."""
        found = self._get_or_create(Array, name, _array_options(name, length, default))
        return _same(found, "length", len(found), length)

    def create_list(self, name: str) -> List[Any]:
        """Create a list."""
        return self._create(List, name, {})

    def get_list(self, name: str) -> List[Any]:
        """Return a list by its name."""
        return self._get(List, name)

    def get_or_create_list(self, name: str) -> List[Any]:
        """Return a list by its name, creating it if there is none."""
        return self._get_or_create(List, name, {})

    def create_queue(self, name: str) -> Queue[Any]:
        """Create a queue."""
        return self._create(Queue, name, {})

    def get_queue(self, name: str) -> Queue[Any]:
        """Return a queue by its name."""
        return self._get(Queue, name)

    def get_or_create_queue(self, name: str) -> Queue[Any]:
        """Return a queue by its name, creating it if there is none."""
        return self._get_or_create(Queue, name, {})

    def create_stack(self, name: str) -> Stack[Any]:
        """Create a stack."""
        return self._create(Stack, name, {})

    def get_stack(self, name: str) -> Stack[Any]:
        """Return a stack by its name."""
        return self._get(Stack, name)

    def get_or_create_stack(self, name: str) -> Stack[Any]:
        """Return a stack by its name, creating it if there is none."""
        return self._get_or_create(Stack, name, {})

    def create_linked_list(self, name: str) -> LinkedList[Any]:
        """Create a linked list."""
        return self._create(LinkedList, name, {})

    def get_linked_list(self, name: str) -> LinkedList[Any]:
        """Return a linked list by its name."""
        return self._get(LinkedList, name)

    def get_or_create_linked_list(self, name: str) -> LinkedList[Any]:
        """Return a linked list by its name, creating it if there is none."""
        return self._get_or_create(LinkedList, name, {})

    def create_set(self, name: str) -> Set[Any]:
        """Create a set."""
        return self._create(Set, name, {})

    def get_set(self, name: str) -> Set[Any]:
        """Return a set by its name."""
        return self._get(Set, name)

    def get_or_create_set(self, name: str) -> Set[Any]:
        """Return a set by its name, creating it if there is none."""
        return self._get_or_create(Set, name, {})

    def create_sorted_set(self, name: str) -> SortedSet[Any]:
        """Create a sorted set."""
        return self._create(SortedSet, name, {})

    def get_sorted_set(self, name: str) -> SortedSet[Any]:
        """Return a sorted set by its name."""
        return self._get(SortedSet, name)

    def get_or_create_sorted_set(self, name: str) -> SortedSet[Any]:
        """Return a sorted set by its name, creating it if there is none."""
        return self._get_or_create(SortedSet, name, {})

    def create_sorted_dictionary(self, name: str, *, raw: bool = False) -> SortedDictionary[Any, Any]:
        """Create a sorted dictionary.

        Args:
            name: the name, not in use yet.
            raw: whether its keys are bytes and its values text or bytes, both stored as they are.
        """
        if raw:
            return self._create(RawSortedDictionary, name, {})
        return self._create(SortedDictionary, name, {})

    def get_sorted_dictionary(self, name: str) -> SortedDictionary[Any, Any]:
        """Return a sorted dictionary by its name, raw or not."""
        return self._get(SortedDictionary, name)

    def get_or_create_sorted_dictionary(self, name: str, *, raw: bool = False) -> SortedDictionary[Any, Any]:
        """Return a sorted dictionary by its name, creating it if there is none."""
        if name not in self:
            return self.create_sorted_dictionary(name, raw=raw)
        found = self._get(SortedDictionary, name)
        return _same(found, "raw", isinstance(found, RawSortedDictionary), raw)

    def create_sparse_array(self, name: str, default: Any = None) -> SparseArray[Any]:
        """Create a sparse array.

        Args:
            name: the name, not in use yet.
            default: what an index holds until it is assigned.
        """
        return self._create(SparseArray, name, {"default": _plain(default)})

    def get_sparse_array(self, name: str) -> SparseArray[Any]:
        """Return a sparse array by its name."""
        return self._get(SparseArray, name)

    def get_or_create_sparse_array(self, name: str, default: Any = None) -> SparseArray[Any]:
        """Return a sparse array by its name, creating it if there is none; an existing default stays."""
        return self._get_or_create(SparseArray, name, {"default": _plain(default)})

    @overload
    def create_dictionary(self, name: str, of: None = None) -> Dictionary[Any, Any]: ...
    @overload
    def create_dictionary(self, name: str, of: _ListKind) -> ObjectDictionary[Any, List[Any]]: ...
    @overload
    def create_dictionary(self, name: str, of: _DictionaryKind) -> ObjectDictionary[Any, Dictionary[Any, Any]]: ...
    @overload
    def create_dictionary(self, name: str, of: _SetKind) -> ObjectDictionary[Any, Set[Any]]: ...
    @overload
    def create_dictionary(self, name: str, of: Literal["value"]) -> ObjectDictionary[Any, Value[Any]]: ...
    @overload
    def create_dictionary(self, name: str, of: Literal["queue"]) -> ObjectDictionary[Any, Queue[Any]]: ...
    @overload
    def create_dictionary(self, name: str, of: Literal["stack"]) -> ObjectDictionary[Any, Stack[Any]]: ...
    @overload
    def create_dictionary(self, name: str, of: Literal["linked_list"]) -> ObjectDictionary[Any, LinkedList[Any]]: ...
    @overload
    def create_dictionary(self, name: str, of: Literal["sorted_set"]) -> ObjectDictionary[Any, SortedSet[Any]]: ...
    @overload
    def create_dictionary(
        self, name: str, of: Literal["sorted_dictionary"]
    ) -> ObjectDictionary[Any, SortedDictionary[Any, Any]]: ...
    @overload
    def create_dictionary(self, name: str, of: Literal["sparse_array"]) -> ObjectDictionary[Any, SparseArray[Any]]: ...
    @overload
    def create_dictionary(self, name: str, of: type[P]) -> ObjectDictionary[Any, P]: ...
    @overload
    def create_dictionary(self, name: str, of: type | str) -> ObjectDictionary[Any, Any]: ...
    def create_dictionary(self, name: str, of: type | str | None = None) -> Any:
        """Create a dictionary.

        Args:
            name: the name, not in use yet.
            of: for a dictionary of objects, what its values are: ``list``, ``dict``, ``set``, or the name of a kind
                such as ``"queue"``.

        Returns:
            a :class:`Dictionary`, or an :class:`ObjectDictionary` if ``of`` is given.
        """
        if of is None:
            return self._create(Dictionary, name, {})
        return self._create(ObjectDictionary, name, {"of": _member_kind(of)})

    def get_dictionary(self, name: str) -> D:  # type: ignore[type-var]
        """Return a dictionary by its name, be it a plain one or a dictionary of objects.

        Type checkers take it for what it is assigned to, or for a :class:`Dictionary` if nothing says otherwise.
        """
        found: Any = self._get(Dictionary, name)
        return found  # type: ignore[no-any-return]

    @overload
    def get_or_create_dictionary(self, name: str, of: None = None) -> Dictionary[Any, Any]: ...
    @overload
    def get_or_create_dictionary(self, name: str, of: _ListKind) -> ObjectDictionary[Any, List[Any]]: ...
    @overload
    def get_or_create_dictionary(
        self, name: str, of: _DictionaryKind
    ) -> ObjectDictionary[Any, Dictionary[Any, Any]]: ...
    @overload
    def get_or_create_dictionary(self, name: str, of: _SetKind) -> ObjectDictionary[Any, Set[Any]]: ...
    @overload
    def get_or_create_dictionary(self, name: str, of: Literal["value"]) -> ObjectDictionary[Any, Value[Any]]: ...
    @overload
    def get_or_create_dictionary(self, name: str, of: Literal["queue"]) -> ObjectDictionary[Any, Queue[Any]]: ...
    @overload
    def get_or_create_dictionary(self, name: str, of: Literal["stack"]) -> ObjectDictionary[Any, Stack[Any]]: ...
    @overload
    def get_or_create_dictionary(
        self, name: str, of: Literal["linked_list"]
    ) -> ObjectDictionary[Any, LinkedList[Any]]: ...
    @overload
    def get_or_create_dictionary(
        self, name: str, of: Literal["sorted_set"]
    ) -> ObjectDictionary[Any, SortedSet[Any]]: ...
    @overload
    def get_or_create_dictionary(
        self, name: str, of: Literal["sorted_dictionary"]
    ) -> ObjectDictionary[Any, SortedDictionary[Any, Any]]: ...
    @overload
    def get_or_create_dictionary(
        self, name: str, of: Literal["sparse_array"]
    ) -> ObjectDictionary[Any, SparseArray[Any]]: ...
    @overload
    def get_or_create_dictionary(self, name: str, of: type[P]) -> ObjectDictionary[Any, P]: ...
    @overload
    def get_or_create_dictionary(self, name: str, of: type | str) -> ObjectDictionary[Any, Any]: ...
    def get_or_create_dictionary(self, name: str, of: type | str | None = None) -> Any:
        """Return a dictionary by its name, creating it if there is none."""
        if name not in self:
            return self.create_dictionary(name, of)
        found: Any = self._get(Dictionary, name)
        wanted = None if of is None else _member_kind(of)
        present = found._member.kind if isinstance(found, ObjectDictionary) else None
        if present != wanted:
            has = f"with of={_spelled(present)!r}: pass it" if present else "without of: leave it out"
            raise WrongKindError(f"{found._describe()} exists {has}")
        return found

    def create_tensor(
        self, name: str, shape: Any, dtype: Any = "float64", *, chunks: Any = None, fill: Any = 0
    ) -> Tensor:
        """Create a tensor. Requires numpy.

        Args:
            name: the name, not in use yet.
            shape: the length of each dimension.
            dtype: the type of the elements, a number.
            chunks: the length of a chunk in each dimension, at most that of the dimension, and 256 MiB in all; about
                1,024 elements by default.
            fill: what an element holds until it is assigned.
        """
        return self._create(Tensor, name, tensor_options(shape, dtype, chunks, fill))

    def get_tensor(self, name: str) -> Tensor:
        """Return a tensor by its name."""
        return self._get(Tensor, name)

    def get_or_create_tensor(
        self, name: str, shape: Any, dtype: Any = "float64", *, chunks: Any = None, fill: Any = 0
    ) -> Tensor:
        """Return a tensor by its name, creating it if there is none."""
        options = tensor_options(shape, dtype, chunks, fill)
        found = self._get_or_create(Tensor, name, options)
        return _same(found, "shape and dtype", (found.shape, found.dtype.str), (options["shape"], options["dtype"]))


def _plain(default: Any) -> Any:
    try:
        found = codec.plain(default)
        codec.encode_plain({"default": found})  # It stands one level deeper in there than a value in its slot.
    except (codec.Unencodable, RecursionError) as error:
        reason = codec.TOO_DEEP_OR_FULL if isinstance(error, RecursionError) else error
        raise UnencodableValueError(f"the default of a new object: {reason}") from error.__cause__
    return found


def _array_options(name: str, length: int, default: Any) -> dict[str, Any]:
    found = f"array {shown(name)}: the length is {shown(length):.80}: expected"
    try:
        count = operator.index(length)
    except TypeError as error:
        raise TypeError(f"{found} a whole number") from error
    if isinstance(length, bool):
        raise TypeError(f"{found} a whole number")
    if not 0 <= count <= sys.maxsize:
        raise ValueError(f"{found} 0 to {sys.maxsize}, or use a sparse array")
    return {"length": count, "default": _plain(default)}


_MEMBERS: dict[type, str] = {list: "List", dict: "Dictionary", set: "Set"}


def _member_kind(of: type | str) -> str:
    names = {_spelled(kind): kind for kind in KINDS if kind not in ("Array", "Tensor")}
    if isinstance(of, str):
        kind = next((kind for kind in names.values() if kind.lower() == of.replace("_", "").lower()), None)
    else:
        # A dictionary of objects has the kind of a dictionary, but cannot be the value of another one.
        is_class = isinstance(of, type) and not issubclass(of, ObjectDictionary)
        kind = _MEMBERS.get(of) or getattr(of, "kind", None) if is_class else None
    if kind not in names.values():
        raise ValueError(f"of is {of!r}: expected list, dict, set or the name of a kind, one of {sorted(names)}")
    return str(kind)


def _spelled(kind: str) -> str:
    """Return a kind as the names of methods spell it: ``linked_list``."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", kind).lower()


def _same(found: P, what: str, present: Any, wanted: Any) -> P:
    if present != wanted:
        raise WrongKindError(
            f"{found._describe()} exists with {what} {shown(present)}, but {shown(wanted)} was asked for"
        )
    return found
