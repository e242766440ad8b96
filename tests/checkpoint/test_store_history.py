"""Spaces over their history: views, rollbacks, forks, differences and retention, in any order, against plain copies."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from checkpoint import CheckpointError, UnknownCheckpointError, invert
from objectspace import PersistedObjectSpace
from tests.checkpoint.store_helpers import FULL, quick_store, run_of
from tests.checkpoint.world import store_of

Plain = dict[str, Any]


def plain(space: PersistedObjectSpace) -> Plain:
    """Return everything in a space as plain containers."""
    return {
        "log": list(space.get_list("log")),
        "counts": dict(space.get_dictionary("counts")),
        "groups": {key: list(group) for key, group in space.get_dictionary("groups").items()},
        "scratch": space.get_value("scratch").value if "scratch" in space else None,
    }


def edit(space: PersistedObjectSpace, rng: random.Random) -> None:
    log, counts, groups = space.get_list("log"), space.get_dictionary("counts"), space.get_dictionary("groups")
    log.insert(rng.randint(0, len(log)), rng.random())
    if rng.random() < 0.3:
        del log[rng.randrange(len(log))]
    counts[rng.randrange(9)] = rng.random()
    counts.pop(rng.randrange(9), None)
    groups.setdefault(rng.choice("abc")).append(rng.random())
    if rng.random() < 0.2:
        groups.pop(rng.choice("abc"), None)
    if rng.random() < 0.3 and "scratch" in space:
        space.delete("scratch")
    elif "scratch" not in space:
        space.create_value("scratch", rng.random())


class History:
    """A space on a file, and what it was at each epoch."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.rng = folder, random.Random(seed)
        self.store = quick_store(folder / "state.db", history=6)
        self.space = PersistedObjectSpace(self.store)
        self.space.create_list("log")
        self.space.create_dictionary("counts")
        self.space.create_dictionary("groups", of=list)
        self.states: dict[int, Plain] = {}
        self.views: dict[int, PersistedObjectSpace] = {}

    def epochs(self) -> list[int]:
        return [record.epoch for record in self.store.checkpoints() if record.run_slots is not None]

    def advance(self) -> None:
        edit(self.space, self.rng)
        kind = FULL if self.rng.random() < 0.1 else "differential"
        self.states[self.space.checkpoint(kind=kind).epoch] = plain(self.space)

    def view(self) -> None:
        epoch = self.rng.choice(self.epochs())
        self.views[epoch] = self.space.at(epoch)

    def roll_back(self) -> None:
        edit(self.space, self.rng)
        epoch = self.rng.choice(self.epochs()[-4:])
        self.space.rollback(epoch)
        assert plain(self.space) == self.states[epoch]
        for later in [known for known in self.views if known > epoch]:
            with pytest.raises(UnknownCheckpointError):
                self.views.pop(later).reader().index()
        self.states = {known: state for known, state in self.states.items() if known <= epoch}

    def fork(self) -> None:
        epoch, path = self.rng.choice(self.epochs()), self.folder / f"{self.rng.random()}.db"
        self.store.fork(path, epoch=epoch)
        with PersistedObjectSpace.open(path, durability="normal") as fork:
            assert plain(fork) == self.states[epoch]
            edit(fork, self.rng)
            fork.checkpoint()
            assert fork.store.verify() > 0

    def undo(self) -> None:
        epoch = self.rng.choice(self.epochs())
        receipt = self.store.apply_changes(invert(list(self.store.diff(a_epoch=epoch))))
        self.space.rollback()
        self.states[receipt.epoch] = plain(self.space)
        assert plain(self.space) == self.states[epoch]

    def retain(self) -> None:
        self.rng.choice([self.store.compact, self.store.prune, lambda: self.store.prune(keep=3)])()

    def check(self) -> None:
        newest = max(self.states)
        assert plain(self.space) == self.states[newest]
        assert [plain(view) for view in self.views.values()] == [self.states[epoch] for epoch in self.views]
        assert set(self.views) | {newest} <= set(self.epochs())


@pytest.mark.parametrize("seed", range(4))
def test_a_space_and_its_views_hold_together_over_any_history(tmp_path: Path, seed: int) -> None:
    history = History(tmp_path, seed)
    history.advance()
    steps = [history.advance, history.view, history.roll_back, history.fork, history.undo, history.retain]
    for _ in range(120):
        history.rng.choices(steps, [12, 4, 2, 1, 2, 2])[0]()
        if len(history.views) > 3:
            del history.views[min(history.views)]
        history.check()
    history.space._check()
    assert history.store.verify() == len(history.epochs())
    history.store.close()


def test_a_view_changes_nothing_and_outlives_the_checkpoints_around_it(tmp_path: Path) -> None:
    history = History(tmp_path, 1)
    for _ in range(5):
        history.advance()
    view = history.space.at(3)
    with pytest.raises(CheckpointError, match="read-only"):
        view.get_list("log").append(1)
    with pytest.raises(CheckpointError, match="read-only"):
        view.checkpoint()
    history.store.prune(keep=1)
    assert plain(view) == history.states[3]
    with pytest.raises(UnknownCheckpointError, match=r"no longer has rows .*epoch 4\)|no epoch 4"):
        history.space.rollback(4)
    assert plain(history.space) == history.states[5]
    history.space.rollback(3)
    assert plain(history.space) == plain(view) == history.states[3]
    history.store.close()


@pytest.mark.parametrize("noted", ["5", "null", "true", '{"a": 1}', "{", "[[]]"])
def test_what_is_noted_of_rollbacks_keeps_nobody_from_rolling_back(noted: str) -> None:
    with store_of([run_of({1: "a"}), run_of({1: "b"})], 4) as store:
        store.database.conn.execute("INSERT OR REPLACE INTO setting VALUES ('rollbacks', ?)", (noted,))
        store.truncate_after(1)
        assert store.next_number() == 2
        (text,) = store.database.conn.execute("SELECT value FROM setting WHERE key = 'rollbacks'").fetchone()
        assert [entry["to"] for entry in json.loads(text)[-1:]] == [1]
