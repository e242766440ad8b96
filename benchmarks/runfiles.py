"""Run files as Parquet and as Arrow IPC, which both hold the same columns: ``python -m benchmarks.runfiles``."""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable
from functools import partial

import pyarrow as pa

from benchmarks.timing import Action, Ratio, in_turn, machine, table
from checkpoint import CheckpointKind, Run
from checkpoint.chain.runfile import decode_run, encode_run, run_of, table_of

SIZES = (1, 100, 10_000, 1_000_000)
STATE = 10_000_000
IPC = "Arrow IPC, zstd"
KINDS: dict[str, Callable[[int], bytes | int]] = {"numbers as slots": int, "text as slots": lambda n: b"\x13%012d" % n}


def made(rows: int, slot_of: Callable[[int], bytes | int]) -> Run:
    """Return a differential run of so many random slots of a large dictionary."""
    chance = random.Random(rows)
    slots = sorted(chance.sample(range(STATE), rows))
    items = [(1, slot_of(slot), f'{{"price":{chance.getrandbits(30)},"volume":{slot}}}', slot) for slot in slots]
    return Run(CheckpointKind.DIFFERENTIAL, [], [(1, "length", str(STATE))], items)  # type: ignore[arg-type]


def to_ipc(run: Run) -> bytes:
    """Return a run as an Arrow IPC file."""
    rows = table_of(run)
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_file(sink, rows.schema, options=options) as writer:
        writer.write_table(rows)
    return bytes(sink.getvalue())


def from_ipc(data: bytes) -> Run:
    """Return the run of an Arrow IPC file."""
    return run_of(CheckpointKind.DIFFERENTIAL, pa.ipc.open_file(pa.BufferReader(data)).read_all())


def compared(rows: int, slot_of: Callable[[int], bytes | int], repetitions: int) -> list[list[str]]:
    """Return what both take of a run of so many rows: writing, reading, bytes."""
    run = made(rows, slot_of)
    parquet, ipc = encode_run(run), to_ipc(run)
    if decode_run(parquet).items != from_ipc(ipc).items:
        raise AssertionError("the two files do not hold the same rows")
    steps: dict[str, tuple[Action, Action]] = {
        "write": (partial(encode_run, run), partial(to_ipc, run)),
        "read": (partial(decode_run, parquet), partial(from_ipc, ipc)),
    }
    lines = []
    for step, (ours, theirs) in steps.items():
        found = in_turn({"Parquet": partial(_given, ours), IPC: partial(_given, theirs)}, repetitions)
        times = [f"{one.median * 1e3:,.2f} ms" for one in found.values()]
        lines.append([f"{step} {rows:,} rows", *times, Ratio(found["Parquet"], found[IPC]).describe()])
    ratio = len(parquet) / len(ipc)
    return [*lines, [f"bytes of {rows:,} rows", f"{len(parquet):,} B", f"{len(ipc):,} B", f"{ratio:.2f}"]]


def _given(action: Action) -> Action:
    return action


def main() -> None:
    """Print a table for each kind of slot."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.runfiles", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="up to 10,000 rows")
    quick = parser.parse_args().quick
    print(machine("objectspace", "pyarrow"))
    for kind, slot_of in KINDS.items():
        rows = [row for size in SIZES if size <= 10_000 or not quick for row in compared(size, slot_of, 5)]
        print(table(f"A run file, {kind}", ("what", "Parquet", IPC, "ratio"), rows))


if __name__ == "__main__":
    main()
