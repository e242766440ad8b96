"""What the golden run file of format 2 holds: texts of one shape, whose numbers lie in columns of their own.

``python -m tests.golden.run_2 FILE`` wrote it; it is never written again.
"""

from __future__ import annotations

import sys
from pathlib import Path

from checkpoint import CheckpointKind, Run
from checkpoint.chain import encode_run

PATH = Path(__file__).with_name("run_2.parquet")


def expected() -> Run:
    """Return the run: totals by key, some of them deleted, and what has another shape."""
    totals = [f'{{"räder":{number % 9},"sum":{-(number**3)}}}' if number % 50 else None for number in range(600)]
    return Run(
        CheckpointKind.DIFFERENTIAL,
        index=[(1, "totals", "Dictionary", "json"), (2, "gone", None, None)],
        metadata=[(1, "length", "588")],
        items=[
            *((1, number, total, number % 7) for number, total in enumerate(totals)),
            (3, 0, '{"räder":007,"sum":-0}', None),
            (3, 1, '"text"', None),
            (3, 2, "", None),
            (3, b"\x00", b"\xff", None),
        ],
    )


if __name__ == "__main__":
    Path(sys.argv[1]).write_bytes(encode_run(expected()))
