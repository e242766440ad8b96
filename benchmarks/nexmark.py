"""Nexmark: how many events a second each query takes, and how much state it keeps.

Run it with ``python -m benchmarks.nexmark`` (or ``make bench-nexmark``). Each query runs alone, on a store on disk,
with a checkpoint after each batch of events.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.nexmark_events import SCHEMAS, SIDE, SIDE_ROWS, Batch, Nexmark
from benchmarks.nexmark_queries import QUERIES, Query
from benchmarks.timing import machine, table
from checkpoint import CheckpointStore
from objectspace.operators import LocalRun, Pipeline


def as_batches(events: Nexmark, count: int, size: int) -> Iterator[Batch]:
    """Yield batches of events; the first one also brings the bounded side input."""
    for number, batch in enumerate(events.batches(count, size)):
        yield batch | ({"side": SIDE_ROWS} if number == 0 else {})


def pipeline_of(query: Query) -> Pipeline:
    """Return the pipeline that keeps the answer of a query as ``answer``."""
    pipeline = Pipeline()
    streams = {name: pipeline.source(name, schema, append_only=True) for name, schema in SCHEMAS.items()}
    streams["side"] = pipeline.source("side", SIDE, append_only=True)
    query.build(streams).materialize("answer")
    return pipeline


def measure(name: str, batches: list[Batch], events: int, place: Path) -> tuple[str, ...]:
    """Run a query and return its row of the table."""
    store = CheckpointStore(place / f"{name}.db")
    run = LocalRun(pipeline_of(QUERIES[name]), store, keep_changes=False)
    started = time.perf_counter()
    written = sum(run.step(batch).bytes for batch in batches)
    seconds = time.perf_counter() - started
    slots = store.database.execute("SELECT count(*), total(length(value)) FROM current_item").fetchone()
    answer = len(run.rows("answer"))
    run.space.close()
    store.close()
    return (
        name,
        f"{events / seconds:,.0f}",
        f"{seconds:.2f}",
        f"{answer:,}",
        f"{slots[0]:,}",
        f"{slots[1] / 1e6:.2f}",
        f"{written / 1e6:.2f}",
    )


def main() -> None:
    """Run the benchmark and print its table in Markdown."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.nexmark", description=__doc__)
    parser.add_argument("--events", type=int, default=100_000, help="how many events; 100,000 by default")
    parser.add_argument("--batch", type=int, default=10_000, help="events from one checkpoint to the next; 10,000")
    parser.add_argument("--seed", type=int, default=7, help="the seed of the generator; 7 by default")
    parser.add_argument("queries", nargs="*", default=[], help="which queries; all by default")
    arguments = parser.parse_args()
    print(machine("objectspace", "orjson") + "\n", flush=True)
    batches = list(as_batches(Nexmark(arguments.seed), arguments.events, arguments.batch))
    header = ("query", "events/s", "seconds", "rows of the answer", "slots of state", "MB of state", "MB written")
    with tempfile.TemporaryDirectory(prefix=".bench-", dir=".") as place:
        names = arguments.queries or list(QUERIES)
        rows = [measure(name, batches, arguments.events, Path(place)) for name in names]
    title = f"Nexmark, {arguments.events:,} events, a checkpoint every {arguments.batch:,}"
    print(table(title, header, rows))
    print(f"Not among them: {', '.join(sorted({f'q{n}' for n in range(23)} - set(QUERIES)))}.")


if __name__ == "__main__":
    main()
