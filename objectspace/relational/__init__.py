"""Relational state tables on persisted objects: what streaming operators keep their state in.

>>> from checkpoint import CheckpointStore
>>> from objectspace import PersistedObjectSpace
>>> from objectspace.relational import Column, StateTable, StorageTable, TableSchema
>>> store = CheckpointStore(":memory:")
>>> space = PersistedObjectSpace(store)
>>> schema = TableSchema([Column("a", "int64"), Column("b", "string", nullable=True)], primary_key=["a desc"])
>>> table = StateTable(space, "orders", schema, consistency="strict")
>>> table.insert_row((1, "x")); table.insert_row((2, None))
>>> list(table.scan())
[(2, None), (1, 'x')]
>>> table.commit(epoch=1); _ = space.checkpoint(epoch=1)
>>> StorageTable(store, "orders", columns=["b"]).get_row((1,))
('x',)
"""

from objectspace.relational.catalogue import TableRecord, drop_table, rename_table, tables
from objectspace.relational.chunk import Chunk, compacted
from objectspace.relational.errors import (
    EpochError,
    InconsistentOperationError,
    RelationalError,
    RowError,
    SchemaError,
    SchemaMismatchError,
    VnodeNotOwnedError,
)
from objectspace.relational.keys import Order, next_key
from objectspace.relational.layouts import (
    AggregateCall,
    TableLayout,
    aggregation_tables,
    deduplication_tables,
    join_tables,
    top_n_tables,
)
from objectspace.relational.memtable import Kind, MemTable, Operation
from objectspace.relational.plan import PlannedTable, PlanNode, plan_tables
from objectspace.relational.registry import seal_tables
from objectspace.relational.schema import Column, TableSchema
from objectspace.relational.state_table import StateTable
from objectspace.relational.storage_table import StorageTable
from objectspace.relational.types import DataType
from objectspace.relational.vnodes import VnodeBitmap, assign_vnodes, cache_is_stale
from objectspace.relational.watermarks import WatermarkIndex

__all__ = [
    "AggregateCall",
    "Chunk",
    "Column",
    "DataType",
    "EpochError",
    "InconsistentOperationError",
    "Kind",
    "MemTable",
    "Operation",
    "Order",
    "PlanNode",
    "PlannedTable",
    "RelationalError",
    "RowError",
    "SchemaError",
    "SchemaMismatchError",
    "StateTable",
    "StorageTable",
    "TableLayout",
    "TableRecord",
    "TableSchema",
    "VnodeBitmap",
    "VnodeNotOwnedError",
    "WatermarkIndex",
    "aggregation_tables",
    "assign_vnodes",
    "cache_is_stale",
    "compacted",
    "deduplication_tables",
    "drop_table",
    "join_tables",
    "next_key",
    "plan_tables",
    "rename_table",
    "seal_tables",
    "tables",
    "top_n_tables",
]
