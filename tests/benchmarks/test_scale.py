"""The model of a large job is arithmetic over measured costs."""

from __future__ import annotations

import math
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from benchmarks.scale import MEANINGS, Assumptions, Costs, Model, measure

COSTS = Costs(save_seconds=4e-6, run_bytes=20.0, image_bytes=10.0, catch_up_seconds=2e-6, manifest_bytes=400.0)
JOB = Assumptions()


def test_the_rates_follow_from_the_costs() -> None:
    model = Model(COSTS, JOB)
    assert (model.shard_slots, model.dirty) == (1_000_000, 1_000)
    assert math.isclose(model.differential_rate, 1_000_000 * 20 / 60)
    # Ten megabytes of image are outweighed by 500 runs of twenty kilobytes.
    assert model.epochs_between_images == 500
    assert math.isclose(model.image_rate, model.differential_rate)
    assert math.isclose(model.snapshot_rate, 1_000_000_000 * 10 / 60)
    assert (model.requests, model.manifest) == (1_001, 400_000)


def test_images_are_neither_more_frequent_nor_rarer_than_the_rule_of_the_chain() -> None:
    assert Model(COSTS, replace(JOB, dirty_share=0.5)).epochs_between_images == 65
    assert Model(COSTS, replace(JOB, dirty_share=1e-6)).epochs_between_images == 1_024


def test_saving_and_catching_up_cost_what_their_parts_cost() -> None:
    model = Model(COSTS, JOB)
    assert math.isclose(model.save_seconds, 10_000 * 4e-6 / 4 + 3 * 0.05 + 10_000 * 20 / 100e6)
    # One executor of a hundred is lost: ten shards, of which each of the others takes one.
    computing = (1_000_000 + 500_000) * 2e-6 + 500 * 0.05
    assert math.isclose(model.catch_up_seconds, computing + 20_000_000 / 100e6)


def test_more_cores_and_fewer_losses_never_cost_more() -> None:
    several = Model(COSTS, replace(JOB, executors=10))
    assert Model(COSTS, replace(JOB, executors=10, cores=8)).catch_up_seconds < several.catch_up_seconds
    assert Model(COSTS, replace(JOB, executors=10, lost_share=0.5)).catch_up_seconds > several.catch_up_seconds


def test_every_assumption_is_printed_with_its_meaning() -> None:
    text = Model(COSTS, JOB).describe()
    assert MEANINGS.keys() == asdict(JOB).keys()
    for name, value in asdict(JOB).items():
        assert f"| {name} | {value:,} | {MEANINGS[name]} |" in text


def test_the_costs_are_measured_on_a_shard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = measure(slots=2_000, dirty=200, repetitions=2)
    assert all(value > 0 for value in asdict(found).values())
    assert 100 < found.manifest_bytes < 1_000
    assert list(tmp_path.iterdir()) == []
