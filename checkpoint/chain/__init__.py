"""Chains: state as run files and manifests at a location that every machine reaches.

A location holds ``space.json``, which founds the space; ``run/<uuid>.parquet``, one private file for each saved shard
(or ``run/<uuid>.division``, in which a rescale says which others a shard is made of); and ``manifest/<epoch>.json``,
published with put-if-absent, which names the run files that count. A driver opens a ``Chain``, begins an epoch, lets
every shard save a run, and publishes. ``chain.collect()`` removes what no kept epoch needs.

>>> from checkpoint import CheckpointKind, Run
>>> from checkpoint.chain import Chain, SourcePosition, location_at, save_run
>>> chain = Chain.open_or_create(location_at("memory://doctest"), shards=1)
>>> plan = chain.begin(SourcePosition("query", 0), ["counter"])
>>> run = Run(CheckpointKind.FULL, [(1, "n", "Value", None)], [], [(1, "value", "42", None)])
>>> manifest = chain.publish(plan, {"counter": [save_run(plan.operators["counter"], 0, run)]})
>>> manifest.epoch, manifest.slots
(1, 1)
>>> chain.begin(SourcePosition("query", 0), ["counter"]) is None
True
"""

import checkpoint.chain._needs  # noqa: F401
from checkpoint.chain.beside import collect_beside, write_image_beside
from checkpoint.chain.cache import is_private, open_cache, write_image
from checkpoint.chain.chain import Chain
from checkpoint.chain.collect import Collected
from checkpoint.chain.division import Division, Part, write_division
from checkpoint.chain.folders import cache_root, scratch_folder
from checkpoint.chain.folding import catch_up, fold
from checkpoint.chain.founding import SpaceFile
from checkpoint.chain.local_location import LocalLocation
from checkpoint.chain.locating import location_at
from checkpoint.chain.location import Location
from checkpoint.chain.manifest import FORMAT_VERSION, AcceptedRun, Manifest, SourcePosition
from checkpoint.chain.plan import EpochPlan, Lineage, OperatorPlan, ShardSaved, save_run
from checkpoint.chain.receipt import EpochReceipt, receipts
from checkpoint.chain.remote_location import RemoteLocation
from checkpoint.chain.runfile import decode_run, encode_run, read_run, write_run
from checkpoint.chain.waiting import WaitingImage

__all__ = [
    "FORMAT_VERSION",
    "AcceptedRun",
    "Chain",
    "Collected",
    "Division",
    "EpochPlan",
    "EpochReceipt",
    "Lineage",
    "LocalLocation",
    "Location",
    "Manifest",
    "OperatorPlan",
    "Part",
    "RemoteLocation",
    "ShardSaved",
    "SourcePosition",
    "SpaceFile",
    "WaitingImage",
    "cache_root",
    "catch_up",
    "collect_beside",
    "decode_run",
    "encode_run",
    "fold",
    "is_private",
    "location_at",
    "open_cache",
    "read_run",
    "receipts",
    "save_run",
    "scratch_folder",
    "write_division",
    "write_image",
    "write_image_beside",
    "write_run",
]
