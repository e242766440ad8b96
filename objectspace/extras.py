"""Libraries that the plain installation leaves out: an error says what is lacking, and the command that adds it."""

from __future__ import annotations

from checkpoint.extras import lack_of


def require(library: str, extra: str) -> None:
    """Make sure that a library is installed, in a version that works.

    Args:
        library: its name.
        extra: the extra of this package that brings it.

    Raises:
        ImportError: it is not there, or too old.

    >>> require("sqlite3", "none")
    """
    if lack := lack_of(library):
        raise ImportError(
            f"this takes {lack}: pip install 'objectspace[{extra}]', or pip install '.[{extra}]' in a clone",
            name=library,
        )
