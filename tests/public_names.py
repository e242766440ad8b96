"""The page of all public names, made of their docstrings: ``python -m tests.public_names > docs/names.md``."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from itertools import pairwise
from types import ModuleType

PACKAGES = (
    "objectspace",
    "checkpoint",
    "checkpoint.chain",
    "objectspace.relational",
    "objectspace.kvt",
    "objectspace.operators",
    "objectspace.operators.events",
    "objectspace.spark",
    "objectspace.testing",
)

HEAD = """# The public names

Every name that the packages export, with the beginning of its docstring. `help(name)` in Python shows the rest:
arguments, errors, and what a change costs and dirties. `python -m tests.public_names` makes this page.
"""

_ROLE = re.compile(r":\w+:`~?(?:[\w.]+\.)?(\w+)`")
"""A reference to another name, as docstrings write it."""


def page() -> str:
    """Return the page."""
    return "\n".join([HEAD, *(f"{_section(name)}\n" for name in PACKAGES)]).rstrip("\n") + "\n"


def _section(package: str) -> str:
    module = importlib.import_module(package)
    rows = {False: list[str](), True: list[str]()}
    for name in sorted(module.__all__, key=str.lower):
        rows[_is_error(getattr(module, name))].append(f"| `{name}` | {_said(module, name)} |")
    tables = [f"| {head} | |\n| --- | --- |\n" + "\n".join(found) for head, found in _headed(rows) if found]
    return f"## `{package}`\n\n" + "\n\n".join(tables)


def _headed(rows: dict[bool, list[str]]) -> Iterator[tuple[str, list[str]]]:
    yield "name", rows[False]
    yield "error", rows[True]


def _is_error(found: object) -> bool:
    return inspect.isclass(found) and issubclass(found, Exception)


def _said(package: ModuleType, name: str) -> str:
    """Return the first sentence about a name, on one line and fit for a cell."""
    found = getattr(package, name)
    text = inspect.getdoc(found) if inspect.isclass(found) or inspect.isroutine(found) else _stated(package, name)
    first = " ".join((text or "").split("\n\n")[0].split())
    return _ROLE.sub(r"`\1`", first).replace("``", "`").replace("|", "\\|")


def _stated(module: ModuleType, name: str) -> str:
    """Return what stands below a constant or type where it is defined: a module may only hand it on."""
    stated = dict(_stated_in(module))
    if name in stated:
        return stated[name]
    for node in ast.parse(inspect.getsource(module)).body:
        if isinstance(node, ast.ImportFrom) and name in (alias.name for alias in node.names):
            return _stated(importlib.import_module(str(node.module)), name)
    raise AssertionError(f"{module.__name__}: nothing is stated about {name}")


def _stated_in(module: ModuleType) -> Iterator[tuple[str, str]]:
    body = ast.parse(inspect.getsource(module)).body
    for node, following in pairwise(body):
        if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
            for target in node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]:
                if isinstance(target, ast.Name):
                    yield target.id, str(following.value.value)


if __name__ == "__main__":
    print(page(), end="")
