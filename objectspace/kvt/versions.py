"""The version of a key: which partition gave it, and its number there (PDP-39)."""

from __future__ import annotations

import re
import time
from typing import Any, ClassVar, NamedTuple

from objectspace.kvt.errors import SerializationError

_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1
_TEXT = re.compile(r"(-?[0-9]{1,19}):(-?[0-9]{1,19})")


class _Pair(NamedTuple):
    partition: int
    number: int


class KeyVersion(_Pair):
    """A version of a key, to be compared for equality; within a partition the newer one has the greater number.

    Two versions are special: ``KeyVersion.NO_VERSION`` sets no condition, ``KeyVersion.NOT_EXISTS`` requires that the
    key is absent. Neither is ever given to a key.

    Args:
        partition: the id of the partition, which no other one ever uses.
        number: the number of the write in the partition.

    >>> str(KeyVersion(3, 17)), KeyVersion.parse("3:17")
    ('3:17', KeyVersion(partition=3, number=17))
    """

    __slots__ = ()

    NO_VERSION: ClassVar[KeyVersion]
    NOT_EXISTS: ClassVar[KeyVersion]

    def __str__(self) -> str:
        return f"{self.partition}:{self.number}"

    def describe(self) -> str:
        """Return the version in words, for messages."""
        special = {KeyVersion.NO_VERSION: "any version", KeyVersion.NOT_EXISTS: "no such key"}
        return special.get(self, f"version {self}")

    @classmethod
    def parse(cls, text: str) -> KeyVersion:
        """Return the version of a text that ``str`` made.

        Raises:
            SerializationError: the text is not two integers with a colon between them.
        """
        found = _TEXT.fullmatch(text) if isinstance(text, str) else None
        pair = [int(part) for part in found.groups()] if found else []
        if not pair or not all(_INT64_MIN <= part <= _INT64_MAX for part in pair):
            raise SerializationError(f"{text!r} is no version: expected two integers, 'partition:number'")
        return cls(*pair)


KeyVersion.NO_VERSION = KeyVersion(_INT64_MIN, _INT64_MIN)
KeyVersion.NOT_EXISTS = KeyVersion(_INT64_MIN, -1)

new_version: Any = tuple.__new__
"""Makes a version from a pair without the calls of a named tuple: ``new_version(KeyVersion, (partition, number))``."""


def clock_floor() -> int:
    """Return the microseconds since 1970: more than any number that a lost session can have reached.

    A partition continues from here if it cannot know which numbers were given out and lost, that is, at its first write
    after it was opened or rolled back; otherwise a write has the number after the previous one. A writer would have to
    give out more than a million versions a second for as long as it lives to get ahead of the clock.
    """
    return time.time_ns() // 1000
