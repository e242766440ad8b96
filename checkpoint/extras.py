"""Libraries that the plain installation leaves out: which of them cannot be used here, and why."""

from __future__ import annotations

import re
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

OLDEST = {"fsspec": "2024.12", "numpy": "1.26", "pandas": "2.2", "pyarrow": "18", "pyspark": "4.3"}
"""By library: the oldest version that works, as the extras of pyproject.toml have it.

A plain installation takes none of them, so pip leaves an older one that is there as it is.
"""


def lack_of(library: str) -> str | None:
    """Return what is lacking of a library, or ``None`` if it is there.

    >>> lack_of("sqlite3"), lack_of("no_such_library")
    (None, 'no_such_library, which is not installed')
    """
    if find_spec(library) is None:
        return f"{library}, which is not installed"
    oldest, found = OLDEST.get(library), _version_of(library)
    if oldest is None or found is None or _numbers(found) >= _numbers(oldest):
        return None
    return f"{library} {oldest} or newer, but {found} is installed"


@cache
def _version_of(library: str) -> str | None:
    try:
        return version(library)
    except PackageNotFoundError:
        return None  # It lies on the path without having been installed.


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", text)[:2]))
