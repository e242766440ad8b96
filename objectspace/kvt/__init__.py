"""Key-value tables after Pravega's PDP-39, on persisted objects: keys in families, versions, conditional batches.

>>> from objectspace import VolatileObjectSpace
>>> from objectspace.kvt import KeyValueTableConfiguration, KeyValueTableManager, KeyVersion
>>> manager = KeyValueTableManager(VolatileObjectSpace())
>>> manager.create_scope("shop"), manager.create_key_value_table("shop", "stock", KeyValueTableConfiguration(4))
(True, True)
>>> stock = manager.open_key_value_table("shop", "stock")
>>> version = stock.put(b"apples", b"17", key_family="fruit")
>>> stock.get(b"apples", key_family="fruit").value
b'17'
"""

from objectspace.kvt.addressing import (
    family_prefix,
    partition_of,
    partition_sql,
    route_bytes,
    split_table_key,
    table_key,
)
from objectspace.kvt.asynchronous import AsyncKeyValueTable, AsyncPageIterator
from objectspace.kvt.entries import (
    Insert,
    KeyValueTableConfiguration,
    Put,
    Remove,
    TableEntry,
    TableKey,
)
from objectspace.kvt.errors import (
    BadKeyVersionError,
    ConditionalTableUpdateError,
    FamilyRequiredError,
    KeyValueTableError,
    NoSuchKeyError,
    NoSuchScopeError,
    NoSuchTableError,
    ScopeNotEmptyError,
    SerializationError,
    TableClosedError,
    TableSealedError,
)
from objectspace.kvt.family import FamilyView
from objectspace.kvt.iteration import IteratorState, Page, PageIterator
from objectspace.kvt.manager import KeyValueTableManager
from objectspace.kvt.partition import stored_entries
from objectspace.kvt.serializers import BYTES, JSON, UTF8, Serializer
from objectspace.kvt.table import KeyValueTable
from objectspace.kvt.versions import KeyVersion, clock_floor

__all__ = [
    "BYTES",
    "JSON",
    "UTF8",
    "AsyncKeyValueTable",
    "AsyncPageIterator",
    "BadKeyVersionError",
    "ConditionalTableUpdateError",
    "FamilyRequiredError",
    "FamilyView",
    "Insert",
    "IteratorState",
    "KeyValueTable",
    "KeyValueTableConfiguration",
    "KeyValueTableError",
    "KeyValueTableManager",
    "KeyVersion",
    "NoSuchKeyError",
    "NoSuchScopeError",
    "NoSuchTableError",
    "Page",
    "PageIterator",
    "Put",
    "Remove",
    "ScopeNotEmptyError",
    "SerializationError",
    "Serializer",
    "TableClosedError",
    "TableEntry",
    "TableKey",
    "TableSealedError",
    "clock_floor",
    "family_prefix",
    "partition_of",
    "partition_sql",
    "route_bytes",
    "split_table_key",
    "stored_entries",
    "table_key",
]
