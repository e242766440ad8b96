"""The persisted objects, a module each, and what they are made of.

Every object is a handle (``base``) whose class changes with its state (``variants``); ``torn`` marks what must not be
cut in two. The kinds with keys (``keyed``) keep their slots in a slot table (``table``): ``saving`` makes the rows
of a save, ``scans`` goes through what is stored, ``columns`` handles many keys and values together, and ``gaps`` and
``ends`` remember where nothing is, or the last keys are. A list keeps order labels (``labels``) in a ``sequence``.
Queues and stacks move elements between memory and the store (``moves``, ``placing``). ``limits`` has all the sizes at
which this changes.
"""

from __future__ import annotations

from typing import Any

from objectspace.objects.array import Array
from objectspace.objects.base import PersistedObject
from objectspace.objects.dictionary import Dictionary
from objectspace.objects.linked_list import LinkedList, Node
from objectspace.objects.list import List
from objectspace.objects.object_dictionary import ObjectDictionary
from objectspace.objects.queue import Queue
from objectspace.objects.raw_dictionary import RawSortedDictionary
from objectspace.objects.set import Set
from objectspace.objects.sorted_dictionary import SortedDictionary
from objectspace.objects.sorted_set import SortedSet, SortedSetView
from objectspace.objects.sparse_array import SparseArray
from objectspace.objects.stack import Stack
from objectspace.objects.tensor import Tensor
from objectspace.objects.value import Value

KINDS: dict[str, type[PersistedObject]] = {
    cls.kind: cls
    for cls in (
        Value, Array, List, Queue, Stack, LinkedList, Set, SortedSet, Dictionary, SortedDictionary, SparseArray, Tensor,
    )
}  # fmt: skip
"""The class of each kind, by its name in the index."""


def class_of(kind: str, options: dict[str, Any]) -> type[PersistedObject]:
    """Return the class for a kind with the options of its index row."""
    if "raw" in options:
        return RawSortedDictionary
    return ObjectDictionary if "of" in options else KINDS[kind]


__all__ = [
    "KINDS",
    "Array",
    "Dictionary",
    "LinkedList",
    "List",
    "Node",
    "ObjectDictionary",
    "PersistedObject",
    "Queue",
    "RawSortedDictionary",
    "Set",
    "SortedDictionary",
    "SortedSet",
    "SortedSetView",
    "SparseArray",
    "Stack",
    "Tensor",
    "Value",
    "class_of",
]
