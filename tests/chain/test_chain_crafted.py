"""Files of a space whose checksums are right and whose values cannot be: refused before anything is done with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from checkpoint import CorruptStoreError
from checkpoint.chain import Chain, Division, Location, Part
from checkpoint.chain.division import read_division, write_division
from checkpoint.chain.manifest import seal, unseal

from .chain_helpers import OPERATOR, Publisher


def rewrite(location: Location, name: str, wrong: dict[str, Any]) -> None:
    """Give a file other values, and the checksum that belongs to them."""
    location.write(name, seal({**unseal(location.read(name) or b"", name, newest=4), **wrong}))


@pytest.mark.parametrize(
    "wrong",
    [
        *({"incarnation": name} for name in ("../victim", "/victim", "..", "", "a/b", "a" * 200, "a\0", 5, None)),
        *({"shards": shards} for shards in ("x", None, 0, -1, 257, 2**40, True, 1.0)),
    ],
    ids=str,
)
def test_a_space_cannot_be_founded_like_that(location: Location, publish: Publisher, wrong: dict[str, Any]) -> None:
    publish(Chain.open_or_create(location, 1), {"a": 1})
    rewrite(location, "space.json", wrong)
    with pytest.raises(CorruptStoreError, match=r"space\.json.* founds no space \(.*backup"):
        Chain.open(location)


def test_caches_of_others_are_out_of_reach(tmp_path: Path, location: Location, publish: Publisher) -> None:
    """Else the stores in a folder that the incarnation leads to would be taken for caches of the space, and dropped."""
    chain = Chain.open_or_create(location, 1)
    publish(chain, {"a": 1})
    for name in ("space.json", "manifest/000000000001.json"):
        rewrite(location, name, {"incarnation": "../victim"})
    precious = tmp_path / "victim" / f"{OPERATOR}-0" / "precious.db"
    precious.parent.mkdir(parents=True)
    precious.write_bytes(b"not to be touched")
    with pytest.raises(CorruptStoreError):
        publish(Chain.open(location), {"a": 2})
    assert [path.read_bytes() for path in precious.parent.iterdir()] == [b"not to be touched"]


def divided(location: Location, publish: Publisher) -> Division:
    """Return how a second shard of a space would be found."""
    chain = Chain.open_or_create(location, 1)
    publish(chain, {"a": 1})
    return Division(OPERATOR, 1, 2, 1, (Part(0, chain.lineage(OPERATOR, 0)),), {"sides": [["k"]]})


@pytest.mark.parametrize(
    "wrong",
    [
        *({"shards": shards} for shards in ("x", 0, 1, None, 2**40)),
        *({"before": before} for before in ("x", 0, None, 2**40)),
        *({"shard": shard} for shard in ("x", -1, 2, True)),
        *({"parts": parts} for parts in (5, None, [], {}, [5], [{"shard": 0}], [{"shard": 1, "lineage": []}])),
        *({"rule": rule} for rule in (5, None, [])),
        {"operator": 5},
        {"more": 1},
    ],
    ids=str,
)
def test_no_shard_is_divided_like_that(location: Location, publish: Publisher, wrong: dict[str, Any]) -> None:
    division = divided(location, publish)
    accepted = write_division(location, division, 2)
    assert read_division(location, accepted) == division
    values = unseal(division.to_json(), "")
    with pytest.raises(CorruptStoreError, match="it is no division"):
        Division.from_json(seal({**values, **wrong}), "it")


@pytest.mark.parametrize(
    "wrong",
    [
        *({"file": file} for file in ("../payload", "/etc/passwd", "run/../../payload", "", "run/a\0", 5, ["run/a"])),
        *({"epoch": epoch} for epoch in ("1", None, 1.5, -1)),
        *({field: value} for field in ("slots", "bytes", "file_bytes", "shard") for value in ("1", -1, None, True)),
        *({field: 5} for field in ("operator", "digest", "checksum", "replaces", "kind")),
    ],
    ids=str,
)
def test_no_run_that_a_division_names_is_like_that(
    location: Location, publish: Publisher, wrong: dict[str, Any]
) -> None:
    values = unseal(divided(location, publish).to_json(), "")
    values["parts"][0]["lineage"][0] |= wrong
    with pytest.raises(CorruptStoreError, match="it is no division"):
        Division.from_json(seal(values), "it")
