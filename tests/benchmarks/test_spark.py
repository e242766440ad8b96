"""What the benchmark of Spark declares and prints; Spark itself is not started here."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="pip install 'objectspace[spark]'")

from benchmarks import spark_contestants as who
from benchmarks.scripts import is_series, ratios_in, tables_in
from benchmarks.spark import Measured, Scenario, configurations, report, scenarios

FAST, SLOW = who.NATIVE_ROCKSDB


@pytest.fixture
def scenario() -> Scenario:
    return Scenario(
        "Events",
        lambda: iter(()),
        (who.OURS, FAST, SLOW),
        {FAST.name: 0.75},
        fewer={SLOW.name: 4},
        absent={"another": "it was not there"},
    )


@pytest.fixture
def measured() -> dict[str, Measured]:
    return {
        who.OURS.name: Measured([900.0, 500.0, 100.0, 200.0, 300.0], [9_000, 1_000, 1_000, 1_000, 1_000]),
        FAST.name: Measured([900.0, 500.0, 200.0, 400.0, 200.0], [9_000, 2_000, 2_000, 2_000, 2_000]),
        SLOW.name: Measured([9000.0, 5000.0, 1000.0, 1000.0], [9_000, 2_000, 2_000, 4_000]),
    }


def test_ratios_are_of_the_micro_batches_that_both_did_from_the_third_on(
    scenario: Scenario, measured: dict[str, Measured]
) -> None:
    result, _ = tables_in(report(scenario, measured))
    assert result.rows[0][:5] == ["objectspace", "200 ms", "", "", "5"]
    found = {label: str(ratio) for (label, _), ratio in ratios_in(result).items()}
    assert found == {FAST.name: "0.50 (0.50-1.50)", SLOW.name: "0.15 (0.10-0.20)"}
    assert result.rows[2][4:] == ["4", "2.0 kB", "3.0 kB", "4.0 kB"]


def test_the_time_of_every_micro_batch_is_printed(scenario: Scenario, measured: dict[str, Measured]) -> None:
    result, times = tables_in(report(scenario, measured))
    assert (is_series(result), is_series(times)) == (False, True)
    assert times.header == ["micro-batch", who.OURS.name, FAST.name, SLOW.name]
    assert times.rows[0] == ["1", "900 ms", "900 ms", "9,000 ms"]
    assert times.rows[-1] == ["5", "300 ms", "200 ms", ""]
    assert not ratios_in(times)


def test_it_is_said_who_takes_part_how_and_who_does_not(scenario: Scenario) -> None:
    how, absent = tables_in(configurations([scenario, scenario]))
    assert [row[0] for row in how.rows] == [who.OURS.name, FAST.name, SLOW.name]
    assert all(all(row) for row in how.rows)
    assert {tuple(row) for row in absent.rows} == {("Events", "another", "it was not there")}


@pytest.mark.parametrize("quick", [True, False])
def test_scenarios_speak_only_of_contestants_that_there_are(quick: bool) -> None:
    for name, one in scenarios(quick).items():
        names = [contestant.name for contestant in one.contestants]
        assert names[0] == "objectspace"
        assert len(set(names)) == len(names), name
        assert {*one.limits, *one.fewer} <= set(names), name
        assert not set(one.absent) & set(names), name
        assert all(count > 3 for count in one.fewer.values())


def test_every_way_of_spark_runs_without_and_with_changelog_checkpoints() -> None:
    for way in (who.NATIVE_ROCKSDB, who.WITH_STATE, who.IN_PANDAS, who.LIST_STATE, who.LIST_IN_PANDAS):
        settings = [{key.rpartition(".")[0]: value for key, value in one.conf.items()} for one in way]
        changelog = [one["spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing"] for one in settings]
        assert changelog == ["false", "true"]
        assert all(any("RocksDB" in value for value in one.conf.values()) for one in way)
    full = scenarios(quick=False)["aggregate"]
    assert {one.name for one in (*who.WITH_STATE, *who.IN_PANDAS)} <= {one.name for one in full.contestants}
