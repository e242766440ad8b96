"""Names of objects in a space of several operators, whole and without their operators."""

from __future__ import annotations

from pathlib import Path

import pytest

from checkpoint import CheckpointError, CheckpointKind, Run
from checkpoint.chain import (
    Chain,
    SourcePosition,
    location_at,
    save_run,
)
from tests.tool.conftest import Tool, rows


def space_of(folder: Path, operators: dict[str, str], shards: int = 1) -> Path:
    """Return a space whose operators have a dictionary of twenty entries in each shard, by the names of these."""
    chain = Chain.open_or_create(location_at(folder / "space"), shards)
    plan = chain.begin(SourcePosition("q", 0), list(operators), cache=str(folder / "cache"))
    assert plan is not None
    items = [(1, f"k{number}", str(number), None) for number in range(20)]
    full = {
        one: Run(CheckpointKind.FULL, [(1, name, "Dictionary", None)], [], items) for one, name in operators.items()
    }
    saved = {one: [save_run(plan.operators[one], shard, full[one]) for shard in range(shards)] for one in operators}
    chain.publish(plan, saved)
    return folder / "space"


@pytest.fixture(scope="module")
def of_operators(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A space whose objects begin with names of operators."""
    stored = ("a/late", "b/late", "longest/longest", "trouble/given/$output", "worst/table")
    folder = tmp_path_factory.mktemp("operators")
    return space_of(folder, {f"o{number}": one for number, one in enumerate(stored)})


def test_an_object_of_several_operators_is_refused_before_anything_is_shown(tool: Tool, tmp_path: Path) -> None:
    space = space_of(tmp_path, {"alpha": "counts", "beta": "counts"})
    for limit in (0, 3):
        found = tool("show", space, "counts", "-n", limit)
        assert (found.exit_code, found.stdout) == (2, "")
        assert "operators alpha, beta have an object 'counts': name one with --operator" in found.stderr
    assert tool("show", space, "counts", "--operator", "beta").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "is_whole"),
    [
        *((("fork",), True), (("fork", "--object", "counts", "--object", "others"), True)),
        *((("fork", "--object", "counts"), False), (("restore",), True), (("restore", "--object", "counts"), False)),
        (("restore", "--operator", "alpha"), False),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_nothing_goes_on_from_a_copy_of_some_objects(
    tool: Tool, tmp_path: Path, arguments: tuple[str, ...], is_whole: bool
) -> None:
    space = space_of(tmp_path, {"alpha": "counts", "beta": "others"})
    command, *rest = arguments
    assert tool(command, space, tmp_path / "copy", *rest).exit_code == 0
    assert tool("fork", tmp_path / "copy", tmp_path / "again").exit_code == 0
    for copy in (tmp_path / "copy", tmp_path / "again"):
        assert tool("show", copy, "counts").output.startswith("counts = Dictionary of 20")
        chain = Chain.open(location_at(copy))
        assert chain.newest is not None
        assert chain.newest.partial != is_whole
        if is_whole:
            assert (chain.newest.format, b"partial" in chain.newest.to_json()) == (1, False), "older versions read it"
            assert chain.begin(SourcePosition("q", 1), ["alpha", "beta"]) is not None
        for query, batch in () if is_whole else (("q", 0), ("q", 1), ("another", 0)):
            with pytest.raises(CheckpointError, match="a copy of only some objects of another space, made by"):
                chain.begin(SourcePosition(query, batch), ["alpha", "beta"])


def test_where_all_shards_were_looked_at_the_count_is_that_of_all(tool: Tool, tmp_path: Path) -> None:
    space = space_of(tmp_path, {"alpha": "counts", "beta": "others"}, shards=2)
    for limit in (0, 3):
        assert tool("show", space, "counts", "-n", limit).output.startswith("counts = Dictionary of 40\n")


READS = [("show", "{}"), ("show", "{}@1"), ("blame", "{}"), ("diff", "0", "1", "{}"), ("export", "{}", "new.csv")]


COPIES = [("restore", "new", "--object", "{}"), ("fork", "new", "--object", "{}")]


SEARCH = ("bisect", "--good", "0", "--input", "{}", "--", "sh", "-c", "! grep -q .")


WHOLE = {"worst": "worst/table", "longest": "longest/longest", "given": "trouble/given/$output"}


@pytest.mark.parametrize(
    ("name", "command"),
    [
        *((name, command) for command in READS for name in WHOLE),
        ("worst", SEARCH),
        *(pytest.param(name, SEARCH, marks=pytest.mark.slow) for name in ("longest", "given")),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_a_name_without_its_operator_is_that_of_the_only_one_that_is_called_so(
    tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, of_operators: Path, command: tuple[str, ...], name: str
) -> None:
    results = []
    for number, one in enumerate((name, WHOLE[name])):
        (tmp_path / str(number)).mkdir()
        monkeypatch.chdir(tmp_path / str(number))
        first, *rest = (argument.replace("{}", one) for argument in command)
        found = tool(first, of_operators, *rest)
        results.append((found.exit_code, found.output, [path.read_text() for path in Path().iterdir()]))
    assert results[0] == results[1]
    assert results[0][0] == (command[0] == "diff")


@pytest.mark.parametrize(
    "command", [*COPIES, ("restore", "new", "--shard", "0", "--operator", "{o}", "--object", "{}")]
)
@pytest.mark.parametrize("name", WHOLE)
def test_a_copy_takes_names_without_their_operators(
    tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, of_operators: Path, command: tuple[str, ...], name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    operator = {"longest": "o2", "given": "o3", "worst": "o4"}[name]
    first, *rest = (one.replace("{o}", operator).replace("{}", name) for one in command)
    others = [] if "--shard" in rest else ["--object", "a/late", "--object", next(one for one in WHOLE if one != name)]
    assert tool(first, of_operators, *rest, *others).exit_code == 0
    kept = {WHOLE[name], *(WHOLE.get(one, one) for one in others if one != "--object")}
    assert {row["name"] for row in rows(tool, "ls", "new", "--json")} == kept


@pytest.mark.parametrize(
    ("command", "name", "meant"),
    [
        *((command, "late", "'a/late' or 'b/late'") for command in [*READS[:1], *READS[2:], *COPIES, SEARCH]),
        *((command, "wrost/table", "'worst/table'") for command in [*READS[:1], *READS[2:], *COPIES, SEARCH]),
    ],
)
def test_a_name_without_its_operator_is_answered_with_whole_ones(
    tool: Tool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    of_operators: Path,
    command: tuple[str, ...],
    name: str,
    meant: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    first, *rest = (argument.replace("{}", name) for argument in command)
    found = tool(first, of_operators, *rest)
    assert (found.exit_code, found.stderr) == (2, f"error: there is no object {name!r}: did you mean {meant}?\n")
