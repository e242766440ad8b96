"""Libraries that the plain installation leaves out: an error says which is missing, and the command that adds it."""

from __future__ import annotations

from importlib.util import find_spec


def require(library: str, extra: str) -> None:
    """Make sure that a library is installed.

    Args:
        library: its name.
        extra: the extra of this package that brings it.

    Raises:
        ImportError: it is not installed.

    >>> require("sqlite3", "none")
    """
    if find_spec(library) is None:
        raise ImportError(
            f"this takes {library}, which is not installed: pip install 'objectspace[{extra}]', or pip install"
            f" '.[{extra}]' in a clone",
            name=library,
        )
