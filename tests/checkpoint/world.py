"""Histories as a space would write them: named objects that come, change and go, one of them owning others."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from checkpoint import CheckpointStore, Run
from checkpoint.run import ItemRow, MetadataRow
from tests.checkpoint.store_helpers import DIFFERENTIAL, FULL, quick_store

LARGE = f'"{"x" * 600}"'
"""A value that lies beside its row."""

OWNER, NAMES, KEYS = "owner", ["x", "y"], ["a", "b", "c"]


@dataclass
class World:
    """Makes runs; an id is never used again, and nothing is written to an object that is gone."""

    rng: random.Random
    ids: dict[str, int] = field(default_factory=dict)
    owned: dict[str, int] = field(default_factory=dict)
    next_id: int = 1
    index: dict[int, Any] = field(default_factory=dict)
    metadata: dict[Any, MetadataRow] = field(default_factory=dict)
    items: dict[Any, ItemRow] = field(default_factory=dict)

    def run(self) -> Run:
        """Return the run of a few random steps."""
        self.index, self.metadata, self.items = {}, {}, {}
        for _ in range(self.rng.randint(0, 5)):
            self.rng.choice([self._toggle, self._toggle_owned, self._edit, self._edit])()
        rows = list(self.index.values()), list(self.metadata.values()), list(self.items.values())
        return Run(FULL if self.rng.random() < 0.05 else DIFFERENTIAL, *rows)

    def _toggle(self) -> None:
        name = self.rng.choice([OWNER, *NAMES])
        if name in self.ids:
            gone = self.ids.pop(name)
            self.index[gone] = (gone, name, None, None)
            self.owned = {} if name == OWNER else self.owned
            return
        self.ids[name] = self._new_id()
        codec = '{"of":"Sample"}' if name == OWNER else "{}"
        self.index[self.ids[name]] = (self.ids[name], name, "Samples" if name == OWNER else "Sample", codec)

    def _toggle_owned(self) -> None:
        if OWNER not in self.ids:
            return
        key = self.rng.choice(KEYS)
        if self.rng.random() < 0.5:
            self.owned[key] = self._new_id()
            self._put(self.ids[OWNER], key, f'{{"$object":{self.owned[key]}}}')
        else:
            self.owned.pop(key, None)
            self._put(self.ids[OWNER], key, None)

    def _edit(self) -> None:
        targets = [*self.owned.values(), *(self.ids[name] for name in NAMES if name in self.ids)]
        if not targets:
            return
        target = self.rng.choice(targets)
        slot = self.rng.choice([0, 1, 2.5, "t", b"b"])
        self._put(target, slot, self.rng.choice([None, "1", "2", b"3", LARGE, LARGE.encode()]))
        if self.rng.random() < 0.5:
            self.metadata[target, "length"] = (target, "length", self.rng.choice([None, "4", "5"]))

    def _put(self, target: int, slot: Any, value: Any) -> None:
        self.items[target, slot] = (target, slot, value, self.rng.choice([None, 6, 7]) if value else None)

    def _new_id(self) -> int:
        self.next_id += 1
        return self.next_id - 1


def store_of(runs: list[Run], history: int) -> CheckpointStore:
    """Return a store in memory that has made these checkpoints."""
    store = quick_store(":memory:", history=history)
    for run in runs:
        store.append(Run(run.kind, list(run.index), list(run.metadata), list(run.items)))
    return store
