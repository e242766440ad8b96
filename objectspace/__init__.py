"""Durable collections whose checkpoints cost what changed.

>>> from checkpoint import CheckpointStore
>>> from objectspace import PersistedObjectSpace
>>> space = PersistedObjectSpace(CheckpointStore(":memory:"))
>>> events = space.create_list("events")
>>> events.extend(["start", "stop"])
>>> space.checkpoint().slots
2
>>> events.append("start")
>>> space.checkpoint().slots
1
"""

from checkpoint import CheckpointKind, CheckpointStore, Receipt
from objectspace.codec import register_dataclass
from objectspace.errors import (
    CheckpointProtocolError,
    DamagedObjectError,
    EmptyError,
    NameInUseError,
    ObjectNotFoundError,
    ObjectSpaceError,
    UnencodableValueError,
    WrongKindError,
)
from objectspace.objects import (
    Array,
    Dictionary,
    LinkedList,
    List,
    Node,
    ObjectDictionary,
    PersistedObject,
    Queue,
    Set,
    SortedDictionary,
    SortedSet,
    SparseArray,
    Stack,
    Tensor,
    Value,
)
from objectspace.part import SpacePart
from objectspace.persisted import PersistedObjectSpace
from objectspace.space import ObjectSpace
from objectspace.volatile import VolatileObjectSpace

__all__ = [
    "Array",
    "CheckpointKind",
    "CheckpointProtocolError",
    "CheckpointStore",
    "DamagedObjectError",
    "Dictionary",
    "EmptyError",
    "LinkedList",
    "List",
    "NameInUseError",
    "Node",
    "ObjectDictionary",
    "ObjectNotFoundError",
    "ObjectSpace",
    "ObjectSpaceError",
    "PersistedObject",
    "PersistedObjectSpace",
    "Queue",
    "Receipt",
    "Set",
    "SortedDictionary",
    "SortedSet",
    "SpacePart",
    "SparseArray",
    "Stack",
    "Tensor",
    "UnencodableValueError",
    "Value",
    "VolatileObjectSpace",
    "WrongKindError",
    "register_dataclass",
]
