"""The layers: a package imports only from those below it, and each outside library only where it belongs."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

LAYERS = [
    "checkpoint",
    "objectspace",
    "objectspace.kvt",
    "objectspace.relational",
    "objectspace.operators",
    "objectspace.spark",
]
"""From the bottom to the top; the longest name that fits a module is its layer."""

HOMES = {
    "pyspark": ("objectspace.spark", "benchmarks.spark"),
    "rocksdict": ("benchmarks",),
    "pickle": ("benchmarks.scenarios.stores", "objectspace.spark.errors"),
}
"""Where a library may be imported; the state stores of Spark, and a pickle, are rivals in the benchmarks.

Nothing is stored as a pickle: Spark itself sends code in them, and its errors are told in words.
"""


BY_NAME = {
    ("checkpoint.chain.folding", "DIVIDER"),
    ("checkpoint.tool.filling", "'objectspace'"),
    ("checkpoint.tool.filling", "'objectspace.codec'"),
    ("checkpoint.tool.filling", "'objectspace.relational'"),
    ("checkpoint.tool.arrow", "'pyarrow'"),
    ("checkpoint.tool.exchange", "'pyarrow.parquet'"),
    ("checkpoint.tool.reading", "'pyarrow.parquet'"),
}
"""The modules that are named by a text, and imported for one piece of work alone; those of the layers above, too."""


def modules() -> list[Path]:
    return [path for package in ("checkpoint", "objectspace", "benchmarks") for path in (ROOT / package).rglob("*.py")]


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def imports_of(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def named_by(path: Path) -> Iterator[str]:
    """What a module gives to the functions that import what a text names."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in ("import_module", "__import__"):
            yield ast.unparse(node.args[0])


def layer_of(module: str) -> int:
    return max((place for place, layer in enumerate(LAYERS) if f"{module}.".startswith(f"{layer}.")), default=-1)


@pytest.mark.parametrize("path", modules(), ids=name_of)
def test_a_module_imports_only_from_its_own_layer_and_those_below(path: Path) -> None:
    module = name_of(path)
    for imported in imports_of(path):
        if module.startswith("checkpoint"):
            assert not imported.startswith("objectspace"), f"{module} imports {imported}"
        if not module.startswith("benchmarks"):
            assert layer_of(imported) <= layer_of(module), f"{module} imports {imported}, a layer above its own"
            assert not imported.startswith("benchmarks")


def test_only_these_modules_are_imported_by_a_text() -> None:
    library = [path for path in modules() if not name_of(path).startswith("benchmarks")]
    assert {(name_of(path), named) for path in library for named in named_by(path)} == BY_NAME


@pytest.mark.parametrize("path", modules(), ids=name_of)
def test_a_library_is_imported_only_where_it_belongs(path: Path) -> None:
    module = name_of(path)
    for imported in imports_of(path):
        homes = HOMES.get(imported.split(".")[0])
        assert homes is None or module.startswith(homes), f"{module} imports {imported}"


def test_the_plain_library_imports_nothing_heavy() -> None:
    script = "import sys, objectspace, checkpoint; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert not {"pyspark", "pyarrow", "pandas", "numpy", "fsspec", "py4j"} & set(loaded)


def test_a_table_imports_nothing_heavy() -> None:
    script = (
        "import sys; from objectspace import PersistedObjectSpace;"
        " from objectspace.relational import Column, StateTable, StorageTable, TableSchema;"
        " space = PersistedObjectSpace.open(':memory:');"
        " table = StateTable(space, 't', TableSchema([Column('k', 'int64')], ['k']));"
        " table.insert_row((1,)); table.commit(epoch=1); space.checkpoint(epoch=1);"
        " assert list(StorageTable(space, 't', epoch=1).scan()) == [(1,)]; print(*sys.modules)"
    )
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert not {"pandas", "sqlite_utils"} & set(loaded)


def test_no_statement_numbers_its_placeholders() -> None:
    """Some releases of Python 3.12 warn of each value that is bound to one, and later ones look for its name."""
    numbered = re.compile(r"\?(\d|\{\w+ [+*])")
    found = [path for path in modules() if path.parts[-2] != "benchmarks" and numbered.search(path.read_text())]
    assert found == []
