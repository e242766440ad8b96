"""Small pipelines over flights and the names of their carriers, with the batches of three epochs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from objectspace.operators import (
    Pipeline,
    Stream,
    count,
    max_,
)

FLIGHTS = {"id": "int64", "carrier": "string", "delay": "int64?"}
NAMES = {"carrier": "string", "name": "string"}

BATCHES: list[dict[str, Any]] = [
    {"flights": [(1, "UA", 90), (2, "B6", 20), (3, "UA", None)], "names": [("UA", "United")]},
    {"flights": [("U-", (1, "UA", 90)), ("U+", (1, "UA", 5)), (4, "B6", 40)]},
    {"names": [("B6", "JetBlue"), ("-", ("UA", "United"))], "flights": [("-", (2, "B6", 20))]},
]


def flights(pipeline: Pipeline) -> Stream:
    return pipeline.source("flights", FLIGHTS, key=["id"])


def per_carrier(pipeline: Pipeline) -> Stream:
    return flights(pipeline).group_by("carrier").agg(n=count(), worst=max_("delay"))


def named(pipeline: Pipeline) -> None:
    stream = per_carrier(pipeline)
    names = pipeline.source("names", NAMES, key=["carrier"])
    stream.join(names, on="carrier", how="left").materialize("named")


def built(*builds: Callable[[Pipeline], Any]) -> Pipeline:
    pipeline = Pipeline()
    for build in builds:
        build(pipeline)
    return pipeline


def counted(pipeline: Pipeline) -> None:
    pipeline.source("names", NAMES, key=["carrier"])
    per_carrier(pipeline).materialize("delays")
