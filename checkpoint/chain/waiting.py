"""Images that wait for an epoch to name them: each is noted at the location, so that a later process finds it.

A note lies in the hand-over folder under a name that holds that of the run file, so a listing tells what waits.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass

from checkpoint.chain.collect import HANDOVER, RUNS
from checkpoint.chain.location import Location
from checkpoint.chain.manifest import PLAIN_FORMAT, AcceptedRun, seal, unseal
from checkpoint.errors import CheckpointError

_NOTE = re.compile(r"image-(\w[\w.-]*)\.json", re.ASCII)


@dataclass(frozen=True)
class WaitingImage:
    """An image that no epoch names yet.

    Args:
        image: what a manifest would say of it.
        since: when it was noted, in seconds since 1970 by the clock of the location.
    """

    image: AcceptedRun
    since: float


def note_image(location: Location, incarnation: str, image: AcceptedRun) -> None:
    """Note that an image waits.

    Args:
        location: where the space lies.
        incarnation: the UUID of the space.
        image: the image.

    Raises:
        CheckpointError: the location cannot be written.
        FencedError: its folder is gone: no other one is made in its place.

    Dirties: one new file.
    """
    location.require_there()
    location.write(
        _note_of(image.file), seal({"incarnation": incarnation, "image": asdict(image), "format": PLAIN_FORMAT})
    )


def noted_files(location: Location) -> set[str]:
    """Return the names of the run files that are noted. Time: one listing."""
    found = map(_NOTE.fullmatch, location.names(HANDOVER))
    return {f"{RUNS}/{match[1]}" for match in found if match}


def noted_images(location: Location, incarnation: str, files: set[str]) -> Iterator[WaitingImage]:
    """Yield the images that some notes hold; those that are damaged, or of another incarnation, are left out.

    Args:
        location: where the space lies.
        incarnation: the UUID of the space.
        files: the names of the run files.

    Raises:
        CheckpointError: the location cannot be read.
    """
    for file in sorted(files):
        since = location.modified(_note_of(file))
        image = _noted(location, incarnation, file)
        if image is not None and since is not None:
            yield WaitingImage(image, since)


def forget_image(location: Location, file: str) -> None:
    """Remove the note of an image, if there is one.

    Args:
        location: where the space lies.
        file: the name of the run file, which stays.

    Dirties: the note.
    """
    location.delete(_note_of(file))


def _note_of(file: str) -> str:
    return f"{HANDOVER}/image-{file.removeprefix(f'{RUNS}/')}.json"


def _noted(location: Location, incarnation: str, file: str) -> AcceptedRun | None:
    data = location.read(_note_of(file))
    # One of a newer format counts as damaged, too: its image is made again.
    with suppress(CheckpointError, TypeError, ValueError, KeyError):
        values = unseal(data or b"", _note_of(file))
        image = AcceptedRun.from_dict(values["image"])
        return image if (values["incarnation"], image.file) == (incarnation, file) else None
    return None
