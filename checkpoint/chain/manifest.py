"""Manifests: the one commit point of an epoch, naming one accepted run per operator and shard.

A manifest and the file that founds a space are JSON with a checksum over the rest, so damage is always detected.
"""

from __future__ import annotations

import builtins
import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, Self

import orjson

from checkpoint.errors import RESTORE, CheckpointError, CorruptStoreError
from checkpoint.run import CheckpointKind

FORMAT_VERSION = 4
"""The newest format of manifests that this version reads: the format of manifests of partial copies."""

DIVIDED_FORMAT = 3
"""The format of manifests that name divisions."""

CARRIED_FORMAT = 2
"""The format of manifests in which some lineages begin with several runs, or with an image of an older epoch."""

PLAIN_FORMAT = 1
"""The format of spaces, and of manifests whose lineages all begin with full runs or with images of their epochs."""

MOST_SHARDS = 256
"""A space has at most so many shards: as many as there are vnodes to share out."""

DIVISION = ".division"
"""The suffix of the file names of divisions."""

_LAYOUT = orjson.OPT_SORT_KEYS | orjson.OPT_INDENT_2


@dataclass(frozen=True)
class AcceptedRun:
    """What a manifest says of one run file.

    Args:
        operator: the name of the operator whose state this is.
        shard: the number of its shard.
        epoch: the epoch that the run leads to.
        file: the name of the file in the location.
        kind: a complete image of the shard, or the slots that changed since the run before.
        digest: the digest of the rows.
        checksum: the checksum over the bytes of the file.
        slots: how many slots it writes.
        bytes: the bytes of its keys, slots and values.
        file_bytes: the size of the file in bytes.
        replaces: for an image that was made alongside the epochs, what it replaces; see ``standing``.
    """

    operator: str
    shard: int
    epoch: int
    file: str
    kind: CheckpointKind
    digest: str
    checksum: str
    slots: int
    bytes: int
    file_bytes: int
    replaces: str = ""

    @property
    def is_division(self) -> bool:
        """Whether it has no rows of its own, but says how the rows of other shards are divided."""
        return self.file.endswith(DIVISION)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Return the run from a dictionary that ``dataclasses.asdict`` has made.

        Raises:
            TypeError, ValueError, KeyError: the fields are not those of a run.
        """
        found = cls(**{**values, "kind": CheckpointKind(values["kind"])})
        found._require_fit()
        return found

    def _require_fit(self) -> None:
        """Refuse values that no run can have, even if a checksum over them is right.

        Raises:
            TypeError, ValueError: it is so.
        """
        # It is read, and written by whoever copies the space, under this name: it must not lead out of the location.
        if not _RUN_FILE.fullmatch(self.file):
            raise ValueError(f"a run has the file name {self.file!r}")
        numbers = (self.shard, self.epoch, self.slots, self.bytes, self.file_bytes)
        if {type(number) for number in numbers} != {int} or min(numbers) < 0:
            raise ValueError(f"the shard, epoch and sizes of the run file {self.file!r} are {numbers}")
        if {type(text) for text in (self.operator, self.digest, self.checksum, self.replaces)} != {str}:
            raise ValueError(f"the operator and digests of the run file {self.file!r} are not texts")


ByShard = dict[tuple[str, int], tuple[AcceptedRun, ...]]
"""Runs by operator and shard number."""


@dataclass(frozen=True)
class SourcePosition:
    """How far the input has been consumed: one micro-batch of one streaming query.

    Args:
        query: the id of the query, the same after a restart from its checkpoint.
        batch: the number of the micro-batch, counted by the query from 0.
        offsets: what distinguishes its rows from those of another micro-batch; empty if that is not known.
        before: the same for the micro-batch before it, as the query knows it; no manifest holds this.
    """

    query: str
    batch: int
    offsets: str = field(default="", compare=False)
    before: str = field(default="", compare=False)


@dataclass(frozen=True)
class Manifest:
    """One published epoch of a space.

    Args:
        incarnation: the UUID of the space.
        epoch: the number of the epoch, from 1.
        base: the epoch that its runs build on.
        shards: the number of shards of every operator.
        source: the micro-batch that made the epoch.
        committed: the last committed batch of every query that ever fed the space.
        runs: the accepted runs; a shard without a run has not changed.
        lineage: by operator, the epoch that the lineage of each shard begins with (0: no run yet): that of a full run,
            or the one up to which ``images`` have its runs.
        publisher: the UUID of the attempt to publish, which makes the bytes of competing attempts differ.
        time: when it was published, ISO 8601 in UTC.
        metrics: figures about the epoch, such as rows and seconds.
        images: the first runs of lineages that do not begin with a full run of an epoch: an image that was made
            alongside the epochs, or all the runs of a shard that seldom changes.
        partial: whether it belongs to a copy of only some objects of another space, which cannot be continued.
        format: the version of the format.
    """

    incarnation: str
    epoch: int
    base: int
    shards: int
    source: SourcePosition
    committed: dict[str, int]
    runs: tuple[AcceptedRun, ...]
    lineage: dict[str, list[int]]
    publisher: str
    time: str
    metrics: dict[str, float] = field(default_factory=dict)
    images: tuple[AcceptedRun, ...] = ()
    partial: bool = False
    format: int = PLAIN_FORMAT

    def __repr__(self) -> str:
        # All runs and lineages would be thousands of characters, and rescale() returns a manifest at a prompt.
        counts = {"shards": self.shards, "operators": len(self.lineage), "runs": len(self.runs), "slots": self.slots}
        shown = ", ".join(f"{what} {count:,}" for what, count in counts.items())
        return f"<Manifest of epoch {self.epoch}, published {self.time}: {shown}>"

    @property
    def files(self) -> tuple[AcceptedRun, ...]:
        """All run files that the manifest names: those of the epoch, and those that lineages begin with."""
        return (*self.runs, *self.images)

    def starts(self, operator: str, shard: int) -> tuple[AcceptedRun, ...]:
        """Return the runs that the lineage of a shard begins with, if it does not begin with a full run of an epoch."""
        return self._images_by_shard.get((operator, shard), ())

    def runs_of(self, operator: str, shard: int) -> tuple[AcceptedRun, ...]:
        """Return what the epoch wrote for a shard: a run, or none. Time: O(1) after the first call."""
        return self._runs_by_shard.get((operator, shard), ())

    @cached_property
    def _runs_by_shard(self) -> ByShard:
        return _by_shard(self.runs)

    @cached_property
    def _images_by_shard(self) -> ByShard:
        return _by_shard(self.images)

    @property
    def own_format(self) -> int:
        """The oldest format that can express what this manifest says."""
        if self.partial:
            return FORMAT_VERSION
        if any(run.is_division for run in self.files):
            return DIVIDED_FORMAT
        return PLAIN_FORMAT if self._is_plain else CARRIED_FORMAT

    @property
    def _is_plain(self) -> bool:
        """Whether each lineage begins with a full run, or an image of its epoch."""
        places = [(run.operator, run.shard) for run in self.images]
        begins = [self.lineage.get(operator, [])[shard:][:1] for operator, shard in places]
        return len({*places}) == len(places) and begins == [[run.epoch] for run in self.images]

    @property
    def slots(self) -> int:
        """The number of dirty slots that the epoch wrote, over all operators and shards."""
        return sum(run.slots for run in self.runs)

    @property
    def bytes(self) -> int:
        """The bytes of keys, slots and values that the epoch wrote."""
        return sum(run.bytes for run in self.runs)

    @property
    def file_bytes(self) -> int:
        """The bytes of the epoch's run files."""
        return sum(run.file_bytes for run in self.runs)

    def to_json(self) -> builtins.bytes:
        """Return the file of the manifest."""
        values = asdict(self)
        del values["source"]["before"]
        if not self.partial:
            del values["partial"]  # older versions do not know it
        return seal(values)

    @classmethod
    def from_json(cls, data: builtins.bytes, place: str) -> Self:
        """Return the manifest in a file.

        Args:
            data: the bytes of the file.
            place: the name of the file in error messages.

        Raises:
            CorruptStoreError: the file is damaged.
            CheckpointError: the file has a newer format.
        """
        values = unseal(data, place, FORMAT_VERSION)
        try:
            with_types = {
                "source": SourcePosition(**values["source"]),
                "runs": tuple(AcceptedRun.from_dict(run) for run in values["runs"]),
                "images": tuple(AcceptedRun.from_dict(run) for run in values.get("images", ())),
            }
            found = cls(**{**values, **with_types})
            found._require_fit()
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            raise CorruptStoreError(f"{place} is no manifest ({error}): {RESTORE}") from error
        return found

    def require_readable(self) -> None:
        """Refuse to publish what no reader would take.

        Raises:
            CheckpointError: it is so.

        Time: O(runs).
        """
        try:
            for run in self.files:
                run._require_fit()
            self._require_fit()
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            raise CheckpointError(f"epoch {self.epoch} would not be read ({error}): nothing was published") from error

    def _require_fit(self) -> None:
        """Refuse values that no epoch can have, even if the checksum is right.

        Raises:
            TypeError, ValueError: it is so.
        """
        numbers = (self.epoch, self.base, self.shards, self.source.batch, *self.committed.values())
        if {type(number) for number in numbers} != {int} or not 1 <= self.shards <= MOST_SHARDS:
            raise ValueError(f"its epochs, shards and batches are {numbers!r:.200}")
        if not isinstance(self.metrics, dict):
            raise TypeError(f"its metrics are {self.metrics!r:.80}")
        for operator, begins in self.lineage.items():
            known = all(type(begin) is int and 0 <= begin <= self.epoch for begin in begins)
            if len(begins) != self.shards or not known:
                raise ValueError(f"{self.shards} shards of {operator!r} begin with the epochs {begins}")
        if type(self.partial) is not bool or self.format != self.own_format:
            raise ValueError(f"it has format {self.format}, and says what is of another one")
        for run in self.files:
            if run.shard not in range(self.shards):
                raise ValueError(f"shard {run.shard} of {self.shards} has the run file {run.file!r}")
            if not 0 < self.lineage[run.operator][run.shard] <= self.epoch:
                raise ValueError(f"the lineage of {run.operator!r}/{run.shard} begins before its run {run.file!r}")
        self._require_runs_fit()

    def _require_runs_fit(self) -> None:
        """Refuse runs that are not those of the epoch: what folds them in would pass over them.

        Raises:
            ValueError: it is so.
        """
        if len(self._runs_by_shard) != len(self.runs):
            raise ValueError("a shard has two runs")
        for run in self.runs:
            if run.epoch != self.epoch:
                raise ValueError(f"the run file {run.file!r} is of epoch {run.epoch}, in epoch {self.epoch}")


