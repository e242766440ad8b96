"""Bytes flipped and files cut in every file of a chain: found at the latest when the file is needed, never believed."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from checkpoint import CheckpointError
from checkpoint.chain import Chain, location_at
from tests.golden import chain_1
from tests.tally import TALLY

FLIPS, FLIPS_AT_SCALE = 1, 40
FILES = sorted(path.relative_to(chain_1.PATH).as_posix() for path in chain_1.PATH.rglob("*") if path.is_file())


def read_all(folder: Path, cache: Path) -> None:
    """Read the chain at every epoch it claims to have, as a machine without any cache; whatever is read is right."""
    chain = Chain.open(location_at(folder))
    for epoch in range(chain.first_epoch, chain.epoch + 1):
        plan = chain.operator_plan(chain_1.OPERATOR, epoch, cache=str(cache / str(epoch)))
        for shard in range(chain.shards):
            assert chain_1.contents(plan, shard) == chain_1.expected(epoch, shard)


@pytest.mark.parametrize("name", FILES)
def test_bytes_flipped_in_any_file_of_a_chain_are_found(tmp_path: Path, name: str, at_scale: bool) -> None:
    rng, whole = random.Random(name), (chain_1.PATH / name).read_bytes()
    folder = Path(shutil.copytree(chain_1.PATH, tmp_path / "space"))
    for number in range(FLIPS_AT_SCALE if at_scale else FLIPS):
        place, bit = rng.randrange(len(whole)), 1 << rng.randrange(8)
        (folder / name).write_bytes(whole[:place] + bytes([whole[place] ^ bit]) + whole[place + 1 :])
        assert is_found(folder, tmp_path / f"cache {number}", name)
        TALLY["bytes flipped"] += 1


@pytest.mark.parametrize("name", FILES)
def test_a_cut_file_of_a_chain_is_found(tmp_path: Path, name: str, at_scale: bool) -> None:
    whole = (chain_1.PATH / name).read_bytes()
    folder = Path(shutil.copytree(chain_1.PATH, tmp_path / "space"))
    lengths = [0, len(whole) // 2, len(whole) - 1]
    for number, length in enumerate(lengths if at_scale else random.Random(name).sample(lengths, 1)):
        (folder / name).write_bytes(whole[:length])
        assert is_found(folder, tmp_path / f"cache {number}", name)
        TALLY["files cut"] += 1


def is_found(folder: Path, cache: Path, name: str) -> bool:
    """Tell whether the damage of a file is found where it is read."""
    try:
        read_all(folder, cache)
    except CheckpointError:
        return True
    # The name of this one says all that is believed; what it holds is for people.
    return name.startswith("floor/")
