"""Watch a Spark pipeline keep checkpointed state, die half way, and continue: ``python -m objectspace.spark.demo``.

Flights, weather and planes stream through a pipeline of aggregates, joins and a top-n in a process of its own, which is
killed with SIGKILL half way, together with Spark's Java process, and started again. At the end the results are compared
with the same queries run as a plain batch.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import orjson

from checkpoint import CheckpointError
from checkpoint.chain import EpochReceipt, Manifest, receipts
from objectspace.errors import ObjectSpaceError
from objectspace.relational import StorageTable, tables
from objectspace.spark.flights import (
    CARRIERS,
    MAKERS,
    MILES_A_FORCE,
    RESULTS,
    WINDS,
    answers,
    build,
    read_flights,
    write_days,
    write_planes,
    write_weather,
)
from objectspace.spark.java import ensure_java
from objectspace.spark.pipeline import Pipeline
from objectspace.spark.session import quiet_session

SHARDS = 2
YEAR = 365
_MARK = ".objectspace-demo"
_Rows = list[tuple[Any, ...]]


@dataclass(frozen=True)
class Folders:
    """Where the demo keeps what it writes.

    Args:
        root: the folder that holds all of it.
    """

    root: Path

    @property
    def flights(self) -> Path:
        """The Parquet files of the flights, one a day."""
        return self.root / "flights"

    @property
    def weather(self) -> Path:
        """The Parquet files of the weather, one a quarter."""
        return self.root / "weather"

    @property
    def planes(self) -> Path:
        """The Parquet file of the planes."""
        return self.root / "planes"

    @property
    def space(self) -> Path:
        """The space: its manifests and run files."""
        return self.root / "space"

    @property
    def progress(self) -> Path:
        """Where Spark keeps how far it has read."""
        return self.root / "spark-checkpoint"

    @property
    def log(self) -> Path:
        """What Spark logs."""
        return self.root / "spark.log"

    def pipeline(self) -> Pipeline:
        """Return the pipeline, on which nothing is built yet."""
        return Pipeline(self.space, SHARDS, cache=self.root / "cache")

    def start_afresh(self) -> None:
        """Remove what an earlier demo has left.

        Raises:
            ObjectSpaceError: the folder holds something else, or cannot be written.
        """
        try:
            if self.root.exists() and any(self.root.iterdir()) and not (self.root / _MARK).exists():
                raise ObjectSpaceError(f"{self.root} holds files that are not the demo's: choose another --location")
            shutil.rmtree(self.root, ignore_errors=True)
            self.root.mkdir(parents=True, exist_ok=True)
            (self.root / _MARK).touch()
        except OSError as error:
            raise ObjectSpaceError(
                f"{self.root} cannot be used ({error.strerror}): choose another --location"
            ) from error


class Progress:
    """Shows how far a step has come: one line that is updated on a terminal, a line now and then elsewhere."""

    def __init__(self, title: str, total: int) -> None:
        self._title = title
        self._total = total
        self._shown = 0
        self._is_terminal = sys.stdout.isatty()

    def show(self, done: int, note: str = "") -> None:
        """Show how many of the total are done."""
        text = f"{self._title} {done}/{self._total}{note}"
        if self._is_terminal:
            print(f"\r\033[K{text}", end="", flush=True)
        elif done >= self._total or done - self._shown >= self._total / 6:
            self._shown = done
            print(text, flush=True)

    def note(self, text: str) -> None:
        """Print something on a line of its own."""
        print(f"\r\033[K{text}" if self._is_terminal else text, flush=True)

    def end(self) -> None:
        """Leave the line as it is and begin a new one."""
        if self._is_terminal:
            print(flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo.

    Args:
        arguments: the command line; that of the process by default.

    Returns:
        The exit status: 0 if the state equals the batch query, 1 if it does not, 2 if the demo cannot run.
    """
    options = _parser().parse_args(arguments)
    folders = Folders(options.location.absolute())
    try:
        return run_child(folders, options.days) if options.child else run_demo(folders, options.days, options.first)
    except (CheckpointError, ObjectSpaceError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\ndemo: stopped; run it again to start afresh", file=sys.stderr)
        return 130


def run_demo(folders: Folders, days: int, first: int = YEAR) -> int:
    """Prepare the flights, run the pipeline with a kill in the middle, and show and check what it kept.

    Args:
        folders: where everything is written.
        days: how many files, of one day each, make a micro-batch.
        first: how many days of the year, from the first on, are streamed.

    Returns:
        The exit status.
    """
    started = time.perf_counter()
    ensure_java()
    folders.start_afresh()
    files = _prepare(folders, first)
    # The weather comes one file per micro-batch: a few days of flights may all be there before it is.
    epochs = max(-(-files // days), len(list(folders.weather.iterdir())))
    _stream_until_killed(folders, days, epochs)
    expected = _stream_to_the_end(folders, days, epochs)
    kept = _kept(folders)
    _print_results(kept)
    _print_receipts(list(receipts(folders.pipeline().chain)))
    equal = all(sorted(kept[name]) == sorted(expected[name]) for name in RESULTS)
    rows = sum(map(len, kept.values()))
    print(
        f"\n{'EQUAL' if equal else 'NOT EQUAL'}: the state after the kill and the same queries as plain Spark batches"
        f" {'agree' if equal else 'differ'} ({rows:,} rows compared; {time.perf_counter() - started:.0f} s in all)"
    )
    return 0 if equal else 1


def run_child(folders: Folders, days: int) -> int:
    """Run the pipeline from where it stands to the end of the input, then the batch query; report as lines of JSON.

    Args:
        folders: where everything is written.
        days: how many files make a micro-batch.

    Returns:
        The exit status.
    """
    pipeline = folders.pipeline()
    spark = quiet_session("objectspace demo", log=folders.log)
    java = spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()  # type: ignore[union-attr]
    _report(event="started", java=java, epoch=pipeline.chain.epoch)
    paths = {"flights": (folders.flights, days), "weather": (folders.weather, 1), "planes": (folders.planes, 1)}
    frames = {name: spark.read.parquet(str(path)) for name, (path, _) in paths.items()}
    streams = {
        name: spark.readStream.schema(frames[name].schema).option("maxFilesPerTrigger", files).parquet(str(path))
        for name, (path, files) in paths.items()
    }
    build(pipeline, streams)

    def _on_epoch(batch: int, manifest: Manifest | None) -> None:
        if manifest is None:
            _report(event="skipped", batch=batch)
        else:
            rows, seconds = manifest.metrics["rows"], manifest.metrics["seconds"]
            _report(event="epoch", epoch=manifest.epoch, slots=manifest.slots, rows=rows, seconds=seconds)

    pipeline.start(
        checkpoint_location=folders.progress, trigger={"availableNow": True}, on_epoch=_on_epoch
    ).awaitTermination()
    _report(event="batch", tables=answers(frames))
    spark.stop()
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m objectspace.spark.demo",
        description="Stream a year of flights through a stateful Spark pipeline, kill it half way, resume, and compare"
        " the state with a plain batch query. Takes about a minute on two cores; each run starts afresh.",
    )
    parser.add_argument(
        "--location",
        type=Path,
        default=Path("state/demo"),
        help="the folder for everything that the demo writes (default: %(default)s)",
    )
    parser.add_argument(
        "--days",
        type=_positive,
        default=46,
        help="how many days of flights make a micro-batch, and so an epoch (default: %(default)s)",
    )
    parser.add_argument(
        "--first", type=_positive, default=YEAR, metavar="DAYS", help="stream only the first so many days of the year"
    )
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number from 1, found {text}")
    return number


def _prepare(folders: Folders, first: int) -> int:
    flights = read_flights()
    progress = Progress(f"{len(flights):,} flights into Parquet files, one a day:", min(first, YEAR))
    write_weather(folders.weather)
    write_planes(folders.planes)
    files = 0
    for files, _ in enumerate(islice(write_days(flights, folders.flights), first), 1):
        progress.show(files)
    progress.end()
    return files


def _stream_until_killed(folders: Folders, days: int, epochs: int) -> None:
    progress = Progress("Streaming: epoch", epochs)
    progress.show(0, "  starting Spark")
    with _child(folders, days) as (process, events):
        java = 0
        for event in events:
            java = event.get("java", java)
            if event["event"] == "epoch":
                progress.show(event["epoch"], _pace(event))
            if event.get("epoch", 0) >= max(1, epochs // 2):
                break
        else:
            raise _failed(folders, process)
        time.sleep(event["seconds"] / 2)  # into the next epoch, wherever that then is
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    progress.end()
    print(
        f"Killed with SIGKILL after epoch {event['epoch']} of {epochs}: the driver (process {process.pid})"
        f" and its Java (process {java})"
    )


def _stream_to_the_end(folders: Folders, days: int, epochs: int) -> dict[str, _Rows]:
    progress = Progress("Resumed:   epoch", epochs)
    progress.show(0, "  starting Spark again")
    expected: dict[str, _Rows] = {}
    with _child(folders, days) as (process, events):
        for event in events:
            if event["event"] == "started":
                progress.note(f"Started again; the newest published epoch is {event['epoch']}")
            elif event["event"] == "skipped":
                progress.note(f"Micro-batch {event['batch']} came again, and was skipped: its epoch is published")
            elif event["event"] == "epoch":
                progress.show(event["epoch"], _pace(event))
            elif event["event"] == "batch":
                expected = {name: [tuple(row) for row in rows] for name, rows in event["tables"].items()}
        if process.wait() or not expected:
            raise _failed(folders, process)
    progress.end()
    return expected


def _failed(folders: Folders, process: subprocess.Popen[bytes]) -> ObjectSpaceError:
    return ObjectSpaceError(f"the pipeline stopped with exit status {process.wait()}: its log is {folders.log}")


@contextmanager
def _child(folders: Folders, days: int) -> Iterator[tuple[subprocess.Popen[bytes], Iterator[dict[str, Any]]]]:
    command = [sys.executable, "-m", "objectspace.spark.demo", "--child"]
    command += ["--location", str(folders.root), "--days", str(days)]
    # A session of its own makes driver and Java one process group, which one signal reaches.
    with open(folders.log, "ab") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, start_new_session=True)
    assert process.stdout is not None
    try:
        yield process, (orjson.loads(line) for line in process.stdout if line.startswith(b'{"event"'))
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        process.stdout.close()


def _report(**event: Any) -> None:
    print(orjson.dumps(event).decode(), flush=True)


def _pace(event: dict[str, Any]) -> str:
    return f"  {int(event['rows']):,} rows, {event['slots']} dirty slots, {event['seconds']:.2f} s"


def _kept(folders: Folders) -> dict[str, _Rows]:
    """Return the results as they are stored, read without Spark."""
    pipeline = folders.pipeline()
    found: dict[str, _Rows] = {name: [] for name in RESULTS}
    for name, rows in found.items():
        for shard in range(SHARDS):
            with pipeline.read(name, shard) as space:
                if f"{name}/table" in tables(space):
                    rows += StorageTable(space.store, f"{name}/table").scan()
    return found


def _print_results(kept: dict[str, _Rows]) -> None:
    print("\nDepartures from New York in 2013, as kept in the space (delays in minutes)\n")
    print(f"{'carrier':<8}{'flights':>9}{'cancelled':>11}{'mean delay':>12}{'worst delay':>13}")
    for carrier, flights, departed, mean, worst in sorted(kept[CARRIERS], key=lambda row: -row[1]):
        print(f"{carrier:<8}{flights:>9,}{flights - departed:>11,}{mean:>12.2f}{worst:>13,}")
    print(f"\n{'wind (mph)':<12}{'flights':>9}{'mean delay':>12}")
    for force, flights, delay in sorted(kept[WINDS]):
        low = force * MILES_A_FORCE
        print(f"{f'{low} to {low + MILES_A_FORCE}':<12}{flights:>9,}{delay / flights:>12.2f}")
    print(f"\n{'the slowest makers of planes':<32}{'flights':>9}{'mean delay':>12}")
    for maker, flights, _, mean in sorted(kept[MAKERS], key=lambda row: -row[3]):
        print(f"{maker:<32}{flights:>9,}{mean:>12.2f}")


def _print_receipts(epochs: list[EpochReceipt]) -> None:
    print("\nReceipts of the checkpoints (bytes of keys and values; all = what saving the whole state would cost)\n")
    print(f"{'epoch':>6}{'rows':>10}{'dirty slots':>13}{'of all':>9}{'bytes':>11}{'of all':>11}{'in files':>11}")
    step = max(1, len(epochs) // 8)
    for receipt in [*epochs[:-1:step], epochs[-1]]:
        print(
            f"{receipt.epoch:>6}{receipt.rows:>10,}{receipt.slots:>13,}{receipt.state_slots:>9,}{receipt.bytes:>11,}"
            f"{receipt.state_bytes:>11,}{receipt.file_bytes:>11,}"
        )
    slots, written = sum(receipt.slots for receipt in epochs), sum(receipt.bytes for receipt in epochs)
    files, resaved = sum(receipt.file_bytes for receipt in epochs), sum(receipt.state_bytes for receipt in epochs)
    print(
        f"\nAll {len(epochs)} epochs: {slots:,} dirty slots, {written:,} bytes ({written / slots:.0f} a slot; {files:,}"
        f" in compressed files). Re-saving everything: {resaved:,} bytes, {resaved / written:.1f} times as many."
    )


if __name__ == "__main__":
    sys.exit(main())
