"""Objects of users for the tests of ``apply``, and what they must give."""

from __future__ import annotations

from collections import Counter
from typing import Any

from objectspace.operators import Stream, count
from tests.operators.pipeline_trees import World

GREATEST = {"k": "string?", "most": "int64", "n": "int64"}


class Greatest:
    """Keeps the values of each key row by row, and returns the greatest of them and how many they are."""

    def process(self, batch: Any, space: Any) -> list[dict[str, Any]]:
        values = space.get_or_create_dictionary("values", of=dict)
        for row in batch.to_pylist():
            if row["op"] == "-":
                del values[row["k"]][row["id"]]
            elif row["op"] != "U-":
                values.setdefault(row["k"])[row["id"]] = row["v"] or 0
        return [self._row(values, key) for key in dict.fromkeys(batch["k"].to_pylist())]

    def _row(self, values: Any, key: str | None) -> dict[str, Any]:
        if not values[key]:
            del values[key]
            return {"op": "-", "k": key}
        return {"k": key, "most": max(values[key].values()), "n": len(values[key])}


def greatest(stream: Stream) -> Stream:
    """Build what is tested: the rows of an object of a user, materialised, and counted by another operator."""
    found = stream.apply(Greatest(), "greatest", GREATEST, key="k", output_key="k").materialize("found")
    found.group_by("most").agg(keys=count()).materialize("counted")
    return found


def expected(world: World) -> tuple[Counter[Any], Counter[Any]]:
    """Return what ``found`` and ``counted`` must hold."""
    values: dict[Any, list[int]] = {}
    for _, key, value, _ in world.rows["a"].values():
        values.setdefault(key, []).append(value or 0)
    found = {(key, max(mine), len(mine)) for key, mine in values.items()}
    return Counter(found), Counter(Counter(most for _, most, _ in found).items())
