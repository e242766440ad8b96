"""Clusters whose executors, tasks and drivers are killed or slow; only with ``--crash`` (``make crash-spark``)."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from objectspace.spark import Operator, Pipeline
from tests.spark.clusters import answer, command, consumed, driver, kill_group, make_input, standalone
from tests.spark.failing_driver import FAULTY_EPOCH, SHARDS, STRAGGLE_SECONDS, build
from tests.spark.spark_helpers import TOTALS, kept, orphans
from tests.tally import TALLY

FILES_A_DRIVER = 24
PATIENCE = 240


def opened(folder: Path) -> Pipeline:
    pipeline = Pipeline(folder / "space", SHARDS, cache=folder / "cache of the test")
    pipeline.add(Operator("totals", ("key",), TOTALS))
    return pipeline


def finish(folder: Path, master: str, fault: str, **config: object) -> dict[int, float]:
    """Run a driver to its end, and return the seconds of each epoch."""
    with driver(command(folder, master, fault, **config)) as process:
        out, errors = process.communicate(timeout=PATIENCE)
    assert out.splitlines()[-1:] == ["finished"], f"{out}\n{errors}\n{log_of(folder)}"
    lines = [line.split() for line in out.splitlines() if line[0].isdigit()]
    return {int(epoch): float(seconds) for _, epoch, seconds in lines if epoch != "None"}


def log_of(folder: Path) -> str:
    log = folder / "spark.log"
    return log.read_text(errors="replace")[-4000:] if log.exists() else "no log"


def test_an_executor_killed_after_it_saved_on_a_local_cluster(tmp_path: Path) -> None:
    make_input(tmp_path, 5)
    finish(tmp_path, "local-cluster[2,1,1024]", "kill", **{"spark.executor.memory": "512m"})
    pipeline = opened(tmp_path)
    assert pipeline.chain.epoch == 5
    assert kept(pipeline) == answer(5)
    assert len(orphans(pipeline)) >= 1, "the killed attempt has left no file: it did not save before it was killed"
    TALLY["executors killed"] += 1


@pytest.mark.parametrize("fault", ["kill", "straggle"])
def test_two_workers_with_speculation(tmp_path: Path, fault: str) -> None:
    make_input(tmp_path, 5)
    speculation = {
        "spark.executor.memory": "512m",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.quantile": "0.5",
        "spark.speculation.multiplier": "1.5",
        "spark.speculation.minTaskRuntime": "500ms",
    }
    with standalone(tmp_path) as master:
        seconds = finish(tmp_path, master, fault, **speculation)
    pipeline = opened(tmp_path)
    assert pipeline.chain.epoch == 5
    assert kept(pipeline) == answer(5)
    assert len(orphans(pipeline)) >= 1, "the first attempt has left no file: it did not save"
    if fault == "straggle":
        assert seconds[FAULTY_EPOCH] < STRAGGLE_SECONDS, "the twin of the straggler did not win"
        TALLY["speculative twins that won"] += 1
    else:
        TALLY["executors killed"] += 1


@pytest.mark.parametrize(("pipeline", "kills"), [("none", 20), ("built", 10)])
def test_a_driver_killed_at_random_moments(tmp_path: Path, pipeline: str, kills: int) -> None:
    rng, files, fed = random.Random(8), 0, list[int]()
    for kill in range(1, kills + 1):
        new = FILES_A_DRIVER - (files - len(fed))
        make_input(tmp_path, new)
        files += new
        kill_at_random(tmp_path, pipeline, rng)
        newest = opened(tmp_path).chain.newest
        fed = consumed(tmp_path / "query", newest.source.batch) if newest else []
        assert held(tmp_path, pipeline) == answer(fed), f"wrong after kill {kill}: {newest and newest.epoch} epochs"
        TALLY["drivers killed"] += 1
    finish(tmp_path, "local[2,4]", pipeline)
    chain = opened(tmp_path).chain
    assert chain.newest is not None
    assert chain.newest.source.batch == chain.epoch - 1, "a micro-batch made two epochs"
    assert consumed(tmp_path / "query", chain.newest.source.batch) == list(range(files))
    assert held(tmp_path, pipeline) == answer(files)
    TALLY["epochs of killed drivers"] += chain.epoch


def held(folder: Path, pipeline: str) -> dict[str, tuple[int, int]]:
    """Return rows and sum of every key, as the pipeline has them."""
    if pipeline == "none":
        return kept(opened(folder))
    built = Pipeline(folder / "space", SHARDS, cache=folder / "cache of the test")
    build(built, {"key": "string", "value": "int64"})
    found = {key: (n, total) for key, n, total in built.rows("totals")}
    rows = sum(n for n, _ in found.values())
    assert built.rows("overall") == ([(len(found), rows)] if built.chain.epoch else [])
    return found


def kill_at_random(folder: Path, pipeline: str, rng: random.Random) -> None:
    """Run a driver and kill it: at times before its first epoch, mostly in the midst of a later one."""
    with driver(command(folder, "local[2,4]", pipeline)) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n", log_of(folder)
        for _ in range(rng.randrange(4)):
            assert process.stdout.readline(), log_of(folder)
        time.sleep(rng.uniform(0, 1.5))
        assert process.poll() is None, "the driver was done before it was killed: give it more files"
        kill_group(process)
