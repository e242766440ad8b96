"""The checkpoint store: every checkpoint is a run of rows in one SQLite file, and any of them can be read.

A space saves its dirty rows as a ``run``, and ``store`` appends it through the one connection of ``session``. ``tiers``
decides which runs to merge, and ``upkeep`` and ``merging`` do some of that alongside each checkpoint. ``reader`` is the
state as of one checkpoint: ``lookup`` finds single slots in it, and ``scan`` goes through many.

>>> from checkpoint import CheckpointKind, CheckpointStore, Run
>>> store = CheckpointStore(":memory:")
>>> receipt = store.append(Run(CheckpointKind.DIFFERENTIAL, [(1, "n", "Value", "{}")], [], [(1, "value", "42", None)]))
>>> receipt.number, receipt.slots
(1, 1)
>>> store.reader().item(1, "value").value
'42'
"""

from checkpoint.diff import Change, IndexEntry, Table, invert
from checkpoint.errors import (
    CheckpointError,
    CorruptStoreError,
    EpochTypeError,
    FencedError,
    InheritedStoreError,
    RunRefusedError,
    StoreFailedError,
    StoreLockedError,
    UnknownCheckpointError,
)
from checkpoint.reader import Reader, StoredItem
from checkpoint.record import CheckpointRecord
from checkpoint.repair import Repair
from checkpoint.run import CheckpointKind, Run
from checkpoint.settings import Retention
from checkpoint.store import CheckpointStore
from checkpoint.writer import CheckpointWriter, ObjectReceipt, Receipt, RunWriter, Writer, WriterState

__all__ = [
    "Change",
    "CheckpointError",
    "CheckpointKind",
    "CheckpointRecord",
    "CheckpointStore",
    "CheckpointWriter",
    "CorruptStoreError",
    "EpochTypeError",
    "FencedError",
    "IndexEntry",
    "InheritedStoreError",
    "ObjectReceipt",
    "Reader",
    "Receipt",
    "Repair",
    "Retention",
    "Run",
    "RunRefusedError",
    "RunWriter",
    "StoreFailedError",
    "StoreLockedError",
    "StoredItem",
    "Table",
    "UnknownCheckpointError",
    "Writer",
    "WriterState",
    "invert",
]
