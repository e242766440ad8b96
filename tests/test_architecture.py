"""The layers: a package imports only from those below it, and each outside library only where it belongs."""

from __future__ import annotations

import ast
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
    "pickle": ("benchmarks.scenarios.stores",),
}
"""Where a library may be imported; the state stores of Spark, and a pickle, are rivals in the benchmarks."""


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
