"""Images of a space and the runs that they replace, which must give the same rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import zip_longest
from typing import Any

from checkpoint.chain import AcceptedRun, Chain, Lineage
from checkpoint.chain.division import with_parts
from checkpoint.chain.plan import runs_seen_at, standing
from checkpoint.chain.runfile import read_pages
from checkpoint.errors import CorruptStoreError
from checkpoint.pages import ITEMS
from checkpoint.run import Page
from checkpoint.tool.source import folded


def images_with_runs(chain: Chain, last: int | None = None) -> Iterator[tuple[AcceptedRun, Lineage]]:
    """Yield each image together with the runs that it replaces, if these are still there.

    Args:
        chain: the space.
        last: the last epoch whose images are asked for, the newest by default.

    Raises:
        CorruptStoreError: a manifest or a division is missing or damaged.
    """
    seen = set[str]()
    for epoch in range(chain.first_epoch, (chain.epoch if last is None else last) + 1):
        # Epochs go on naming their images, and the divisions that these are part of.
        for run in with_parts(chain.location, chain.manifest(epoch).files, seen):
            if run.replaces and (runs := _replaced(chain, run, epoch - 1)):
                yield run, runs


def require_same(chain: Chain, image: AcceptedRun, runs: Lineage) -> None:
    """Compare an image with the runs that it replaces.

    Raises:
        CorruptStoreError: it has other rows, or a file is damaged.

    Time: O(rows). The rows are streamed.
    """
    with folded(chain, runs) as store:
        pages = read_pages(chain.location, image), store.reader().image_pages()
        for found, wanted in zip_longest(*map(_rows, pages)):
            if found != wanted:
                raise CorruptStoreError(
                    f"{image.file} of {chain.location.url}: the image of {image.operator}/{image.shard} at epoch"
                    f" {image.epoch} has {found}, and the runs that it replaces give {wanted}: fork the space"
                    f" at epoch {image.epoch}, which is read from these runs, or restore it from a backup"
                )


def _replaced(chain: Chain, image: AcceptedRun, before: int) -> Lineage:
    """Return the runs that an image replaces; none if not all of them are kept.

    Args:
        chain: the space.
        image: the image.
        before: the epoch before the first one that names it.
    """
    if before < chain.first_epoch:
        return ()
    until = tuple(run for run in chain.lineage(image.operator, image.shard, before) if run.epoch <= image.epoch)
    return until if standing(runs_seen_at(until)) == image.replaces else ()


def _rows(pages: Iterable[Page]) -> Iterator[tuple[int, Any]]:
    """Yield the rows of a state, without the one that only keeps ids from being given again."""
    for place, rows in pages:
        yield from ((place, row) for row in rows if place != ITEMS or row[2] is not None)
