"""The page and its plots, from results that were made up."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks.page import write_page
from benchmarks.plots import INK, LIGHT_INK, charts, plot
from benchmarks.results import Outcome, Table
from tests.benchmarks import made


@pytest.fixture
def written(tmp_path: Path) -> list[Path]:
    return write_page(made.run(), "results/made-up.json", tmp_path / "docs" / "performance.md")


def test_the_losses_stand_before_everything_else(written: list[Path]) -> None:
    text = written[0].read_text()
    heads = re.findall(r"^## (.*)", text, re.MULTILINE)
    assert heads == ["Where we lose", "losing", "printed", "winning", "failed", "Where we win"]
    assert "`results/made-up.json`" in text
    assert "0123456789abcdef" in text
    assert "- them: as their documentation says." in text
    assert "not installed: absent" in text


def test_every_row_of_a_table_has_as_many_cells_as_its_head(written: list[Path]) -> None:
    tables = re.findall(r"(?:^\|.*\n)+", written[0].read_text(), re.MULTILINE)
    assert len(tables) >= 7
    for table in tables:
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}) == 1, table


def test_every_link_of_the_page_leads_to_a_plot_or_a_section(written: list[Path]) -> None:
    text = written[0].read_text()
    plots = re.findall(r"!\[[^]]*\]\(([^)]+)\)", text)
    assert sorted(plots) == sorted(str(path.relative_to(written[0].parent)) for path in written[1:])
    assert len(plots) == 3
    for target in re.findall(r"\]\(#([^)]+)\)", text):
        assert f"\n## {target}\n" in text


def test_a_plot_is_transparent_its_ink_follows_the_colour_scheme_and_it_is_the_same_each_time(
    written: list[Path], tmp_path: Path
) -> None:
    again = write_page(made.run(), "results/made-up.json", tmp_path / "again" / "performance.md")
    for path, other in zip(written, again, strict=True):
        assert path.read_text() == other.read_text()
    for path in written[1:]:
        text = path.read_text()
        ElementTree.fromstring(text)
        assert f"var(--ink, {INK})" in text
        assert INK not in text.replace(f"var(--ink, {INK})", "")
        assert LIGHT_INK in text
        assert not re.search(r"fill: (#ffffff|white)", text)


def test_plots_of_before_are_gone(written: list[Path]) -> None:
    old = written[1].with_name("old.svg")
    old.write_text("<svg/>")
    write_page(made.run(), "made-up", written[0])
    assert not old.exists()
    assert written[1].exists()


def test_many_repetitions_are_drawn_one_after_the_other(tmp_path: Path) -> None:
    winning = made.run().outcomes[0]
    assert [path.name for path in plot(winning, tmp_path)] == ["winning-ratios.svg"]
    winning.cases[0].contestants["ours"].wall *= 10
    assert [path.name for path in plot(winning, tmp_path)] == ["winning-1000-one-each.svg"]


def test_a_scenario_is_drawn_over_its_states_and_over_its_steps() -> None:
    losing = made.run().outcomes[3]
    assert [axis for axis, _ in charts(losing)] == ["slots, reads | writes"]
    more = made.case("more", 1, 1, state=10_000)
    more.x = 100
    losing.cases.append(more)
    assert [axis for axis, _ in charts(losing)] == ["slots at 10,000", "slots, reads | writes"]


def test_a_table_of_every_micro_batch_is_drawn_and_not_printed(tmp_path: Path) -> None:
    run = made.run()
    rows = [["1", "1,200 ms", "900 ms"], ["2", "300 ms", "600 ms"], ["3", "310 ms", ""]]
    run.outcomes = [Outcome("spark", "spark", "Streams", "They stream", 1.0)]
    run.outcomes[0].tables = [
        Table("Events", ["query", "ratio"], [["them", "0.50 (0.40-0.60)"]]),
        Table("Events: time of each", ["micro-batch", "ours", "them"], rows),
    ]
    page, *drawn = write_page(run, "made-up", tmp_path / "performance.md")
    assert [path.name for path in drawn] == ["spark-events-time-of-each.svg"]
    text = page.read_text()
    assert "performance/spark-events-time-of-each.svg" in text
    assert "0.50 (0.40-0.60)" in text
    assert "1,200 ms" not in text
    svg = drawn[0].read_text()
    assert all(f">{name}<" in svg for name in ("ours", "them", "micro-batch"))
    assert not re.search(r"fill: (#ffffff|white)", svg)
