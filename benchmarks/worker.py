"""The process of one contestant: it fills a state, or opens one and measures what it is told to do.

``python -m benchmarks.worker MODULE SCENARIO CONTESTANT PLACE STATE QUICK fill|serve``. A process of its own makes the
CPU time, the bytes that the kernel counts and the peak of memory those of the contestant, threads included.
"""

from __future__ import annotations

import gc
import os
import random
import re
import sys
import time
from pathlib import Path
from typing import IO, Any

import orjson
import xxhash

from benchmarks.registry import Scenario, Subject, load


def written_bytes() -> int:
    """Return how many bytes of pages this process has dirtied that the kernel must write to the disk, threads included.

    Appending ten bytes dirties a page of 4,096: that is also what the disk is given. The journal of the file system is
    not in it.
    """
    found = re.findall(r"^(cancelled_write_bytes|write_bytes): (\d+)", Path("/proc/self/io").read_text(), re.MULTILINE)
    counts = {name: int(value) for name, value in found}
    return counts["write_bytes"] - counts["cancelled_write_bytes"]


def peak_bytes() -> int:
    """Return the most memory that this process has held at once."""
    found = re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())
    return int(found[1]) * 1024 if found else 0


def stored_bytes(place: Path) -> int:
    """Return what the files below a folder take on the disk."""
    total = 0
    for path in place.rglob("*"):
        try:
            total += path.lstat().st_blocks * 512
        except FileNotFoundError:
            continue  # removed meanwhile by a thread of the contestant
    return total


class Server:
    """Answers the requests of the runner, one JSON text a line.

    Args:
        scenario: what is measured.
        subject: the contestant.
        quick: whether the steps are those of the small run.
    """

    def __init__(self, scenario: Scenario, subject: Subject, quick: bool) -> None:
        self.steps = scenario.sizes(quick).steps
        self.subject = subject
        self.before = peak_bytes()
        self.mark = written_bytes()

    def open(self, _: dict[str, Any]) -> dict[str, Any]:
        """Open the state."""
        self.subject.open()
        return {"before": self.before}

    def run(self, request: dict[str, Any]) -> dict[str, Any]:
        """Run one repetition of a step."""
        action = self.subject.action(self.steps[request["step"]], random.Random(request["seed"]))
        gc.collect()
        written, cpu, started = written_bytes(), time.process_time(), time.perf_counter()
        found = action()
        wall, cpu, written = time.perf_counter() - started, time.process_time() - cpu, max(0, written_bytes() - written)
        answer = None if found is None else xxhash.xxh64_hexdigest(repr(found).encode())
        return {"wall": round(wall, 9), "cpu": round(cpu, 9), "written": written, "answer": answer}

    def settle(self, _: dict[str, Any]) -> dict[str, Any]:
        """Tell what the step has written in all, the work of threads and of preparations included."""
        mark, self.mark = self.mark, written_bytes()
        return {"written": max(0, self.mark - mark), "peak": peak_bytes(), "stored": stored_bytes(self.subject.place)}

    def close(self, _: dict[str, Any]) -> dict[str, Any]:
        """Close the state."""
        self.subject.close()
        return {}


def serve(server: Server, requests: IO[bytes], replies: IO[bytes]) -> None:
    """Answer requests until there are no more; an exception is an answer too."""
    for line in requests:
        request = orjson.loads(line)
        try:
            reply = getattr(server, request["do"])(request)
        except Exception as error:
            reply = {"error": f"{type(error).__name__}: {error}"}
        replies.write(orjson.dumps(reply) + b"\n")
        replies.flush()


def main(arguments: list[str]) -> None:
    """Fill a state or serve it."""
    module, name, contestant, place, state, quick, what = arguments
    scenario = load(module)[name]
    if not isinstance(scenario, Scenario):
        raise TypeError(f"{name!r} is a script: it runs by itself")
    settings = scenario.sizes(quick == "quick").settings
    subject = scenario.contestant(contestant).subject(Path(place), int(state), settings)
    if what == "fill":
        subject.fill()
        return
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a rival prints must not stand between the replies
    serve(Server(scenario, subject, quick == "quick"), sys.stdin.buffer, replies)


if __name__ == "__main__":
    main(sys.argv[1:])
