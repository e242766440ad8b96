"""The fields of behaviour cases: one that nobody reads must not be passed over."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def only(given: Mapping[str, Any], *known: str) -> None:
    """Assert that there are no fields but these.

    Raises:
        AssertionError: there is one that is not known.
    """
    unknown = given.keys() - set(known)
    assert not unknown, f"nothing reads the fields {sorted(unknown)} of {given!s:.200}: known are {sorted(known)}"