def _by_shard(runs: Iterable[AcceptedRun]) -> ByShard:
    found: dict[tuple[str, int], tuple[AcceptedRun, ...]] = {}
    for run in runs:
        found[run.operator, run.shard] = (*found.get((run.operator, run.shard), ()), run)
    return found


_RUN_FILE = re.compile(r"run/\w[\w.-]*", re.ASCII)


def seal(values: Mapping[str, Any]) -> bytes:
    """Return a JSON file of some values, with a checksum over them."""
    body = dict(values)
    return orjson.dumps({**body, "checksum": _checksum(body)}, option=_LAYOUT)


def unseal(data: bytes, place: str, newest: int = PLAIN_FORMAT) -> dict[str, Any]:
    """Return the values in a file that ``seal`` has written.

    Args:
        data: the bytes of the file.
        place: the name of the file in error messages.
        newest: the newest format to accept.

    Raises:
        CorruptStoreError: the file is damaged.
        CheckpointError: the file has a newer format.
    """
    try:
        values = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise CorruptStoreError(f"{place} is damaged: not JSON ({error}): {RESTORE}") from error
    if not isinstance(values, dict) or not isinstance(values.get("format"), int):
        raise CorruptStoreError(f"{place} is damaged: expected a JSON object with a format: {RESTORE}")
    if values["format"] > newest:
        raise CheckpointError(
            f"{place} has format {values['format']}: expected at most {newest}: upgrade this package to read it"
        )
    expected = values.pop("checksum", None)
    try:
        found = _checksum(values)
    except orjson.JSONEncodeError as error:  # it may be nested more deeply than anything that is ever written
        raise CorruptStoreError(f"{place} is damaged: {error}: {RESTORE}") from error
    if found != expected:
        raise CorruptStoreError(f"{place} is damaged: expected checksum {expected}, found {found}: {RESTORE}")
    return values


def _checksum(values: Mapping[str, Any]) -> str:
    return hashlib.blake2b(orjson.dumps(values, option=_LAYOUT), digest_size=16).hexdigest()
