"""What founds a space at a location, and the places where none may be founded."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Self

from checkpoint.chain.collect import FLOORS, MANIFESTS, RUNS
from checkpoint.chain.location import Location
from checkpoint.chain.manifest import MOST_SHARDS, PLAIN_FORMAT, seal, unseal
from checkpoint.errors import RESTORE, CheckpointError, CorruptStoreError

SPACE_FILE = "space.json"
"""The name of the file that founds a space: when a space is copied, it comes last."""

CLAIM = "copy-under-way.claim"
"""The file of whoever copies a space to a location: its files have the names of the original, as any other copy's."""

_INCARNATION = re.compile(r"\w[\w-]{0,127}", re.ASCII)


@dataclass(frozen=True)
class SpaceFile:
    """What founds a space: written once, before its first epoch.

    Args:
        incarnation: the UUID of the space; a space that is dropped and recreated has another one.
        shards: the number of shards of every operator, until a manifest gives another.
        format: the version of the format.
    """

    incarnation: str
    shards: int
    format: int = PLAIN_FORMAT

    @classmethod
    def read(cls, location: Location) -> Self:
        """Return what founds the space at a location.

        Raises:
            CheckpointError: the location cannot be read, holds no space, or one of a newer format.
            CorruptStoreError: the file is damaged.
        """
        data = location.read(SPACE_FILE)
        if data is None:
            raise CheckpointError(
                f"location {location.url}: no space here: expected a file {SPACE_FILE}: check the location, or run a"
                " pipeline on it first"
            )
        place = f"{SPACE_FILE} of {location.url}"
        try:
            found = cls(**unseal(data, place))
            found._require_fit()
        except (TypeError, ValueError) as error:
            raise CorruptStoreError(f"{place} founds no space ({error}): {RESTORE}") from error
        return found

    def _require_fit(self) -> None:
        """Refuse values that no space can have, even if the checksum is right.

        Raises:
            TypeError, ValueError: it is so.
        """
        # Caches of the space lie in a folder of this name: it must not lead to what is not theirs.
        if not _INCARNATION.fullmatch(self.incarnation):
            raise ValueError(f"its incarnation is {self.incarnation!r:.80}")
        if type(self.shards) is not int or not 1 <= self.shards <= MOST_SHARDS:
            raise ValueError(f"it has {self.shards!r:.80} shards")

    @staticmethod
    def is_at(location: Location) -> bool:
        """Return whether there is a space at a location.

        Raises:
            CheckpointError: the location cannot be read.
        """
        return location.read(SPACE_FILE) is not None

    def found_at(self, location: Location) -> bool:
        """Make what lies at a location a space; return whether nobody else has done so.

        Raises:
            CheckpointError: the location cannot be written.

        Dirties: ``space.json``, if it is absent.
        """
        return location.create(SPACE_FILE, seal(asdict(self)))


def require_nothing(location: Location) -> None:
    """Refuse to found a space on the remains of another one, or inside one: their files would be mixed up.

    Raises:
        CheckpointError: there are manifests or run files, or a copy is under way, and nobody has founded a space
            meanwhile; or the folder that the location lies in holds a space.
    """
    if outer := _space_around(location):
        raise CheckpointError(
            f"location {location.url}: it lies inside of the space at {outer.url}, which has nothing but its own files"
            " and collects what it does not know: choose another location"
        )
    is_claimed = location.read(CLAIM) is not None
    found = [folder for folder in (MANIFESTS, FLOORS, RUNS) if location.names(folder)]
    if (is_claimed or found) and location.read(SPACE_FILE) is None:
        raise CheckpointError(f"location {location.url}: {(_claimed if is_claimed else _left_over)(found)}")


def _claimed(folders: list[str]) -> str:
    return (
        f"there is the file {CLAIM}: a space is being copied to here, unless that was cut off: wait until it has ended,"
        f" or choose another location; if no copy is under way, remove {', '.join([*folders, CLAIM])}; if it is a space"
        f" that has lost its {SPACE_FILE}, restore that from a backup"
    )


def _left_over(folders: list[str]) -> str:
    return (
        f"there are files in {', '.join(folders)}, and no {SPACE_FILE}: they are left by a copy that was cut off,"
        " unless it is still under way, or by a removed space: remove them, or choose another location; if it is a"
        f" space that has lost its {SPACE_FILE}, restore that from a backup"
    )


def _space_around(location: Location) -> Location | None:
    """Return the folder that a location lies in, if it holds a space."""
    outer = location.parent()
    with suppress(CheckpointError):  # Access to the location does not imply access to what is around it.
        return outer if outer and SpaceFile.is_at(outer) else None
    return None
