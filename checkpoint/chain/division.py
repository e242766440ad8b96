"""Divisions: what the manifest of a rescale names for a new shard instead of its rows.

The file of a division names the runs of the shards that the new one gets its rows from, and the rule that tells which
of them are its own. These rows are not rewritten: whoever opens the shard reads them from those runs, until an image of
it is due.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self
from uuid import uuid4

from checkpoint.chain.location import Location
from checkpoint.chain.manifest import DIVISION, MOST_SHARDS, AcceptedRun, seal, unseal
from checkpoint.chain.plan import Lineage
from checkpoint.chain.runfile import checked, checksum
from checkpoint.errors import RESTORE, CheckpointError, CorruptStoreError
from checkpoint.run import CheckpointKind

DIVIDER = "objectspace.operators.division"
"""The module whose ``divide`` knows what rows mean. It is a layer above this package, and imported when needed."""

DIVISION_FORMAT = 1
"""The format of the files, and of what a divider makes of them: that stays the same forever, to the last object id."""


@dataclass(frozen=True)
class Part:
    """One of the shards that a division is made of.

    Args:
        shard: its number.
        lineage: its runs, a full one first.
    """

    shard: int
    lineage: Lineage

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Return the part from a dictionary that ``dataclasses.asdict`` has made."""
        return cls(values["shard"], tuple(map(AcceptedRun.from_dict, values["lineage"])))


@dataclass(frozen=True)
class Division:
    """How the rows of a new shard are found.

    Args:
        operator: the name of the operator.
        shard: the number of the new shard.
        shards: how many shards there are from now on.
        before: how many there were.
        parts: the former shards that own any of its vnodes, with their runs.
        rule: how the divider tells rows apart.
    """

    operator: str
    shard: int
    shards: int
    before: int
    parts: tuple[Part, ...]
    rule: Mapping[str, Any]

    def to_json(self) -> bytes:
        """Return the file of the division."""
        return seal({**asdict(self), "format": DIVISION_FORMAT})

    @classmethod
    def from_json(cls, data: bytes, place: str) -> Self:
        """Return the division in a file.

        Args:
            data: the bytes of the file.
            place: the name of the file in error messages.

        Raises:
            CorruptStoreError: the file is damaged.
            CheckpointError: the file has a newer format.
        """
        values = unseal(data, place, DIVISION_FORMAT)
        try:
            del values["format"]
            found = cls(**{**values, "parts": tuple(map(Part.from_dict, values["parts"]))})
            found._require_fit()
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            raise CorruptStoreError(f"{place} is no division ({error}): {RESTORE}") from error
        return found

    def _require_fit(self) -> None:
        """Refuse values that no division can have, even if the checksum is right.

        Raises:
            TypeError, ValueError: it is so.
        """
        numbers = (self.shard, self.shards, self.before, *(part.shard for part in self.parts))
        if {type(number) for number in numbers} != {int}:
            raise ValueError(f"its numbers of shards are {numbers!r:.200}")
        if max(self.shards, self.before) > MOST_SHARDS or self.shard not in range(self.shards):
            raise ValueError(f"it is shard {self.shard} of {self.shards}, of {self.before} before")
        if not self.parts or any(part.shard not in range(self.before) for part in self.parts):
            raise ValueError(f"it is made of the shards {[part.shard for part in self.parts]} of {self.before}")
        if not isinstance(self.operator, str) or not isinstance(self.rule, dict):
            raise TypeError(f"its operator is {self.operator!r:.80}, and its rule {self.rule!r:.80}")


def write_division(location: Location, division: Division, epoch: int) -> AcceptedRun:
    """Write a division to a private file, and return what a manifest says of it.

    Args:
        location: where the chain lies.
        division: what to write.
        epoch: the epoch that begins with it.

    Raises:
        CheckpointError: the location cannot be written.

    Dirties: one new file, which nothing names yet.
    """
    data, name = division.to_json(), f"run/{uuid4().hex}{DIVISION}"
    location.write(name, data)
    found = checksum(data)
    return AcceptedRun(
        operator=division.operator,
        shard=division.shard,
        epoch=epoch,
        file=name,
        kind=CheckpointKind.FULL,
        digest=found,
        checksum=found,
        slots=0,
        bytes=0,
        file_bytes=len(data),
    )


def read_division(location: Location, accepted: AcceptedRun) -> Division:
    """Return an accepted division.

    Args:
        location: where the chain lies.
        accepted: what the manifest says of it.

    Raises:
        CorruptStoreError: the file is missing, or not byte for byte what was accepted.
        CheckpointError: the location cannot be read, or the file has a newer format.
    """
    data, place = checked(location, accepted)
    division = Division.from_json(data, place)
    if (division.operator, division.shard) != (accepted.operator, accepted.shard):
        raise CheckpointError(f"{place} divides {division.operator}/{division.shard}: {RESTORE}")
    return division


def with_parts(location: Location, runs: Iterable[AcceptedRun], seen: set[str] | None = None) -> Iterator[AcceptedRun]:
    """Yield some runs and those that the divisions among them are made of, each once.

    Args:
        location: where they lie.
        runs: the runs.
        seen: the files that need not be yielded nor read again; those that are yielded are added.

    Raises: as ``read_division``.
    """
    waiting, seen = [*runs], set() if seen is None else seen
    while waiting:
        run = waiting.pop()
        if run.file not in seen:
            seen.add(run.file)
            yield run
            if run.is_division:
                waiting += [one for part in read_division(location, run).parts for one in part.lineage]
