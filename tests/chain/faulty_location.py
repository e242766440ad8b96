"""A location that fails at its n-th operation, for chains whose every crash point is tried."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from checkpoint import CheckpointError
from checkpoint.chain import Location
from tests.tally import TALLY

T = TypeVar("T")


@dataclass
class FaultyLocation(Location):
    """Passes everything on until an operation is to fail.

    Args:
        inner: the location.
        at: the number of the operation that fails, counted from 1.
        late: it takes effect before it fails.
        lasting: all operations after it fail as well.
    """

    inner: Location
    at: int
    late: bool = False
    lasting: bool = False
    seen: int = 0

    @property
    def url(self) -> str:
        return self.inner.url

    def read(self, name: str) -> bytes | None:
        return self._try(lambda: self.inner.read(name))

    def names(self, folder: str) -> list[str]:
        return self._try(lambda: self.inner.names(folder))

    def write(self, name: str, data: bytes) -> None:
        self._try(lambda: self.inner.write(name, data))

    def create(self, name: str, data: bytes) -> bool:
        return self._try(lambda: self.inner.create(name, data))

    def delete(self, name: str) -> None:
        self._try(lambda: self.inner.delete(name))

    def modified(self, name: str) -> float | None:
        return self._try(lambda: self.inner.modified(name))

    def leftovers(self, folders: Iterable[str]) -> list[str]:
        return self._try(lambda: self.inner.leftovers(folders))

    def require_exclusive_create(self) -> None:
        self._try(self.inner.require_exclusive_create)

    def _try(self, work: Callable[[], T]) -> T:
        self.seen += 1
        if self.seen == self.at or (self.lasting and self.seen > self.at):
            if self.late and self.seen == self.at:
                work()
            raise CheckpointError(f"location {self.url}: injected at operation {self.seen}")
        return work()


def crash_points(inner: Location, work: Callable[[Location], None], *, late: bool, lasting: bool) -> Iterator[int]:
    """Run the work with its n-th operation failing for every n, until it completes without meeting the fault."""
    at = 1
    while True:
        location = FaultyLocation(inner, at, late, lasting)
        with suppress(CheckpointError):
            work(location)
        if location.seen < at:
            return
        TALLY["crash points"] += 1
        yield at
        at += 1
