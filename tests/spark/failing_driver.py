"""A driver to be killed: it feeds files through a pipeline, and may be told what is to go wrong in its tasks.

Run it as ``python -m tests.spark.failing_driver FOLDER MASTER FAULT [KEY=VALUE ...]``; FOLDER has ``input``.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame

from checkpoint.chain import Manifest, OperatorPlan
from objectspace.operators import count, sum_
from objectspace.spark import Operator, Pipeline, quiet_session

from .spark_helpers import TOTALS

SHARDS = 2
STRAGGLE_SECONDS = 40
FAULTY_EPOCH = 3


class Faulty(Operator):
    """An operator of which one attempt at shard 0 of the third epoch meets a fault after it has saved.

    The number of an attempt starts again at 0 when Spark repeats a stage: a file tells whether it was the first.
    """

    def task(self, plan: OperatorPlan):  # type: ignore[no-untyped-def]
        inner = Operator.task(self, plan)
        fault, once = os.environ["FAULT"], Path(plan.location.url).with_name("fault")

        def run(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            message = list(inner(rows))
            context = TaskContext.get()
            assert context is not None
            if plan.epoch == FAULTY_EPOCH and context.partitionId() == 0 and is_first(once):
                if fault == "kill":
                    os.kill(executor_of_this_worker(), signal.SIGKILL)
                if fault in ("kill", "straggle"):
                    time.sleep(STRAGGLE_SECONDS)
            yield from message

        return run


def is_first(mark: Path) -> bool:
    """Tell whether this call is the first of all processes."""
    try:
        mark.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def executor_of_this_worker() -> int:
    """Return the process that started the daemon which started this worker: the executor of this one task."""
    fields = Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()
    return int(fields[1])


def build(pipeline: Pipeline, rows: Any) -> None:
    """Build operators with state that feed one another, of which the last sees all rows."""
    totals = pipeline.source("rows", rows).group_by("key").agg(n=count(), sum=sum_("value"))
    totals.materialize("totals").agg(keys=count(), rows=sum_("n")).materialize("overall")


def main(folder: Path, master: str, *settings: str) -> None:
    """Feed what there is, and say each epoch when it is published."""
    config = dict(setting.split("=", 1) for setting in settings)
    spark = quiet_session("failing", master, folder / "spark.log", config)
    pipeline = Pipeline(folder / "space", SHARDS, cache=folder / "cache")
    reader = spark.readStream.schema("key string, value long").option("maxFilesPerTrigger", 1)
    stream: DataFrame | None = reader.parquet(str(folder / "input"))
    if os.environ["FAULT"] == "built":
        build(pipeline, stream)
        stream = None
    else:
        pipeline.add(Faulty("totals", ("key",), TOTALS))
    times = {"last": time.monotonic()}

    def say(batch: int, manifest: Manifest | None) -> None:
        now = time.monotonic()
        print(batch, None if manifest is None else manifest.epoch, f"{now - times['last']:.2f}", flush=True)
        times["last"] = now

    print("started", flush=True)
    pipeline.start(stream, folder / "query", {"availableNow": True}, on_epoch=say).awaitTermination()
    spark.stop()
    print("finished", flush=True)


if __name__ == "__main__":
    os.environ["FAULT"] = sys.argv[3]
    main(Path(sys.argv[1]), sys.argv[2], *sys.argv[4:])
