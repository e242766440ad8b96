"""The persisted linked list: nodes in an order that their slots tell, so no neighbour is written."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, pairwise
from typing import Any, Generic, NoReturn, TypeVar

from objectspace.errors import EmptyError, ObjectNotFoundError, shown
from objectspace.objects.base import alike
from objectspace.objects.keyed import KeyedObject
from objectspace.objects.labels import Label, between, spread
from objectspace.objects.torn import WITHIN, undivided, undivided_read
from objectspace.objects.variants import is_dead

T = TypeVar("T")


class Node(Generic[T]):
    """A node of a linked list. A removed node keeps its value, which may be set, and can be put back.

    A rollback releases all nodes, and the list has others for what is stored. The nodes from before keep the values
    that they had, and can be put into a list as new ones; until then their values cannot be set. The nodes of a list
    that was deleted, or whose space is closed, refuse all work as the list does.
    """

    __slots__ = ("_cut_from", "_label", "_list", "_next", "_previous", "_value")

    def __init__(self, value: T) -> None:
        self._list: LinkedList[T] | None = None
        self._cut_from: LinkedList[T] | None = None
        self._label: Label = 0
        self._previous: Node[T] | None = None
        self._next: Node[T] | None = None
        self._value = value

    @property
    def value(self) -> T:
        """The value. Setting it dirties one item, and is refused after a rollback. Time: O(1)."""
        return self._value if self._list is None else self._list._value_at(self)

    @value.setter
    def value(self, value: T) -> None:
        if self._list is not None:
            self._list._set_value(self, value)
        elif self._cut_from is not None:
            raise ObjectNotFoundError(
                f"{self!r} is no longer in {self._cut_from._describe()}, which a rollback reloaded, and nothing was"
                " set: take the node from the list again, with first, last, find() or nodes()"
            )
        self._value = value

    @property
    def next(self) -> Node[T] | None:
        """The next node, or ``None`` at the end or if the node is in no list."""
        if type(self._list) is not LinkedList:
            self._refuse_dead()
        return self._next

    @property
    def previous(self) -> Node[T] | None:
        """The previous node, or ``None`` at the beginning or if the node is in no list."""
        if type(self._list) is not LinkedList:
            self._refuse_dead()
        return self._previous

    @property
    def list(self) -> LinkedList[T] | None:
        """The list that the node is in, or ``None`` if it is in none."""
        if type(self._list) is not LinkedList:
            self._refuse_dead()
        return self._list

    def _refuse_dead(self) -> None:
        """Refuse if the list does: it was deleted, or its space is closed."""
        if self._list is not None:
            self._list._wake_or_refuse()

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError(f"{self!r} is not copied or pickled, since its place is taken once: pass its value")

    def __repr__(self) -> str:
        return f"<Node of {self._list!r}>" if is_dead(self._list) else f"Node({self.value!r})"


class LinkedList(KeyedObject, Generic[T]):
    """A linked list; one slot per node, whose number tells its place among the others.

    The reference of this kind stores the neighbours of each node, and writes them when they change. Here, an insertion
    writes one row wherever it is, a removal deletes one, and a stored list cannot have a cycle. A linked list is read
    whole when it is first touched.

    ==================================== =====================================
    method                               dirties
    ==================================== =====================================
    ``add_...``                          1 item and the length
    ``remove...``                        1 item and the length
    ``node.value = v``                   1 item
    ``move_before``, ``move_after``      2 items
    ``clear``                            the length, and the items up to 32, else 2 index rows
    ==================================== =====================================

    >>> from objectspace import VolatileObjectSpace
    >>> l = VolatileObjectSpace().create_linked_list("l")
    >>> node = l.add_last("b")
    >>> _ = l.add_before(node, "a")
    >>> list(l), l.first.next.value
    (['a', 'b'], 'b')
    """

    kind = "LinkedList"
    __hash__ = None  # type: ignore[assignment]

    def _configure(self, options: dict[str, Any]) -> None:
        self._first: Node[T] | None = None
        self._last: Node[T] | None = None

    @property
    def first(self) -> Node[T] | None:
        """The first node, or ``None`` if the list is empty."""
        return self._first

    @property
    def last(self) -> Node[T] | None:
        """The last node, or ``None`` if the list is empty."""
        return self._last

    def add_first(self, value: T | Node[T]) -> Node[T]:
        """Put a value, or a node that is in no list, at the beginning; return its node.

        Raises:
            ValueError: the node is in a list.

        Time: O(1). Dirties: one item and the length.
        """
        return self._link(self._new(value), None, self._first)

    def add_last(self, value: T | Node[T]) -> Node[T]:
        """Put a value, or a node that is in no list, at the end; return its node.

        Raises:
            ValueError: the node is in a list.

        Time: O(1). Dirties: one item and the length.
        """
        return self._link(self._new(value), self._last, None)

    append = add_last

    def add_before(self, node: Node[T], value: T | Node[T]) -> Node[T]:
        """Put a value, or a node that is in no list, before a node of this list; return its node.

        Raises:
            TypeError: ``node`` is not a node.
            ValueError: ``node`` is not in this list, or the new one is in a list.

        Time: O(1). Dirties: one item and the length.
        """
        self._own(node)
        return self._link(self._new(value), node._previous, node)

    def add_after(self, node: Node[T], value: T | Node[T]) -> Node[T]:
        """Put a value, or a node that is in no list, after a node of this list; return its node.

        Raises:
            TypeError: ``node`` is not a node.
            ValueError: ``node`` is not in this list, or the new one is in a list.

        Time: O(1). Dirties: one item and the length.
        """
        self._own(node)
        return self._link(self._new(value), node, node._next)

    @undivided
    def move_before(self, node: Node[T], target: Node[T]) -> None:
        """Move a node of this list before another one.

        Raises:
            TypeError: one of them is not a node.
            ValueError: one of the nodes is not in this list.

        Time: O(1). Dirties: two items.
        """
        self._own(node)
        self._own(target)
        if node is not target and node._next is not target:
            with self._in_one_piece():
                self._unlink(node)
                self._link(node, target._previous, target)

    @undivided
    def move_after(self, node: Node[T], target: Node[T]) -> None:
        """Move a node of this list after another one.

        Raises:
            TypeError: one of them is not a node.
            ValueError: one of the nodes is not in this list.

        Time: O(1). Dirties: two items.
        """
        self._own(node)
        self._own(target)
        if node is not target and node._previous is not target:
            with self._in_one_piece():
                self._unlink(node)
                self._link(node, target, target._next)

    def remove(self, value: T) -> None:
        """Remove the first node with this value.

        Raises:
            ValueError: there is none.

        Time: O(n). Dirties: one item and the length.
        """
        node = self.find(value)
        if node is None:
            raise ValueError(f"{self._describe()} has no value {shown(value)}")
        self._unlink(node)

    def remove_node(self, node: Node[T]) -> None:
        """Remove a node; it keeps its value and can be put back.

        Raises:
            TypeError: it is not a node.
            ValueError: it is not in this list.

        Time: O(1). Dirties: one item and the length.
        """
        self._own(node)
        self._unlink(node)

    def remove_first(self) -> T:
        """Remove the first node and return its value.

        Raises:
            EmptyError: the list is empty.

        Time: O(1). Dirties: one item and the length.
        """
        return self._pop(self._first)

    def remove_last(self) -> T:
        """Remove the last node and return its value.

        Raises:
            EmptyError: the list is empty.

        Time: O(1). Dirties: one item and the length.
        """
        return self._pop(self._last)

    def find(self, value: T) -> Node[T] | None:
        """Return the first node with this value, or ``None`` if there is none. Time: O(n)."""
        return next((node for node in self.nodes() if alike(node.value, value)), None)

    def find_last(self, value: T) -> Node[T] | None:
        """Return the last node with this value, or ``None`` if there is none. Time: O(n)."""
        node = self._last
        while node is not None and not alike(node.value, value):
            node = node._previous
        return node

    @undivided
    def clear(self) -> None:
        """Remove every node.

        Time: O(n) in memory. Dirties: one item per node up to 32, two index rows beyond that; the length.
        """
        nodes = list(self.nodes())
        values = [node.value for node in nodes]
        with self._in_one_piece():
            self._table.clear()
            for node, value in zip(nodes, values, strict=True):
                self._detach(node, value)
            self._first = self._last = None

    def nodes(self) -> Iterator[Node[T]]:
        """Yield the nodes from the first to the last.

        Raises:
            RuntimeError: the next one was removed meanwhile, or a rollback has replaced all of them.
        """
        node = self._first
        while node is not None:
            following = node._next
            yield node
            node = self._still_here(following)

    def __iter__(self) -> Iterator[T]:
        """Yield the values from the first to the last."""
        self._wake()  # A rollback may have come since the iterator was made.
        for node in self.nodes():
            yield node.value

    def __reversed__(self) -> Iterator[T]:
        self._wake()  # A rollback may have come since the iterator was made.
        node = self._last
        while node is not None:
            previous = node._previous
            yield node.value
            node = self._still_here(previous)

    def __len__(self) -> int:
        return len(self._table)

    def __contains__(self, value: object) -> bool:
        return any(alike(element, value) for element in self)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, LinkedList | list | tuple):
            return len(self) == len(other) and all(map(alike, self, other))
        return NotImplemented

    def copy(self) -> list[T]:
        """Return a plain ``list`` of the values."""
        return list(self)

    def __repr__(self) -> str:
        return f"LinkedList({self._name!r}, {list(self)!r})"

    @undivided_read
    def _value_at(self, node: Node[T]) -> T:
        self._wake_or_refuse()
        try:
            return self._table.live[node._label]  # type: ignore[no-any-return]
        except KeyError:  # An interruption has come between the value and its node.
            self._refuse_cut()

    @undivided
    def _set_value(self, node: Node[T], value: T) -> None:
        self._wake_or_refuse()
        self._table.write(node._label, value)

    def _wake_or_refuse(self) -> None:
        """Make a handle that has gone cold read itself, and a dead one refuse: a node may outlive both."""
        if type(self) is not LinkedList:
            len(self)

    def _new(self, value: T | Node[T]) -> Node[T]:
        if not isinstance(value, Node):
            return Node(value)
        value._refuse_dead()
        if value._list is not None:
            raise ValueError(f"{value!r} is already in {value._list._describe()}: remove it there first")
        return value

    def _own(self, node: Any) -> None:
        if not isinstance(node, Node):
            raise TypeError(f"{self._describe()}: expected a node, found {type(node).__name__}")
        if node._list is not self:
            raise ValueError(f"{node!r} is not in {self._describe()}")

    def _pop(self, node: Node[T] | None) -> T:
        if node is None:
            raise EmptyError(f"{self._describe()} is empty: there is nothing to remove")
        value = node.value
        self._unlink(node)
        return value

    @undivided
    def _link(self, node: Node[T], previous: Node[T] | None, following: Node[T] | None) -> Node[T]:
        """Put a node that is in no list between two neighbours."""
        label = _label_between(previous, following)
        self._home.touch(self)
        was_torn, self._torn = self._torn, WITHIN
        if label is None:
            self._relabel(previous, following)
            label = _label_between(previous, following)
        assert label is not None
        self._table.write(label, node._value)
        node._label, node._list, node._previous, node._next = label, self, previous, following
        node._cut_from = None
        if previous is None:
            self._first = node
        else:
            previous._next = node
        if following is None:
            self._last = node
        else:
            following._previous = node
        self._torn = was_torn
        return node

    @undivided
    def _unlink(self, node: Node[T]) -> None:
        self._home.touch(self)
        was_torn, self._torn = self._torn, WITHIN
        value = self._table.delete(node._label)
        if node._previous is None:
            self._first = node._next
        else:
            node._previous._next = node._next
        if node._next is None:
            self._last = node._previous
        else:
            node._next._previous = node._previous
        self._detach(node, value)
        self._torn = was_torn

    def _still_here(self, node: Node[T] | None) -> Node[T] | None:
        if node is not None and node._list is not self:
            raise RuntimeError(f"{self._describe()} changed during iteration: iterate over a list of its nodes")
        return node

    def _detach(self, node: Node[T], value: T) -> None:
        node._list = node._previous = node._next = None
        node._value = value

    def _relabel(self, previous: Node[T] | None, following: Node[T] | None) -> None:
        """Give the nodes around a gap that is used up new labels."""
        before, after = _chain(previous, "_previous"), _chain(following, "_next")
        left, right, new = spread((node._label for node in before), (node._label for node in after))
        nodes = [*islice(_chain(previous, "_previous"), left)][::-1]
        nodes += islice(_chain(following, "_next"), right)
        values = [self._table.delete(node._label) for node in nodes]
        for node, label, value in zip(nodes, new, values, strict=True):
            node._label = label
            self._table.write(label, value)

    def _warm(self) -> type:
        """Read all nodes."""
        self._table.begin_cold(*self._extent())
        self._table.load_all()
        self._first = self._last = None
        for label in self._table.live:
            node: Node[T] = Node(None)  # type: ignore[arg-type]
            node._label, node._list, node._previous = label, self, self._last
            if self._last is None:
                self._first = node
            else:
                self._last._next = node
            self._last = node
        return LinkedList

    def _go_cold(self) -> None:
        """Release the nodes: each keeps its value, and is in no list, though nobody has removed it."""
        live = self._table.live
        for node in LinkedList.nodes(self):
            self._detach(node, live.get(node._label, node._value))
            node._cut_from = self
        self._first = self._last = None
        super()._go_cold()

    def _shrink(self, *, gently: bool) -> None:
        """Keep everything: callers may hold nodes."""

    def _check(self) -> None:
        super()._check()
        if type(self) is not LinkedList:
            return
        labels = [node._label for node in self.nodes()]
        assert all(left < right for left, right in pairwise(labels)), labels
        assert len(labels) == len(self._table), (len(labels), len(self._table))
        assert set(labels) == self._table.live.keys(), "nodes and slots differ"
        assert all(node._list is self for node in self.nodes())
        backwards = list(reversed(self))
        assert all(left is right for left, right in zip(self, reversed(backwards), strict=True)), "the links differ"


def _chain(node: Node[T] | None, link: str) -> Iterator[Node[T]]:
    """Yield a node and those that follow it by a link."""
    while node is not None:
        yield node
        node = getattr(node, link)


def _label_of(node: Node[Any] | None) -> Label | None:
    return None if node is None else node._label


def _label_between(previous: Node[Any] | None, following: Node[Any] | None) -> Label | None:
    return between(_label_of(previous), _label_of(following))
