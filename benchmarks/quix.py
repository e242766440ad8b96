"""Quix Streams as a rival: its state store on RocksDB, in the way its applications use it, without the Kafka around it.

An application needs a broker, which would be measured more than the state; so what a stateful function of one does is
done here to its store: a look and a change a row, and a flush where the application would commit. Like there, a flush
does not wait for the disk: what an application of Quix recovers from is its changelog in Kafka.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from quixstreams.state.rocksdb import RocksDBStore

from benchmarks.durable import AN_EPOCH

RIVAL = "Quix Streams' state store, without Kafka and its changelog"


def totals(events: list[list[Any]], place: Path) -> None:
    """Keep the count, sum and maximum of each key; a piece of the events is 10,000 of them."""
    with RocksDBStore("totals", "events", str(place)) as store:
        store.assign_partition(0)
        transaction = store.start_partition_transaction(0)
        for number, piece in enumerate(events, 1):
            for k, v, _ in piece:
                state = transaction.as_state(prefix=str(k).encode())
                count, total, greatest = state.get("totals", (0, 0, v))
                state.set("totals", (count + 1, total + v, max(greatest, v)))
            if number % AN_EPOCH == 0 or number == len(events):
                transaction.prepare()
                transaction.flush()
                transaction = store.start_partition_transaction(0)
