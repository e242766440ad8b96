"""The programs that print their own tables. A new one is a few lines here."""

from __future__ import annotations

from benchmarks.registry import Script

SCENARIOS = (
    Script(
        name="objects",
        group="objects",
        title="The objects: operations, checkpoints, opening, the middle of a list, more slots than memory",
        why="The tables of the page of the objects, with the aims that were set for them.",
        module="benchmarks.objects",
        needs=("rocksdict",),
    ),
    Script(
        name="kvt",
        group="kvt",
        title="Key-value tables beside sqlitedict, diskcache and a hand-written table",
        why="A table with versions and conditional updates should not cost more than a dictionary on a disk.",
        module="benchmarks.kvt",
        needs=("sqlitedict", "diskcache"),
    ),
    Script(
        name="relational",
        group="relational",
        title="State tables beside a plain SQLite table with the same rows and key",
        why="Operators read and write rows all the time: upserts, gets, scans and the encoding of keys.",
        module="benchmarks.relational",
        needs=("pyarrow",),
    ),
    Script(
        name="pages",
        group="store",
        title="The bytes that a row adds to the log, by the size of the pages",
        why="The size of the pages decides how many bytes a small checkpoint writes.",
        module="benchmarks.pages",
        quick=(),
    ),
    Script(
        name="runfiles",
        group="store",
        title="Run files as Parquet and as Arrow IPC",
        why="A chain in an object store is one such file a checkpoint: its bytes are sent, its rows read again.",
        module="benchmarks.runfiles",
        needs=("pyarrow",),
    ),
    Script(
        name="events",
        group="operators",
        title="The bytes of a checkpoint of event operators over an hour, slot by slot and as one value",
        why="An engine that keeps the state of an operator as one value writes all of it once a minute.",
        module="benchmarks.events",
        quick=(),
    ),
    Script(
        name="scale",
        group="scale",
        title="A model of a job of 1,000 shards and a billion slots",
        why="No benchmark of one machine shows a cluster; this says what a slot costs here and what would follow.",
        module="benchmarks.scale",
        needs=("pyarrow",),
    ),
    Script(
        name="operators",
        group="operators",
        title="Aggregations, joins and top-n beside Bytewax, Quix Streams' store and dictionaries that save themselves",
        why="They are what most streams end in; their state grows, and every checkpoint has to save it.",
        module="benchmarks.operators",
        needs=("bytewax", "pyarrow", "quixstreams"),
    ),
    Script(
        name="nexmark",
        group="operators",
        title="The queries of Nexmark: rates and the size of their states",
        why="The queries that stream processors are compared by.",
        module="benchmarks.nexmark",
        quick=("--events", "20000"),
    ),
    Script(
        name="stalls",
        group="store",
        title="How long the longest of many checkpoints takes",
        why="Merging must not make one checkpoint wait for all the state.",
        module="benchmarks.stalls",
        quick=("--slots", "100000", "--checkpoints", "150"),
    ),
    Script(
        name="spark",
        group="spark",
        title="State on Spark beside Spark's own state stores",
        why="A stream on Spark has native aggregations and transformWithState to choose from.",
        module="benchmarks.spark",
        needs=("pyspark", "google"),
        patience=7_200.0,
    ),
)
